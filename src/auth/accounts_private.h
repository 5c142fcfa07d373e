/* What accounts.c (lookups) and accounts_cache.c (filling and invalidating the cache) share. */
#pragma once

#include "auth/accounts.h"
#include "auth/key_uses.h"
#include "link/cache.h"
#include "os/task.h"

#include <pthread.h>

struct accounts {
	struct store *store;
	struct budgets *budgets;
	struct cache *cache;
	uint64_t stale_ms;
	_Atomic uint64_t flushes;       /* entries from before the last flush are ignored */
	_Atomic int64_t fresh_until_ms; /* monotonic; after that the whole cache is stale */
	pthread_mutex_t feed_lock;      /* guards the next two */
	struct feed_cursor cursor;      /* in the change feed of accounts */
	bool has_cursor;
	struct key_uses uses;
	uint8_t secret[SESSION_SECRET_BYTES];
	uint8_t local_digest[KEY_DIGEST_BYTES]; /* set before the workers start */
	bool has_local;
	struct task watcher;
	bool is_failing; /* the watcher's own: the last poll of the feed failed */
};

/*
 * The value of a cache entry is stored as its response; an empty value says that there is no such account.
 * The entry's `link` is the flush count at the time of the read. The value of an email address is a user's
 * id; the user's own entry says whether the address is still theirs.
 */
struct cached_user {
	uint64_t id, generation;
	enum user_role role;
	bool enabled;
	uint32_t email_len; /* UINT32_MAX: none. The address follows, then the display name */
};

/* An API key, or a session, which has all rights of its user. */
struct cached_credential {
	uint64_t user, key; /* key 0: a session */
	uint64_t generation;
	unsigned rights;
	bool is_revoked;
	int64_t expires_ms;
};

static inline struct account_ref account_ref_of(enum registry_by by, const void *text, size_t len)
{
	struct account_ref ref = {.by = (uint8_t)by, .len = (uint8_t)len};
	ASSERT(len <= sizeof(ref.text));
	memcpy(ref.text, text, len);
	return ref;
}

static inline struct account_ref account_ref_user(uint64_t id)
{
	return account_ref_of(BY_USER, &id, sizeof(id));
}

static inline struct str account_cache_key(const struct account_ref *ref)
{
	_Static_assert(offsetof(struct account_ref, text) == offsetof(struct account_ref, by) + 1,
	               "the key is contiguous");
	return str_n((const char *)ref + offsetof(struct account_ref, by), 1 + (size_t)ref->len);
}
