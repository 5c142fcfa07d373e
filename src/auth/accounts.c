/* Lookups: who a key, a session or a name stands for, from the cache. Filling it: accounts_cache.c. */
#include "auth/accounts_private.h"

#include <sodium.h>
#include <stdlib.h>

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
enum { RANDOM_DIGITS = 40 }; /* 238 bits */
_Static_assert(sizeof("ck_") + RANDOM_DIGITS <= API_KEY_TEXT_BYTES, "a key's text fits");

void api_key_digest(struct str text, uint8_t digest[KEY_DIGEST_BYTES])
{
	crypto_generichash(digest, KEY_DIGEST_BYTES, (const unsigned char *)text.ptr, text.len, NULL, 0);
}

void api_key_make(char text[API_KEY_TEXT_BYTES], uint8_t digest[KEY_DIGEST_BYTES])
{
	memcpy(text, "ck_", 3);
	for (size_t i = 0; i < RANDOM_DIGITS; i++)
		text[3 + i] = digits[randombytes_uniform(sizeof(digits) - 1)];
	text[3 + RANDOM_DIGITS] = '\0';
	api_key_digest(str_of(text), digest);
}

int accounts_new(const struct accounts_config *config, struct accounts **ret, struct err *e)
{
	struct accounts *a = calloc(1, sizeof(*a));
	uint64_t seed;
	if (!a)
		return err_set(e, ERR_NOMEM, "out of memory for the cache of accounts");
	a->store = config->store;
	a->budgets = config->budgets;
	a->stale_ms = config->stale_ms;
	atomic_init(&a->fresh_until_ms, INT64_MAX);
	pthread_mutex_init(&a->feed_lock, NULL);
	randombytes_buf(&seed, sizeof(seed));
	randombytes_buf(a->secret, sizeof(a->secret));
	int r = cache_new(config->cache_bytes, seed, &a->cache, e);
	if (r == 0) {
		r = registry_constant(a->store->registry, STR("session-secret"), a->secret,
		                      sizeof(a->secret));
		if (r == 0)
			r = accounts_poll_feed(a);
		if (r < 0)
			err_set(e, r, "cannot read the accounts from the store (%s)", err_name(r));
	}
	if (r < 0) {
		accounts_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void accounts_free(struct accounts *a)
{
	if (!a)
		return;
	accounts_watch_stop(a);
	cache_free(a->cache);
	pthread_mutex_destroy(&a->feed_lock);
	sodium_memzero(a->secret, sizeof(a->secret));
	free(a);
}

void accounts_set_local(struct accounts *a, struct str presented)
{
	api_key_digest(presented, a->local_digest);
	a->has_local = true;
}

/* --- finding --- */

/* UNCACHED: there is no valid entry. NONE: the entry says that there is no such account. */
static enum account_found entry_find(struct accounts *a, const struct account_ref *ref, int64_t mono_ms,
                                     const struct cache_entry **ret)
{
	const struct cache_entry *e = cache_find(a->cache, account_cache_key(ref));
	if (!e || e->link != atomic_load_explicit(&a->flushes, memory_order_acquire))
		return ACCOUNT_UNCACHED;
	if (e->response_len == 0)
		return e->expires_ms > mono_ms ? ACCOUNT_NONE : ACCOUNT_UNCACHED;
	*ret = e;
	return ACCOUNT_FOUND;
}

bool accounts_is_unknown(struct accounts *a, const struct account_ref *ref, int64_t mono_ms)
{
	const struct cache_entry *e;
	return entry_find(a, ref, mono_ms, &e) == ACCOUNT_NONE;
}

static bool is_expired(int64_t expires_ms, int64_t now_ms)
{
	return expires_ms != 0 && expires_ms <= now_ms;
}

static bool is_stale(const struct accounts *a, struct account_time now)
{
	return now.mono_ms > atomic_load_explicit(&a->fresh_until_ms, memory_order_relaxed);
}

enum account_found accounts_find_user(struct accounts *a, uint64_t id, struct account_time now,
                                      struct account *ret, struct account_ref *ret_ref)
{
	const struct cache_entry *e;
	struct cached_user cached;
	if (is_stale(a, now))
		return ACCOUNT_STALE;
	*ret_ref = account_ref_user(id);
	enum account_found found = id ? entry_find(a, ret_ref, now.mono_ms, &e) : ACCOUNT_NONE;
	if (found != ACCOUNT_FOUND)
		return found;
	const char *bytes = cache_entry_response(e);
	memcpy(&cached, bytes, sizeof(cached));
	bool has_email = cached.email_len != UINT32_MAX;
	size_t email_len = has_email ? cached.email_len : 0;
	bytes += sizeof(cached);
	*ret = (struct account){
	    .id = cached.id,
	    .email = has_email ? str_n(bytes, email_len) : STR_NULL,
	    .name = str_n(bytes + email_len, e->response_len - sizeof(cached) - email_len),
	    .role = cached.role,
	    .enabled = cached.enabled,
	    .generation = cached.generation,
	    .budget = e->budget,
	};
	return ACCOUNT_FOUND;
}

enum account_found accounts_find_user_named(struct accounts *a, struct str text, struct account_time now,
                                            struct account *ret, struct account_ref *ret_ref)
{
	char folded[USER_EMAIL_BYTES_MAX];
	const struct cache_entry *e;
	uint64_t id;
	if (str_u64(text, &id))
		return accounts_find_user(a, id, now, ret, ret_ref);
	if (text.len == 0 || text.len > sizeof(folded))
		return ACCOUNT_NONE;
	if (is_stale(a, now))
		return ACCOUNT_STALE;
	struct str email = str_lower(text, folded);
	struct account_ref by_email = account_ref_of(BY_EMAIL, email.ptr, email.len);
	enum account_found found = entry_find(a, &by_email, now.mono_ms, &e);
	if (found == ACCOUNT_FOUND) {
		memcpy(&id, cache_entry_response(e), sizeof(id));
		found = accounts_find_user(a, id, now, ret, ret_ref);
		if (found != ACCOUNT_FOUND || str_eq(ret->email, email))
			return found;
		found = ACCOUNT_UNCACHED; /* the user has another address by now */
	}
	*ret_ref = by_email;
	return found;
}

/*
 * Fills *c for the key of c->digest or the session of c->session. A session may have a later generation than
 * the cached user: its MAC proves that a server made it, so another process has changed the user since.
 */
static enum account_found credential_find(struct accounts *a, struct account_time now, struct caller *c,
                                          struct account_ref *ret_ref)
{
	const struct cache_entry *e;
	struct cached_credential cached;
	struct account user;
	if (is_expired(c->expires_ms, now.real_ms))
		return ACCOUNT_NONE;
	if (is_stale(a, now))
		return ACCOUNT_STALE;
	*ret_ref = c->by_session ? account_ref_of(BY_SESSION, c->session, SESSION_ID_BYTES)
	                         : account_ref_of(BY_DIGEST, c->digest, KEY_DIGEST_BYTES);
	enum account_found found = entry_find(a, ret_ref, now.mono_ms, &e);
	if (found != ACCOUNT_FOUND)
		return found;
	memcpy(&cached, cache_entry_response(e), sizeof(cached));
	if (cached.is_revoked || is_expired(cached.expires_ms, now.real_ms))
		return ACCOUNT_NONE;
	found = accounts_find_user(a, cached.user, now, &user, ret_ref);
	if (found != ACCOUNT_FOUND)
		return found;
	if (!user.enabled ||
	    (c->by_session && (cached.user != c->user || cached.generation < user.generation)))
		return ACCOUNT_NONE;
	c->user = user.id;
	c->key = cached.key;
	c->rights = role_rights(user.role) & cached.rights;
	c->limit_key = e->budget ? cached.key : 0;
	c->budget = e->budget ? e->budget : user.budget;
	c->expires_ms = cached.expires_ms;
	return ACCOUNT_FOUND;
}

enum account_found accounts_find_key(struct accounts *a, struct str presented, struct account_time now,
                                     struct caller *ret, struct account_ref *ret_ref)
{
	struct caller c = {0};
	api_key_digest(presented, c.digest);
	if (a->has_local && sodium_memcmp(a->local_digest, c.digest, sizeof(c.digest)) == 0) {
		*ret = (struct caller){.rights = RIGHTS_ALL, .budget = budgets_of_user(a->budgets, 0)};
		return ACCOUNT_FOUND;
	}
	enum account_found found = credential_find(a, now, &c, ret_ref);
	if (found == ACCOUNT_FOUND) {
		key_uses_note(&a->uses, c.key, now.real_ms);
		*ret = c;
	}
	return found;
}

enum account_found accounts_find_session(struct accounts *a, struct str token, struct account_time now,
                                         struct caller *ret, struct account_ref *ret_ref)
{
	struct session_token t;
	if (!session_token_read(a->secret, token, &t))
		return ACCOUNT_NONE;
	struct caller c = {
	    .user = t.user,
	    .by_session = true,
	    .generation = t.generation,
	    .expires_ms = t.expires_ms,
	};
	memcpy(c.session, t.id, SESSION_ID_BYTES);
	enum account_found found = credential_find(a, now, &c, ret_ref);
	if (found == ACCOUNT_FOUND)
		*ret = c;
	return found;
}

static bool is_local(const struct accounts *a, const struct caller *c)
{
	return a->has_local && c->user == 0 && c->rights == RIGHTS_ALL;
}

enum account_found accounts_recheck(struct accounts *a, const struct caller *c, struct account_time now,
                                    struct account_ref *ret_ref)
{
	struct caller as_now = *c;
	enum account_found found = ACCOUNT_FOUND;
	if (c->by_session || c->key != 0)
		found = credential_find(a, now, &as_now, ret_ref);
	else if (!is_local(a, c))
		found = ACCOUNT_NONE;
	return found == ACCOUNT_FOUND && (c->rights & ~as_now.rights) ? ACCOUNT_NONE : found;
}

int accounts_recheck_stored(struct accounts *a, const struct caller *c, int64_t now_ms, bool *ret)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct registry_account reads[] = {
	    {.by = BY_USER, .id = c->user},
	    {.by = c->by_session ? BY_SESSION : BY_DIGEST,
	     .text = c->by_session ? str_n((const char *)c->session, SESSION_ID_BYTES)
	                           : str_n((const char *)c->digest, KEY_DIGEST_BYTES)},
	};
	const struct user_record *user = &reads[0].user;
	*ret = is_local(a, c);
	int r = c->user ? registry_accounts(a->store->registry, reads, ARRAY_LEN(reads), &arena) : 0;
	if (r < 0 || c->user == 0 || reads[0].result != 0 || reads[1].result != 0)
		return r;
	unsigned rights = role_rights(user->role);
	bool is_valid = user->enabled;
	if (c->by_session) {
		const struct session_record *session = &reads[1].session;
		is_valid &= session->generation >= user->generation && session->expires_ms > now_ms;
	} else {
		const struct key_record *key = &reads[1].key;
		is_valid &= !key->revoked_ms && !is_expired(key->expires_ms, now_ms);
		rights &= key->rights;
	}
	*ret = is_valid && (c->rights & ~rights) == 0;
	return 0;
}

int64_t accounts_key_used_ms(const struct accounts *a, uint64_t key)
{
	return key_uses_last(&a->uses, key);
}

size_t accounts_take_key_uses(struct accounts *a, size_t *at, struct registry_write *writes, size_t max)
{
	return key_uses_take(&a->uses, at, writes, max);
}

/* --- tokens --- */

void accounts_session_token(const struct accounts *a, const struct session_record *session,
                            char text[SESSION_TEXT_BYTES])
{
	struct session_token t = {
	    .user = session->user, .generation = session->generation, .expires_ms = session->expires_ms};
	memcpy(t.id, session->id, sizeof(t.id));
	session_token_write(a->secret, &t, text);
}

void accounts_csrf_token(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES],
                         char text[CSRF_TEXT_BYTES])
{
	session_token_csrf(a->secret, session, text);
}

bool accounts_csrf_matches(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES],
                           struct str presented)
{
	char expected[CSRF_TEXT_BYTES];
	accounts_csrf_token(a, session, expected);
	return presented.len == strlen(expected) &&
	       sodium_memcmp(expected, presented.ptr, presented.len) == 0;
}
