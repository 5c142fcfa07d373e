#include "auth/accounts.h"

#include "auth/key_uses.h"
#include "link/cache.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/task.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
enum {
	RANDOM_DIGITS = 40, /* 238 bits */
	WATCH_MS = 1000,
	FEED_TRANSACTIONS = 200, /* are read in one go */
	UNKNOWN_MS = 10000,      /* how long it is kept that there is no such account */
	USERS_AT_ONCE = 256,     /* are asked for in one go */
};
_Static_assert(sizeof("ck_") + RANDOM_DIGITS <= API_KEY_TEXT_BYTES, "a key's text fits");

/*
 * What an entry of the cache says, as the bytes of its response; none: there is no such account. An email
 * address stands for a user's id, whose own entry says whether it is still theirs. The entry's `link` is the
 * number of the life that it was read in.
 */
struct kept_user {
	uint64_t id, generation;
	enum user_role role;
	bool enabled;
	uint32_t email_len; /* the address follows, then the name */
};

/* A key, or a session: one that has all rights of its user. */
struct kept_credential {
	uint64_t user, key; /* 0: a session */
	uint64_t generation;
	unsigned rights;
	bool is_revoked;
	int64_t expires_ms;
};

struct accounts {
	struct store *store;
	struct budgets *budgets;
	struct cache *cache;
	uint64_t stale_ms;
	_Atomic uint64_t life;         /* entries of an earlier one do not count */
	_Atomic int64_t good_until_ms; /* monotonic; after that nothing kept counts */
	pthread_mutex_t follow_lock;   /* guards the next two */
	struct feed_cursor cursor;     /* in the feed of accounts */
	bool has_cursor;
	struct key_uses uses;
	uint8_t secret[SESSION_SECRET_BYTES];
	uint8_t local_digest[KEY_DIGEST_BYTES]; /* set before the workers start */
	bool has_local;
	struct task watcher;
	bool is_failing; /* the watcher's own: the store did not answer the last time */
};

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
		return err_set(e, ERR_NOMEM, "out of memory for the accounts");
	a->store = config->store;
	a->budgets = config->budgets;
	a->stale_ms = config->stale_ms;
	atomic_init(&a->good_until_ms, INT64_MAX);
	pthread_mutex_init(&a->follow_lock, NULL);
	randombytes_buf(&seed, sizeof(seed));
	randombytes_buf(a->secret, sizeof(a->secret));
	int r = cache_new(config->cache_bytes, seed, &a->cache, e);
	if (r == 0) {
		r = registry_constant(a->store->registry, STR("session-secret"), a->secret,
		                      sizeof(a->secret));
		if (r == 0)
			r = accounts_follow(a);
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
	accounts_unwatch(a);
	cache_free(a->cache);
	pthread_mutex_destroy(&a->follow_lock);
	sodium_memzero(a->secret, sizeof(a->secret));
	free(a);
}

void accounts_set_local(struct accounts *a, struct str presented)
{
	api_key_digest(presented, a->local_digest);
	a->has_local = true;
}

/* --- names --- */

static struct account_want want_of(enum registry_by by, const void *text, size_t len)
{
	struct account_want want = {.by = (uint8_t)by, .len = (uint8_t)len};
	ASSERT(len <= sizeof(want.text));
	memcpy(want.text, text, len);
	return want;
}

static struct account_want want_user(uint64_t id)
{
	return want_of(BY_USER, &id, sizeof(id));
}

static struct str name_of(const struct account_want *want)
{
	_Static_assert(offsetof(struct account_want, text) == offsetof(struct account_want, by) + 1,
	               "a name");
	return str_n((const char *)want + offsetof(struct account_want, by), 1 + (size_t)want->len);
}

uint64_t accounts_epoch(struct accounts *a, const struct account_want *want)
{
	return cache_epoch(a->cache, name_of(want)) ^ atomic_load(&a->life) << 32;
}

/* --- keeping --- */

/* When something was about to be read: what comes of it is kept only if nothing has changed since. */
struct moment {
	uint64_t life;
	uint32_t epoch;
};

static struct moment moment_now(struct accounts *a, const struct account_want *want)
{
	return (struct moment){atomic_load(&a->life), cache_epoch(a->cache, name_of(want))};
}

static void keep(struct accounts *a, const struct account_want *want, struct moment at, struct str value,
                 int64_t expires_ms, struct budget *budget)
{
	const struct cache_fill fill = {.key = name_of(want),
	                                .response = value,
	                                .expires_ms = expires_ms,
	                                .link = at.life,
	                                .budget = budget};
	cache_insert(a->cache, &fill, at.epoch);
}

static void keep_unknown(struct accounts *a, const struct account_want *want, struct moment at)
{
	keep(a, want, at, STR_NULL, clock_mono_ms() + UNKNOWN_MS, NULL);
}

struct str account_name(struct arena *arena, const struct user_record *user)
{
	const struct str parts[] = {user->first_name, user->middle_name, user->last_name};
	struct buf CLEANUP(buf_release) name = {0};
	if (user->email.ptr || user->id == 0)
		return arena_str(arena, user->id ? user->email : STR("local"));
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		if (name.len > 0 && parts[i].len > 0)
			buf_char(&name, ' ');
		buf_str(&name, parts[i]);
	}
	if (name.len == 0)
		buf_printf(&name, "user %llu", (unsigned long long)user->id);
	return name.failed ? STR_NULL : arena_str(arena, buf_view(&name));
}

static void keep_user(struct accounts *a, const struct user_record *user, struct moment at)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct buf CLEANUP(buf_release) value = {0};
	const struct kept_user kept = {
	    .id = user->id,
	    .generation = user->generation,
	    .role = user->role,
	    .enabled = user->enabled,
	    .email_len = user->email.ptr ? (uint32_t)user->email.len : UINT32_MAX,
	};
	struct account_want want = want_user(user->id);
	struct budget *budget = budgets_of_user(a->budgets, user->id);
	buf_append(&value, &kept, sizeof(kept));
	buf_str(&value, user->email);
	struct str name = account_name(&arena, user);
	buf_str(&value, name);
	if (!value.failed && name.ptr && budget)
		keep(a, &want, at, buf_view(&value), 0, budget);
}

static void keep_key(struct accounts *a, const struct key_record *key, struct moment at)
{
	const struct kept_credential kept = {
	    .user = key->user,
	    .key = key->id,
	    .rights = key->rights,
	    .is_revoked = key->revoked_ms != 0,
	    .expires_ms = key->expires_ms,
	};
	const struct budget_limits own = {key->creates_max, key->redirects_max, key->period_ms};
	struct account_want want = want_of(BY_DIGEST, key->digest, KEY_DIGEST_BYTES);
	bool is_limited = own.creates_max || own.redirects_max || own.period_ms;
	struct budget *budget = is_limited ? budgets_of_key(a->budgets, key->id, &own) : NULL;
	if (budget || !is_limited)
		keep(a, &want, at, str_n((const char *)&kept, sizeof(kept)), 0, budget);
}

static void keep_read(struct accounts *a, const struct account_want *want, struct moment at,
                      const struct registry_account *read)
{
	if (read->result == ERR_NOT_FOUND) {
		keep_unknown(a, want, at);
	} else if (read->result != 0) {
		return;
	} else if (read->by == BY_USER) {
		keep_user(a, &read->user, at);
	} else if (read->by == BY_EMAIL) {
		keep(a, want, at, str_n((const char *)&read->user.id, sizeof(uint64_t)), 0, NULL);
	} else if (read->by == BY_DIGEST) {
		keep_key(a, &read->key, at);
	} else {
		const struct kept_credential kept = {
		    .user = read->session.user,
		    .generation = read->session.generation,
		    .rights = RIGHTS_ALL,
		    .expires_ms = read->session.expires_ms,
		};
		keep(a, want, at, str_n((const char *)&kept, sizeof(kept)), 0, NULL);
	}
}

/* --- reading from the store --- */

static int read_each(struct accounts *a, const struct account_want *const *wants, size_t n,
                     struct registry_account *reads, struct arena *arena)
{
	struct moment *moments = arena_alloc(arena, n * sizeof(*moments));
	if (!moments)
		return ERR_NOMEM;
	for (size_t i = 0; i < n; i++) {
		moments[i] = moment_now(a, wants[i]);
		reads[i] = (struct registry_account){.by = wants[i]->by,
		                                     .text = str_n(wants[i]->text, wants[i]->len)};
		if (wants[i]->by == BY_USER)
			memcpy(&reads[i].id, wants[i]->text, sizeof(reads[i].id));
	}
	int r = registry_accounts(a->store->registry, reads, n, arena);
	for (size_t i = 0; r == 0 && i < n; i++) {
		keep_read(a, wants[i], moments[i], &reads[i]);
		if (reads[i].result < 0 && reads[i].result != ERR_NOT_FOUND)
			r = reads[i].result;
	}
	return r;
}

static uint64_t user_behind(const struct registry_account *read)
{
	switch (read->result == 0 ? read->by : BY_USER) {
	case BY_EMAIL: return read->user.id;
	case BY_DIGEST: return read->key.user;
	case BY_SESSION: return read->session.user;
	default: return 0;
	}
}

/* Users are read after what leads to them: a change that comes in between is then seen. */
int accounts_read(struct accounts *a, const struct account_want *const *wants, size_t n)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct registry_account *reads = arena_alloc(&arena, n * sizeof(*reads));
	struct account_want *users = arena_alloc(&arena, n * sizeof(*users));
	const struct account_want **of_users = arena_alloc(&arena, n * sizeof(void *));
	size_t count = 0;
	if (!reads || !users || !of_users)
		return ERR_NOMEM;
	int r = read_each(a, wants, n, reads, &arena);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (user_behind(&reads[i]) == 0)
			continue;
		users[count] = want_user(user_behind(&reads[i]));
		of_users[count] = &users[count];
		count++;
	}
	return r == 0 && count > 0 ? read_each(a, of_users, count, reads, &arena) : r;
}

int accounts_users(struct accounts *a, const uint64_t *ids, size_t n, struct arena *arena,
                   struct user_record *ret)
{
	struct registry_account *reads = arena_alloc(arena, USERS_AT_ONCE * sizeof(*reads));
	if (!reads)
		return ERR_NOMEM;
	for (size_t from = 0; from < n; from += USERS_AT_ONCE) {
		size_t count = MIN(n - from, (size_t)USERS_AT_ONCE);
		for (size_t i = 0; i < count; i++)
			reads[i] = (struct registry_account){.by = BY_USER, .id = ids[from + i]};
		int r = registry_accounts(a->store->registry, reads, count, arena);
		if (r < 0)
			return r;
		for (size_t i = 0; i < count; i++)
			ret[from + i] = reads[i].result == 0 ? reads[i].user : (struct user_record){0};
	}
	return 0;
}

/* --- changes --- */

/* Nothing that was read before counts any more; the new entry, if there is one, is `keep`'s. */
static struct moment forget(struct accounts *a, const struct account_want *want)
{
	cache_invalidate(a->cache, name_of(want));
	return moment_now(a, want);
}

static void forget_email(struct accounts *a, struct str email)
{
	if (!email.ptr || email.len > USER_EMAIL_BYTES_MAX)
		return;
	struct account_want want = want_of(BY_EMAIL, email.ptr, email.len);
	forget(a, &want);
}

void accounts_changed(struct accounts *a, const struct registry_write *w)
{
	bool is_sure = w->result == 0;
	struct account_want key = want_of(BY_DIGEST, w->key.digest, KEY_DIGEST_BYTES);
	struct account_want session = want_of(BY_SESSION, w->session.id, SESSION_ID_BYTES);
	struct account_want user = want_user(w->user.id);
	struct moment at;
	if (!is_sure && w->result != ERR_UNCERTAIN)
		return;
	switch (w->kind) {
	case REGISTRY_USER_CREATE:
	case REGISTRY_USER_UPDATE:
		forget_email(a, w->user.email);
		at = forget(a, &user);
		if (is_sure)
			keep_user(a, &w->user, at);
		return;
	case REGISTRY_KEY_CREATE:
		forget(a, &key);
		forget(a, &user);
		return;
	case REGISTRY_KEY_REVOKE:
		if (!is_sure) { /* then it is not known which one it is */
			atomic_fetch_add(&a->life, 1);
			return;
		}
		at = forget(a, &key);
		keep_key(a, &w->key, at);
		return;
	case REGISTRY_SESSION_CREATE: /* who signs in anew shall meet no old news of themselves */
		user = want_user(w->session.user);
		forget(a, &user);
		return;
	case REGISTRY_SESSION_END:
		at = forget(a, &session);
		if (is_sure)
			keep_unknown(a, &session, at);
		return;
	default: return;
	}
}

/* What another process has changed does not count any more. */
static void entry_follow(struct accounts *a, const struct feed_entry *e)
{
	struct account_want want;
	switch (e->kind) {
	case FEED_USER:
		want = want_user(e->id);
		/* Who had which address is not told in a form that is quick to read, and changes rarely. */
		if (memmem(e->changes.ptr, e->changes.len, "\"email\"", 7))
			atomic_fetch_add(&a->life, 1);
		break;
	case FEED_KEY:
		want = want_of(BY_DIGEST, e->name.ptr, MIN(e->name.len, (size_t)KEY_DIGEST_BYTES));
		break;
	case FEED_SESSION:
		want = want_of(BY_SESSION, e->name.ptr, MIN(e->name.len, (size_t)SESSION_ID_BYTES));
		break;
	default: return;
	}
	forget(a, &want);
}

static int page_follow(struct accounts *a, bool *ret_more)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct feed_page page = {
	    .cursor = a->cursor, .from_end = !a->has_cursor, .max = FEED_TRANSACTIONS, .arena = &arena};
	int r = registry_feed(a->store->registry, &page);
	if (r != 0)
		return r;
	if (page.lost || !a->has_cursor)
		atomic_fetch_add(&a->life, 1);
	for (size_t i = 0; i < page.count; i++)
		entry_follow(a, &page.entries[i]);
	a->cursor = page.cursor;
	a->has_cursor = true;
	*ret_more = page.more;
	return 0;
}

int accounts_follow(struct accounts *a)
{
	if (!a->store->is_shared)
		return 0;
	pthread_mutex_lock(&a->follow_lock);
	int64_t asked_ms = clock_mono_ms();
	bool more = true;
	int r = 0;
	while (r == 0 && more)
		r = page_follow(a, &more);
	if (r == 0)
		atomic_store(&a->good_until_ms, asked_ms + (int64_t)a->stale_ms);
	pthread_mutex_unlock(&a->follow_lock);
	return r;
}

static int64_t watch(struct task *t)
{
	struct accounts *a = container_of(t, struct accounts, watcher);
	int r = accounts_follow(a);
	if (r < 0 && !a->is_failing)
		log_warn("api",
		         "the store does not say whether accounts have changed (%s); what is known of them "
		         "stays in force for accounts.stale_time",
		         err_name(r));
	if (r == 0 && a->is_failing)
		log_info("api", "the store says again whether accounts have changed");
	a->is_failing = r < 0;
	return WATCH_MS;
}

int accounts_watch(struct accounts *a, struct err *e)
{
	const struct task_config config = {.name = "watcher", .run = watch, .first_ms = WATCH_MS};
	return task_start(&a->watcher, &config, e);
}

void accounts_wake(struct accounts *a)
{
	task_wake(&a->watcher);
}

void accounts_unwatch(struct accounts *a)
{
	task_stop(&a->watcher);
}

/* --- finding --- */

/* The entry's bytes; UNREAD when there is none that counts, NONE when it says that there is no such account.
 */
static enum account_found entry_find(struct accounts *a, const struct account_want *want, int64_t mono_ms,
                                     const struct cache_entry **ret)
{
	const struct cache_entry *e = cache_find(a->cache, name_of(want));
	if (!e || e->link != atomic_load_explicit(&a->life, memory_order_acquire))
		return ACCOUNT_UNREAD;
	if (e->response_len == 0)
		return e->expires_ms > mono_ms ? ACCOUNT_NONE : ACCOUNT_UNREAD;
	*ret = e;
	return ACCOUNT_FOUND;
}

bool accounts_is_unknown(struct accounts *a, const struct account_want *want, int64_t mono_ms)
{
	const struct cache_entry *e;
	return entry_find(a, want, mono_ms, &e) == ACCOUNT_NONE;
}

static bool is_over(int64_t expires_ms, int64_t now_ms)
{
	return expires_ms != 0 && expires_ms <= now_ms;
}

static bool is_stale(const struct accounts *a, struct account_time now)
{
	return now.mono_ms > atomic_load_explicit(&a->good_until_ms, memory_order_relaxed);
}

enum account_found accounts_user(struct accounts *a, uint64_t id, struct account_time now,
                                 struct account *ret, struct account_want *ret_want)
{
	const struct cache_entry *e;
	struct kept_user kept;
	if (is_stale(a, now))
		return ACCOUNT_STALE;
	*ret_want = want_user(id);
	enum account_found found = id ? entry_find(a, ret_want, now.mono_ms, &e) : ACCOUNT_NONE;
	if (found != ACCOUNT_FOUND)
		return found;
	const char *bytes = cache_entry_response(e);
	memcpy(&kept, bytes, sizeof(kept));
	bool has_email = kept.email_len != UINT32_MAX;
	size_t email_len = has_email ? kept.email_len : 0;
	bytes += sizeof(kept);
	*ret = (struct account){
	    .id = kept.id,
	    .email = has_email ? str_n(bytes, email_len) : STR_NULL,
	    .name = str_n(bytes + email_len, e->response_len - sizeof(kept) - email_len),
	    .role = kept.role,
	    .enabled = kept.enabled,
	    .generation = kept.generation,
	    .budget = e->budget,
	};
	return ACCOUNT_FOUND;
}

enum account_found accounts_user_named(struct accounts *a, struct str text, struct account_time now,
                                       struct account *ret, struct account_want *ret_want)
{
	char folded[USER_EMAIL_BYTES_MAX];
	const struct cache_entry *e;
	uint64_t id;
	if (str_u64(text, &id))
		return accounts_user(a, id, now, ret, ret_want);
	if (text.len == 0 || text.len > sizeof(folded))
		return ACCOUNT_NONE;
	if (is_stale(a, now))
		return ACCOUNT_STALE;
	struct str email = str_lower(text, folded);
	struct account_want by_email = want_of(BY_EMAIL, email.ptr, email.len);
	enum account_found found = entry_find(a, &by_email, now.mono_ms, &e);
	if (found == ACCOUNT_FOUND) {
		memcpy(&id, cache_entry_response(e), sizeof(id));
		found = accounts_user(a, id, now, ret, ret_want);
		if (found != ACCOUNT_FOUND || str_eq(ret->email, email))
			return found;
		found = ACCOUNT_UNREAD; /* they have another address by now */
	}
	*ret_want = by_email;
	return found;
}

/*
 * Who the key of c->digest or the session of c->session stands for now. A generation later than the one known
 * here is as good: the MAC says that one of us made the session, so another process has changed the user
 * since.
 */
static enum account_found credential_find(struct accounts *a, struct account_time now, struct caller *c,
                                          struct account_want *ret_want)
{
	const struct cache_entry *e;
	struct kept_credential kept;
	struct account user;
	if (is_over(c->expires_ms, now.real_ms))
		return ACCOUNT_NONE;
	if (is_stale(a, now))
		return ACCOUNT_STALE;
	*ret_want = c->by_session ? want_of(BY_SESSION, c->session, SESSION_ID_BYTES)
	                          : want_of(BY_DIGEST, c->digest, KEY_DIGEST_BYTES);
	enum account_found found = entry_find(a, ret_want, now.mono_ms, &e);
	if (found != ACCOUNT_FOUND)
		return found;
	memcpy(&kept, cache_entry_response(e), sizeof(kept));
	if (kept.is_revoked || is_over(kept.expires_ms, now.real_ms))
		return ACCOUNT_NONE;
	found = accounts_user(a, kept.user, now, &user, ret_want);
	if (found != ACCOUNT_FOUND)
		return found;
	if (!user.enabled || (c->by_session && (kept.user != c->user || kept.generation < user.generation)))
		return ACCOUNT_NONE;
	c->user = user.id;
	c->key = kept.key;
	c->rights = role_rights(user.role) & kept.rights;
	c->limit_key = e->budget ? kept.key : 0;
	c->budget = e->budget ? e->budget : user.budget;
	c->expires_ms = kept.expires_ms;
	return ACCOUNT_FOUND;
}

enum account_found accounts_find_key(struct accounts *a, struct str presented, struct account_time now,
                                     struct caller *ret, struct account_want *ret_want)
{
	struct caller c = {0};
	api_key_digest(presented, c.digest);
	if (a->has_local && sodium_memcmp(a->local_digest, c.digest, sizeof(c.digest)) == 0) {
		*ret = (struct caller){.rights = RIGHTS_ALL, .budget = budgets_of_user(a->budgets, 0)};
		return ACCOUNT_FOUND;
	}
	enum account_found found = credential_find(a, now, &c, ret_want);
	if (found == ACCOUNT_FOUND) {
		key_uses_note(&a->uses, c.key, now.real_ms);
		*ret = c;
	}
	return found;
}

enum account_found accounts_find_session(struct accounts *a, struct str token, struct account_time now,
                                         struct caller *ret, struct account_want *ret_want)
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
	enum account_found found = credential_find(a, now, &c, ret_want);
	if (found == ACCOUNT_FOUND)
		*ret = c;
	return found;
}

static bool is_local(const struct accounts *a, const struct caller *c)
{
	return a->has_local && c->user == 0 && c->rights == RIGHTS_ALL;
}

enum account_found accounts_in_force(struct accounts *a, const struct caller *c, struct account_time now,
                                     struct account_want *ret_want)
{
	struct caller as_now = *c;
	enum account_found found = ACCOUNT_FOUND;
	if (c->by_session || c->key != 0)
		found = credential_find(a, now, &as_now, ret_want);
	else if (!is_local(a, c))
		found = ACCOUNT_NONE;
	return found == ACCOUNT_FOUND && (c->rights & ~as_now.rights) ? ACCOUNT_NONE : found;
}

int accounts_check(struct accounts *a, const struct caller *c, int64_t now_ms, bool *ret)
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
	bool holds = user->enabled;
	if (c->by_session) {
		const struct session_record *session = &reads[1].session;
		holds &= session->generation >= user->generation && session->expires_ms > now_ms;
	} else {
		const struct key_record *key = &reads[1].key;
		holds &= !key->revoked_ms && !is_over(key->expires_ms, now_ms);
		rights &= key->rights;
	}
	*ret = holds && (c->rights & ~rights) == 0;
	return 0;
}

/* --- uses --- */

int64_t accounts_key_used_ms(const struct accounts *a, uint64_t key)
{
	return key_uses_last(&a->uses, key);
}

size_t accounts_uses(struct accounts *a, size_t *at, struct registry_write *writes, size_t max)
{
	return key_uses_take(&a->uses, at, writes, max);
}

/* --- tokens --- */

void session_text(const struct accounts *a, const struct session_record *session,
                  char text[SESSION_TEXT_BYTES])
{
	struct session_token t = {
	    .user = session->user, .generation = session->generation, .expires_ms = session->expires_ms};
	memcpy(t.id, session->id, sizeof(t.id));
	session_token_write(a->secret, &t, text);
}

void session_csrf(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES],
                  char text[CSRF_TEXT_BYTES])
{
	session_token_csrf(a->secret, session, text);
}

bool session_csrf_is(const struct accounts *a, const uint8_t session[SESSION_ID_BYTES], struct str presented)
{
	char wanted[CSRF_TEXT_BYTES];
	session_csrf(a, session, wanted);
	return presented.len == strlen(wanted) && sodium_memcmp(wanted, presented.ptr, presented.len) == 0;
}
