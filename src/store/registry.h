/*
 * The role `registry`: users, API keys, sessions, counters and constants. There is one for all links, however
 * many databases those are spread over. It belongs to a store (store.h), which opens it and ends it. Calls
 * block, as the store's do.
 */
#pragma once

#include "base/arena.h"
#include "store/fault.h"
#include "store/feed.h"
#include "store/record.h"

enum registry_write_kind {
	REGISTRY_USER_CREATE,
	REGISTRY_USER_UPDATE,
	REGISTRY_SESSION_CREATE,
	REGISTRY_SESSION_END,
	REGISTRY_KEY_CREATE,
	REGISTRY_KEY_REVOKE,
	REGISTRY_KEY_USED,
	REGISTRY_KEY_PURGE,
};

struct registry_write {
	enum registry_write_kind kind;
	int64_t now_ms;
	uint64_t actor;      /* the user who does it, for the feed; 0: the machine's own */
	struct arena *arena; /* where the strings of what comes back go */
	int result;          /* out: 0 or this change's own error; its effects are then absent */

	/*
	 * Users. CREATE: all but id and generation, which come back; ERR_CONFLICT when the email address is
	 * taken. UPDATE: by user.id (ERR_NOT_FOUND), sets what user_fields says and updated_ms, and comes
	 * back whole; ERR_CONFLICT when the email address is taken; ERR_BUSY when it would shut out the last
	 * admin who can get in: enabled, with an email address and a password, or with an API key in force
	 * at now_ms that has RIGHT_ADMIN. A change that shuts no such admin out is never refused so. A change
	 * of password, and enabled = false, raise the generation, as USER_SESSIONS does: all sessions made
	 * before have ended. With session.user the update makes that session too, under the user's new
	 * generation.
	 */
	struct user_record user;
	unsigned user_fields;

	/* CREATE: all of it. END: by its id; it may have ended before. Those whose time is over are
	 * forgotten by later CREATEs, some by each. */
	struct session_record session;

	/*
	 * API keys. CREATE: all but id, which comes back; ERR_CONFLICT when the digest is there already;
	 * ERR_INVALID when key.user is nobody; ERR_LIMIT when that user has an email address and
	 * ACCOUNT_KEYS_MAX keys in force at now_ms. With key.user == 0 the key gets a user of its own, made
	 * from `user` as by USER_CREATE in the same step. REVOKE: by key.id, and by key.user unless that is 0
	 * (otherwise ERR_NOT_FOUND); sets revoked_ms to now_ms (the first time's stays); comes back whole;
	 * ERR_CONFLICT when it is the last admin's key in force at now_ms (not revoked, not expired,
	 * RIGHT_ADMIN, of an enabled admin). USED: sets used_ms of key.id unless it is later already;
	 * ERR_NOT_FOUND. PURGE: removes keys that were revoked, or expired, at purge.until_ms or before, and
	 * at most purge.max of either; no id is ever used again.
	 */
	struct key_record key;
	struct purge purge;
};

/* By id, from the smallest. */
struct registry_users {
	uint64_t after; /* ids above this */
	size_t limit;
	struct arena *arena;
	struct user_record *users; /* out */
	size_t count;
	bool more; /* out: there are further ones */
};

/* Likewise; revoked and expired ones too. */
struct registry_keys {
	uint64_t user; /* whose; 0: everybody's */
	uint64_t after;
	size_t limit;
	struct arena *arena;
	struct key_record *keys; /* out */
	size_t count;
	bool more;
};

enum registry_by { BY_USER, BY_EMAIL, BY_KEY, BY_DIGEST, BY_SESSION };

/* One account, found by an index. */
struct registry_account {
	enum registry_by by; /* in */
	uint64_t id;         /* in: of the user or the API key */
	struct str text;     /* in: the email address in lower case, the digest, or the session's id */
	int result;          /* out: 0, ERR_NOT_FOUND, ERR_CORRUPT or ERR_NOMEM */
	union {
		struct user_record user;
		struct key_record key;
		struct session_record session; /* without address and agent */
	};
};

struct registry {
	const struct registry_ops *ops;
	struct store_fault *fault; /* its store's */
};

struct registry_ops {
	/* Does n changes in order as one transaction, durable when it returns 0. ERR_UNAVAILABLE: none of
	 * them happened, may be retried. ERR_UNCERTAIN: all or none of them happened. */
	int (*apply)(struct registry *, struct registry_write *writes, size_t n);

	/* A page of all users, and of API keys. ERR_INVALID: no limit. Safe to retry. */
	int (*users)(struct registry *, struct registry_users *page);
	int (*keys)(struct registry *, struct registry_keys *page);

	/* Reads n accounts in one go: 0, or an error that holds for all of them. Safe to retry. */
	int (*accounts)(struct registry *, struct registry_account *reads, size_t n, struct arena *arena);

	/* Takes the next `count` numbers of a counter that starts at 1, durably: no process will ever be
	 * given them again. On failure numbers may be lost, never given twice. */
	int (*lease)(struct registry *, struct str counter, uint64_t count, uint64_t *ret_first);

	/* What the counter will give next. Safe to retry. */
	int (*counter)(struct registry *, struct str counter, uint64_t *ret_next);

	/* Names a value once and for all: stores `value` when there is none of that name, and overwrites
	 * `value` with what is stored. ERR_CORRUPT when the stored one has another length. */
	int (*constant)(struct registry *, struct str name, void *value, size_t len);

	/* Forgets constants: all with from <= name < before, by bytes. Safe to retry. */
	int (*forget)(struct registry *, struct str from, struct str before);

	/* What has changed since `page->cursor`: users, API keys and sessions. Safe to retry. */
	int (*feed)(struct registry *, struct feed_page *page);

	/* Removes what is older from the feed, some of it at a time: *ret says how many rows went. */
	int (*feed_prune)(struct registry *, int64_t until_ms, size_t *ret);
};

/* --- calls --- */

int registry_fault_apply(struct registry *r, struct registry_write *writes, size_t n);

static inline int registry_apply(struct registry *r, struct registry_write *writes, size_t n)
{
	return UNLIKELY(r->fault != NULL) ? registry_fault_apply(r, writes, n) : r->ops->apply(r, writes, n);
}
static inline int registry_users(struct registry *r, struct registry_users *page)
{
	return STORE_CALL(r, STORE_OP_USERS, r->ops->users(r, page));
}
static inline int registry_keys(struct registry *r, struct registry_keys *page)
{
	return STORE_CALL(r, STORE_OP_KEYS, r->ops->keys(r, page));
}
static inline int registry_accounts(struct registry *r, struct registry_account *reads, size_t n,
                                    struct arena *arena)
{
	return STORE_CALL(r, STORE_OP_ACCOUNTS, r->ops->accounts(r, reads, n, arena));
}
/* The user of that email address (in lower case), or of that id when it is STR_NULL: 0, ERR_NOT_FOUND or a
 * failure. */
static inline int registry_user(struct registry *r, uint64_t id, struct str email, struct arena *arena,
                                struct user_record *ret)
{
	struct registry_account read = {.by = email.ptr ? BY_EMAIL : BY_USER, .id = id, .text = email};
	int result = registry_accounts(r, &read, 1, arena);
	if (result == 0)
		result = read.result;
	if (result == 0)
		*ret = read.user;
	return result;
}
static inline int registry_lease(struct registry *r, struct str counter, uint64_t count, uint64_t *ret_first)
{
	return STORE_CALL(r, STORE_OP_LEASE, r->ops->lease(r, counter, count, ret_first));
}
static inline int registry_counter(struct registry *r, struct str counter, uint64_t *ret_next)
{
	return STORE_CALL(r, STORE_OP_COUNTER, r->ops->counter(r, counter, ret_next));
}
static inline int registry_constant(struct registry *r, struct str name, void *value, size_t len)
{
	return STORE_CALL(r, STORE_OP_CONSTANT, r->ops->constant(r, name, value, len));
}
static inline int registry_forget(struct registry *r, struct str from, struct str before)
{
	return STORE_CALL(r, STORE_OP_CONSTANT, r->ops->forget(r, from, before));
}
static inline int registry_feed(struct registry *r, struct feed_page *page)
{
	return r->ops->feed(r, page);
}
static inline int registry_feed_prune(struct registry *r, int64_t until_ms, size_t *ret)
{
	return r->ops->feed_prune(r, until_ms, ret);
}
