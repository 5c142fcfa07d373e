/*
 * The registry interface: users, API keys, sessions, counters and constants. All links share one registry,
 * however many databases they are spread over. It belongs to a store (store.h), which opens and closes it.
 *
 * All calls block. They may come from any thread except an event loop.
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
	uint64_t actor;      /* user id for the feed; 0: this machine */
	struct arena *arena; /* owns the returned strings */
	int result;          /* out: 0 or the error of this change, which then has no effect */

	/*
	 * Users.
	 *
	 *   CREATE  Takes all but id and generation, which it returns. ERR_CONFLICT: the email address is
	 *           taken.
	 *   UPDATE  By user.id (ERR_NOT_FOUND). Sets the user_fields and updated_ms, returns the whole user.
	 *           ERR_CONFLICT: the email address is taken. ERR_BUSY: no admin could sign in any more.
	 *           (Sign-in needs an enabled admin with email address and password, or with an active
	 *           RIGHT_ADMIN key.) A change that locks out no admin is never refused.
	 *
	 * A new password, enabled = false and USER_END_SESSIONS raise the generation, which ends all
	 * sessions. With session.user the update also creates that session, under the new generation.
	 */
	struct user_record user;
	unsigned user_fields;

	/* CREATE takes all of it. END is by id; the session may have ended before. Each CREATE purges a few
	 * expired sessions. */
	struct session_record session;

	/*
	 * API keys. A key is active if it is neither revoked nor expired at now_ms.
	 *
	 *   CREATE  Takes all but id, which it returns. ERR_CONFLICT: the digest exists. ERR_INVALID:
	 *           key.user does not exist. ERR_LIMIT: that user has an email address and ACCOUNT_KEYS_MAX
	 *           active keys. key.user == 0: also creates the key's own user from `user`, as USER_CREATE
	 *           does.
	 *   REVOKE  By key.id, and by key.user unless that is 0 (ERR_NOT_FOUND). Sets revoked_ms to now_ms
	 *           unless it is set, returns the whole key. ERR_CONFLICT: it is the last active RIGHT_ADMIN
	 *           key of all enabled admins.
	 *   USED    Sets used_ms of key.id unless it is later already. ERR_NOT_FOUND.
	 *   PURGE   Removes keys that were revoked or expired at purge.until_ms or before, at most purge.max
	 *           of either. Ids are never reused.
	 */
	struct key_record key;
	struct purge purge;
};

/* A page of users or of API keys, in the order of ids. API keys include revoked and expired ones. */
struct registry_page {
	bool of_keys;
	uint64_t user;  /* API keys: owner; 0: all users */
	uint64_t after; /* only ids above this */
	size_t limit;
	struct arena *arena;
	union { /* out */
		void *rows;
		struct user_record *users;
		struct key_record *keys;
	};
	size_t count;
	bool more; /* out: another page follows */
};

enum registry_by { BY_USER, BY_EMAIL, BY_KEY, BY_DIGEST, BY_SESSION };

/* A lookup of one account by an index. */
struct registry_account {
	enum registry_by by; /* in */
	uint64_t id;         /* in: for BY_USER and BY_KEY */
	struct str text;     /* in: lower-case email address, digest, or session id */
	int result;          /* out: 0, ERR_NOT_FOUND, ERR_CORRUPT or ERR_NOMEM */
	union {
		struct user_record user;
		struct key_record key;
		struct session_record session; /* without address and agent */
	};
};

struct registry {
	const struct registry_ops *ops;
	struct store_fault *fault; /* owned by its store */
};

struct registry_ops {
	/* Applies n changes in order in one transaction, durable when it returns 0. ERR_UNAVAILABLE: none
	 * was applied, safe to retry. ERR_UNCERTAIN: all or none were applied. */
	int (*apply)(struct registry *, struct registry_write *writes, size_t n);

	/* Reads a page. ERR_INVALID: limit is 0. Safe to retry. */
	int (*page)(struct registry *, struct registry_page *page);

	/* Reads n accounts in one round trip: 0, or an error of all of them. Safe to retry. */
	int (*accounts)(struct registry *, struct registry_account *reads, size_t n, struct arena *arena);

	/* Takes the next `count` numbers of a counter that starts at 1, durably: no process gets them
	 * again. A failure may lose numbers, but never issues them twice. */
	int (*lease)(struct registry *, struct str counter, uint64_t count, uint64_t *ret_first);

	/* Reads the next number of a counter. Safe to retry. */
	int (*counter)(struct registry *, struct str counter, uint64_t *ret_next);

	/* Defines a constant: stores `value` if the name is new, otherwise replaces `value` by the stored
	 * one. ERR_CORRUPT: the stored value has another length. */
	int (*constant)(struct registry *, struct str name, void *value, size_t len);

	/* Deletes the constants with from <= name < before, in byte order. Safe to retry. */
	int (*forget)(struct registry *, struct str from, struct str before);

	/* Reads the account feed after page->cursor. Safe to retry. */
	int (*feed)(struct registry *, struct feed_page *page);

	/* Deletes some rows older than until_ms from the feed; *ret: how many. */
	int (*feed_prune)(struct registry *, int64_t until_ms, size_t *ret);
};

/* --- calls --- */

int registry_fault_apply(struct registry *r, struct registry_write *writes, size_t n);

static inline int registry_apply(struct registry *r, struct registry_write *writes, size_t n)
{
	return UNLIKELY(r->fault != NULL) ? registry_fault_apply(r, writes, n) : r->ops->apply(r, writes, n);
}
static inline int registry_users(struct registry *r, struct registry_page *page)
{
	page->of_keys = false;
	return STORE_CALL(r, STORE_OP_USERS, r->ops->page(r, page));
}
static inline int registry_keys(struct registry *r, struct registry_page *page)
{
	page->of_keys = true;
	return STORE_CALL(r, STORE_OP_KEYS, r->ops->page(r, page));
}
static inline int registry_accounts(struct registry *r, struct registry_account *reads, size_t n,
                                    struct arena *arena)
{
	return STORE_CALL(r, STORE_OP_ACCOUNTS, r->ops->accounts(r, reads, n, arena));
}
/* Reads the user with that lower-case email address or, if it is STR_NULL, that id. ERR_NOT_FOUND, or an
 * error of the store. */
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
