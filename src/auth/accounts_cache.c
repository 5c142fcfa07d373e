/*
 * Fills the cache of accounts from the store, and invalidates it after changes.
 *
 * A read may overlap a change. So each read takes a stamp first, and its result is cached only if the stamp
 * is still current: neither this entry was invalidated nor the whole cache flushed in between.
 */
#include "auth/accounts_private.h"
#include "obs/log.h"
#include "os/clock.h"

enum {
	WATCH_MS = 1000,
	FEED_TRANSACTIONS = 200, /* read at a time */
	UNKNOWN_MS = 10000,      /* how long an unknown account stays cached */
	USERS_BATCH_MAX = 256,
};

struct read_stamp {
	uint64_t flushes;
	uint32_t epoch;
};

static struct read_stamp stamp_now(struct accounts *a, const struct account_ref *ref)
{
	return (struct read_stamp){atomic_load(&a->flushes), cache_epoch(a->cache, account_cache_key(ref))};
}

uint64_t accounts_epoch(struct accounts *a, const struct account_ref *ref)
{
	return cache_epoch(a->cache, account_cache_key(ref)) ^ atomic_load(&a->flushes) << 32;
}

/* --- filling --- */

static void put(struct accounts *a, const struct account_ref *ref, struct read_stamp at, struct str value,
                int64_t expires_ms, struct budget *budget)
{
	const struct cache_fill fill = {.key = account_cache_key(ref),
	                                .response = value,
	                                .expires_ms = expires_ms,
	                                .link = at.flushes,
	                                .budget = budget};
	cache_insert(a->cache, &fill, at.epoch);
}

static void put_unknown(struct accounts *a, const struct account_ref *ref, struct read_stamp at)
{
	put(a, ref, at, STR_NULL, clock_mono_ms() + UNKNOWN_MS, NULL);
}

struct str account_full_name(struct arena *arena, const struct user_record *user)
{
	const struct str parts[] = {user->first_name, user->middle_name, user->last_name};
	struct buf CLEANUP(buf_release) name = {0};
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		if (name.len > 0 && parts[i].len > 0)
			buf_char(&name, ' ');
		buf_str(&name, parts[i]);
	}
	return name.failed || name.len == 0 ? STR_NULL : arena_str(arena, buf_view(&name));
}

struct str account_display_name(struct arena *arena, const struct user_record *user)
{
	if (user->email.ptr || user->id == 0)
		return arena_str(arena, user->id ? user->email : STR("local"));
	struct str name = account_full_name(arena, user);
	return name.ptr ? name : arena_printf(arena, "user %llu", (unsigned long long)user->id);
}

static void put_user(struct accounts *a, const struct user_record *user, struct read_stamp at)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct buf CLEANUP(buf_release) value = {0};
	const struct cached_user cached = {
	    .id = user->id,
	    .generation = user->generation,
	    .role = user->role,
	    .enabled = user->enabled,
	    .email_len = user->email.ptr ? (uint32_t)user->email.len : UINT32_MAX,
	};
	struct account_ref ref = account_ref_user(user->id);
	struct budget *budget = budgets_of_user(a->budgets, user->id);
	struct str name = account_display_name(&arena, user);
	buf_append(&value, &cached, sizeof(cached));
	buf_str(&value, user->email);
	buf_str(&value, name);
	if (!value.failed && name.ptr && budget)
		put(a, &ref, at, buf_view(&value), 0, budget);
}

static void put_key(struct accounts *a, const struct key_record *key, struct read_stamp at)
{
	const struct cached_credential cached = {
	    .user = key->user,
	    .key = key->id,
	    .rights = key->rights,
	    .is_revoked = key->revoked_ms != 0,
	    .expires_ms = key->expires_ms,
	};
	const struct budget_limits own = {key->creates_max, key->redirects_max, key->period_ms};
	struct account_ref ref = account_ref_of(BY_DIGEST, key->digest, KEY_DIGEST_BYTES);
	bool is_limited = own.creates_max || own.redirects_max || own.period_ms;
	struct budget *budget = is_limited ? budgets_of_key(a->budgets, key->id, &own) : NULL;
	if (budget || !is_limited)
		put(a, &ref, at, str_n((const char *)&cached, sizeof(cached)), 0, budget);
}

static void put_read(struct accounts *a, const struct account_ref *ref, struct read_stamp at,
                     const struct registry_account *read)
{
	if (read->result == ERR_NOT_FOUND) {
		put_unknown(a, ref, at);
	} else if (read->result != 0) {
		return;
	} else if (read->by == BY_USER) {
		put_user(a, &read->user, at);
	} else if (read->by == BY_EMAIL) {
		put(a, ref, at, str_n((const char *)&read->user.id, sizeof(uint64_t)), 0, NULL);
	} else if (read->by == BY_DIGEST) {
		put_key(a, &read->key, at);
	} else {
		const struct cached_credential cached = {
		    .user = read->session.user,
		    .generation = read->session.generation,
		    .rights = RIGHTS_ALL,
		    .expires_ms = read->session.expires_ms,
		};
		put(a, ref, at, str_n((const char *)&cached, sizeof(cached)), 0, NULL);
	}
}

static int read_each(struct accounts *a, const struct account_ref *const *refs, size_t n,
                     struct registry_account *reads, struct arena *arena)
{
	struct read_stamp *stamps = arena_alloc(arena, n * sizeof(*stamps));
	if (!stamps)
		return ERR_NOMEM;
	for (size_t i = 0; i < n; i++) {
		stamps[i] = stamp_now(a, refs[i]);
		reads[i] = (struct registry_account){.by = refs[i]->by,
		                                     .text = str_n(refs[i]->text, refs[i]->len)};
		if (refs[i]->by == BY_USER)
			memcpy(&reads[i].id, refs[i]->text, sizeof(reads[i].id));
	}
	int r = registry_accounts(a->store->registry, reads, n, arena);
	for (size_t i = 0; r == 0 && i < n; i++) {
		put_read(a, refs[i], stamps[i], &reads[i]);
		if (reads[i].result < 0 && reads[i].result != ERR_NOT_FOUND)
			r = reads[i].result;
	}
	return r;
}

/* The user that an email address, a key or a session belongs to; 0: none. */
static uint64_t user_behind(const struct registry_account *read)
{
	switch (read->result == 0 ? read->by : BY_USER) {
	case BY_EMAIL: return read->user.id;
	case BY_DIGEST: return read->key.user;
	case BY_SESSION: return read->session.user;
	default: return 0;
	}
}

/* Users are read after their keys and sessions, so a change in between is seen. */
int accounts_read(struct accounts *a, const struct account_ref *const *refs, size_t n)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct registry_account *reads = arena_alloc(&arena, n * sizeof(*reads));
	struct account_ref *users = arena_alloc(&arena, n * sizeof(*users));
	const struct account_ref **user_refs = arena_alloc(&arena, n * sizeof(void *));
	size_t count = 0;
	if (!reads || !users || !user_refs)
		return ERR_NOMEM;
	int r = read_each(a, refs, n, reads, &arena);
	for (size_t i = 0; r == 0 && i < n; i++) {
		uint64_t user = user_behind(&reads[i]);
		if (user == 0)
			continue;
		users[count] = account_ref_user(user);
		user_refs[count] = &users[count];
		count++;
	}
	return r == 0 && count > 0 ? read_each(a, user_refs, count, reads, &arena) : r;
}

int accounts_read_users(struct accounts *a, const uint64_t *ids, size_t n, struct arena *arena,
                        struct user_record *ret)
{
	struct registry_account *reads = arena_alloc(arena, USERS_BATCH_MAX * sizeof(*reads));
	if (!reads)
		return ERR_NOMEM;
	for (size_t from = 0; from < n; from += USERS_BATCH_MAX) {
		size_t count = MIN(n - from, (size_t)USERS_BATCH_MAX);
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

/* --- invalidating --- */

static void flush(struct accounts *a)
{
	atomic_fetch_add(&a->flushes, 1);
}

/* Earlier reads are not cached any more; the stamp is for the new value. */
static struct read_stamp invalidate(struct accounts *a, const struct account_ref *ref)
{
	cache_invalidate(a->cache, account_cache_key(ref));
	return stamp_now(a, ref);
}

void accounts_update_cache(struct accounts *a, const struct registry_write *w)
{
	bool is_certain = w->result == 0;
	struct account_ref key = account_ref_of(BY_DIGEST, w->key.digest, KEY_DIGEST_BYTES);
	struct account_ref session = account_ref_of(BY_SESSION, w->session.id, SESSION_ID_BYTES);
	struct account_ref user = account_ref_user(w->user.id);
	struct str email = w->user.email;
	struct read_stamp at;
	if (!is_certain && w->result != ERR_UNCERTAIN)
		return;
	switch (w->kind) {
	case REGISTRY_USER_CREATE:
	case REGISTRY_USER_UPDATE:
		if (email.ptr && email.len <= USER_EMAIL_BYTES_MAX) {
			struct account_ref by_email = account_ref_of(BY_EMAIL, email.ptr, email.len);
			invalidate(a, &by_email);
		}
		at = invalidate(a, &user);
		if (is_certain)
			put_user(a, &w->user, at);
		return;
	case REGISTRY_KEY_CREATE:
		invalidate(a, &key);
		invalidate(a, &user);
		return;
	case REGISTRY_KEY_REVOKE:
		if (!is_certain) { /* then the digest is not known */
			flush(a);
			return;
		}
		at = invalidate(a, &key);
		put_key(a, &w->key, at);
		return;
	case REGISTRY_SESSION_CREATE: /* a user who signs in again must not meet their old entry */
		user = account_ref_user(w->session.user);
		invalidate(a, &user);
		return;
	case REGISTRY_SESSION_END:
		at = invalidate(a, &session);
		if (is_certain)
			put_unknown(a, &session, at);
		return;
	default: return;
	}
}

/* --- the change feed --- */

static void feed_entry_apply(struct accounts *a, const struct feed_entry *e)
{
	struct account_ref ref;
	switch (e->kind) {
	case FEED_USER:
		ref = account_ref_user(e->id);
		/* The feed does not give the old address in a form that is fast to read, and addresses
		 * change rarely. */
		if (memmem(e->changes.ptr, e->changes.len, "\"email\"", 7))
			flush(a);
		break;
	case FEED_KEY:
		ref = account_ref_of(BY_DIGEST, e->name.ptr, MIN(e->name.len, (size_t)KEY_DIGEST_BYTES));
		break;
	case FEED_SESSION:
		ref = account_ref_of(BY_SESSION, e->name.ptr, MIN(e->name.len, (size_t)SESSION_ID_BYTES));
		break;
	default: return;
	}
	invalidate(a, &ref);
}

static int feed_page_apply_locked(struct accounts *a, bool *ret_more)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct feed_page page = {
	    .cursor = a->cursor, .from_end = !a->has_cursor, .max = FEED_TRANSACTIONS, .arena = &arena};
	int r = registry_feed(a->store->registry, &page);
	if (r != 0)
		return r;
	if (page.lost || !a->has_cursor)
		flush(a);
	for (size_t i = 0; i < page.count; i++)
		feed_entry_apply(a, &page.entries[i]);
	a->cursor = page.cursor;
	a->has_cursor = true;
	*ret_more = page.more;
	return 0;
}

int accounts_poll_feed(struct accounts *a)
{
	if (!a->store->is_shared)
		return 0;
	pthread_mutex_lock(&a->feed_lock);
	int64_t began_ms = clock_mono_ms();
	bool more = true;
	int r = 0;
	while (r == 0 && more)
		r = feed_page_apply_locked(a, &more);
	if (r == 0)
		atomic_store(&a->fresh_until_ms, began_ms + (int64_t)a->stale_ms);
	pthread_mutex_unlock(&a->feed_lock);
	return r;
}

static int64_t watch(struct task *t)
{
	struct accounts *a = container_of(t, struct accounts, watcher);
	int r = accounts_poll_feed(a);
	if (r < 0 && !a->is_failing)
		log_warn("api",
		         "cannot read changes of accounts from the store; cached accounts stay valid for "
		         "accounts.stale_time error=%s",
		         err_name(r));
	if (r == 0 && a->is_failing)
		log_info("api", "reading changes of accounts from the store again");
	a->is_failing = r < 0;
	return WATCH_MS;
}

int accounts_watch_start(struct accounts *a, struct err *e)
{
	const struct task_config config = {.name = "watcher", .run = watch, .first_ms = WATCH_MS};
	return task_start(&a->watcher, &config, e);
}

void accounts_watch_wake(struct accounts *a)
{
	task_wake(&a->watcher);
}

void accounts_watch_stop(struct accounts *a)
{
	task_stop(&a->watcher);
}
