/*
 * The role `store`: links, who may follow them, users and API keys. Backends are opened by the composition
 * root; everybody else holds a `struct store *`. All calls block and may come from any thread that is not an
 * event loop; a backend orders them itself.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "store/feed.h"
#include "store/record.h"

/* What has died goes in small portions: at most `max` rows of those that stood at `until_ms` or before. */
struct purge {
	int64_t until_ms;
	int64_t max; /* 0: nothing is to go */
};

struct store_lookup {
	struct link_ref ref;     /* in */
	uint64_t user;           /* in: somebody; 0: nobody */
	bool fresh;              /* in: it may just have changed: ask nobody who may lag behind */
	struct arena *arena;     /* in: where the record's strings go */
	int result;              /* out: 0, ERR_NOT_FOUND, ERR_CORRUPT, ERR_NOMEM or its database's error */
	struct link_record link; /* out, when result is 0 */
	bool permitted;          /* out, when the link is private: is `user` on its list? */
	bool old; /* in: false; out: a replica said so, and nobody knows how far behind it is */
};

enum store_write_kind {
	STORE_LINK_CREATE,
	STORE_LINK_UPDATE,
	STORE_LINK_DELETE,
	STORE_LINK_REAP, /* delete if link_is_over; otherwise ERR_CONFLICT */
	STORE_PERMIT,
	STORE_FORBID,
	STORE_USER_CREATE,
	STORE_USER_UPDATE,
	STORE_SESSION_CREATE,
	STORE_SESSION_END,
	STORE_KEY_CREATE,
	STORE_KEY_REVOKE,
	STORE_KEY_USED,
	STORE_KEY_PURGE,
};

static inline bool store_write_is_link(enum store_write_kind kind)
{
	return kind <= STORE_FORBID;
}

struct store_write {
	enum store_write_kind kind;
	int64_t now_ms;
	uint64_t actor;      /* the user who does it, for the feed; 0: the machine's own */
	struct arena *arena; /* where the strings of what comes back go */
	int result;          /* out: 0 or this change's own error; its effects are then absent */

	/*
	 * Links. CREATE: `link` as it shall be, with no clicks yet; `ref` names it (ref.key == link.key; for
	 * a generated key ref.id == link.id; for an alias ref.id is what the name would decode to, or 0). It
	 * is ERR_CONFLICT when the name is taken in either way: an alias of that name, or a generated link
	 * whose id is ref.id, or a row whose id is link.id (a store of several databases looks in one of
	 * them: ids come from one counter). An alias that is over (link_is_over) does not hold its name any
	 * more: its link is removed, as by REAP.
	 *
	 * A generated key is never given out twice, not as an alias either, whoever asks: one whose link is
	 * over stays taken, and so does one whose link is gone. Gone is every ref.id that has no row and that
	 * the counter STORE_LINK_COUNTER has passed; whether it was ever used is not asked. A store that
	 * gives keys back (claim) also remembers those whose links went, however they were made.
	 *
	 * The alias of a link that went by REAP rests for rest_ms from the moment it was over: until then
	 * only the same owner may take it again (for others it is ERR_CONFLICT), so that nobody inherits
	 * another's visitors. DELETE frees an alias at once. Names that have rested are forgotten by later
	 * REAPs, some by each.
	 *
	 * UPDATE, DELETE, REAP, PERMIT, FORBID: `ref` says which, `owner` (unless 0) must be the record's
	 * owner, otherwise ERR_NOT_FOUND. UPDATE sets the fields whose bit is in `fields` from `link`, and
	 * updated_ms to now_ms; `link` comes back as stored. DELETE and REAP give back the record that was
	 * removed; its list goes with it.
	 *
	 * PERMIT puts the user user.id on the link's list, FORBID takes it off; both are content when it was
	 * so before, and `link` comes back. PERMIT is ERR_INVALID when there is no such user, ERR_LIMIT
	 * beyond PERMITTED_MAX.
	 */
	struct link_ref ref;
	uint64_t owner;
	unsigned fields;
	struct link_record link;
	uint64_t rest_ms; /* CREATE, REAP */

	/* CREATE: the name is a generated key that was given out before and came back (store_claim). Only
	 * whether somebody has it now is asked. Its link is kept as if the name were an alias, under an id of
	 * its own, so that it inherits nothing. */
	bool reuse;

	/*
	 * CREATE with an idempotency key (remembered for 24 h in the same transaction): when its owner used
	 * it before with the same fingerprint, nothing is created, `link` comes back as the link of that
	 * time, whoever owns it now (who may see it is the API's business), `replayed` is true and result is
	 * 0 (ERR_NOT_FOUND when that link is gone since). With another fingerprint result is ERR_INVALID.
	 */
	struct str idempotency_key; /* STR_NULL: none */
	uint64_t idempotency_owner; /* whose idempotency key it is: the caller's, not the link's owner's */
	uint8_t fingerprint[FINGERPRINT_BYTES];
	bool replay_only; /* create nothing: ERR_LIMIT when there is nothing to repeat */
	bool replayed;

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
struct store_users {
	uint64_t after; /* ids above this */
	size_t limit;
	struct arena *arena;
	struct user_record *users; /* out */
	size_t count;
	bool more; /* out: there are further ones */
};

/* Likewise; revoked and expired ones too. */
struct store_keys {
	uint64_t user; /* whose; 0: everybody's */
	uint64_t after;
	size_t limit;
	struct arena *arena;
	struct key_record *keys; /* out */
	size_t count;
	bool more;
};

enum store_account_by { BY_USER, BY_EMAIL, BY_KEY, BY_DIGEST, BY_SESSION };

/* One account, found by an index. */
struct store_account {
	enum store_account_by by; /* in */
	uint64_t id;              /* in: of the user or the API key */
	struct str text;          /* in: the email address in lower case, the digest, or the session's id */
	int result;               /* out: 0, ERR_NOT_FOUND, ERR_CORRUPT or ERR_NOMEM */
	union {
		struct user_record user;
		struct key_record key;
		struct session_record session; /* without address and agent */
	};
};

/* Links that may go: link_is_over. */
struct store_over {
	int64_t now_ms;
	size_t max;
	uint64_t *ids; /* room for `max` */
	size_t count;  /* out; those that were over first come first */
	bool count_all;
	uint64_t total; /* out, when count_all: how many there are */
};

/* Newest first. */
struct store_list {
	uint64_t owner; /* 0: everybody's */
	struct str
	    cursor; /* STR_NULL: from the newest; otherwise what `next` was; ERR_INVALID if it never was */
	size_t limit;
	size_t bytes_max; /* a page ends early when its strings come to this much; 0: no bound */
	struct arena *arena;
	struct link_record *links; /* out */
	size_t count;              /* out */
	struct str next;           /* out: STR_NULL at the end */
};

/* A link's total, by its row's id. */
struct store_count {
	uint64_t id;
	uint64_t clicks;
};

enum { STORE_COUNTS_MAX = 512 }; /* in one call */

/* The counter that the ids of links are leased from. A backend must know it: CREATE asks it which keys may
 * have been given out. */
#define STORE_LINK_COUNTER STR("link")

struct store_fault;

struct store {
	const struct store_ops *ops;
	struct store_fault *fault; /* NULL; a hook that makes calls fail: store_fault.c */
};

struct store_ops {
	/* Waits for calls under way to end; then all acknowledged work is on its medium. */
	void (*free)(struct store *);

	/* Reads n links in one go. 0, or an error that holds for all of them; a store of several databases
	 * returns 0, with such an error as the `result` of the reads whose database failed. Safe to retry. */
	int (*lookup)(struct store *, struct store_lookup *reads, size_t n);

	/* Does n changes in order as one transaction, durable when it returns 0 (they survive power
	 * loss). ERR_UNAVAILABLE: none of them happened, may be retried. ERR_UNCERTAIN: all or none of them
	 * happened. A store of several databases makes one transaction in each, and one that others write to
	 * may make several when somebody holds what one of them wants: it returns 0 then, with such an error
	 * as the `result` of the changes that failed. */
	int (*apply)(struct store *, struct store_write *writes, size_t n);

	/* Safe to retry. A page never costs more than its own length, however many links there are. */
	int (*list)(struct store *, struct store_list *page);

	/* The row ids of the links that carry the tag, newest first, at most `max`; ended ones too. Safe to
	 * retry. */
	int (*tagged)(struct store *, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count);

	/*
	 * Sets the totals of at most STORE_COUNTS_MAX links, as one node has counted them: a link's clicks
	 * are the sum over the nodes. (A store that serves one process only may take each node for the last
	 * one.) Ids that are not there are passed over; updated_ms stays. Totals are counted elsewhere and
	 * only shown here: power loss may take them back. Safe to retry, whatever it said.
	 */
	int (*set_clicks)(struct store *, uint64_t node, const struct store_count *counts, size_t n);

	/* The users on a private link's list, by id; the link is named by its row's id. Safe to retry. */
	int (*permitted)(struct store *, uint64_t link, struct arena *arena, uint64_t **ret,
	                 size_t *ret_count);

	/* Safe to retry; costs no more than what it gives, unless all are counted. */
	int (*over)(struct store *, struct store_over *over);

	/* A page of all users, and of API keys. ERR_INVALID: no limit. Safe to retry. */
	int (*users)(struct store *, struct store_users *page);
	int (*keys)(struct store *, struct store_keys *page);

	/* Reads n accounts in one go: 0, or an error that holds for all of them. Safe to retry. */
	int (*accounts)(struct store *, struct store_account *reads, size_t n, struct arena *arena);

	/* Takes the next `count` numbers of a counter that starts at 1, durably: no process will ever be
	 * given them again. On failure numbers may be lost, never given twice. */
	int (*lease)(struct store *, struct str counter, uint64_t count, uint64_t *ret_first);

	/* Names a value once and for all: stores `value` when there is none of that name, and overwrites
	 * `value` with what is stored. ERR_CORRUPT when the stored one has another length. */
	int (*constant)(struct store *, struct str name, void *value, size_t len);

	/* What has changed since `page->cursor`: links, or with `accounts` users, API keys and sessions. Safe
	 * to retry. */
	int (*feed)(struct store *, bool accounts, struct feed_page *page);

	/* Removes what is older from both feeds, some of it at a time: *ret says how many rows went. */
	int (*feed_prune)(struct store *, int64_t until_ms, size_t *ret);

	/* 0 when the backend answers; otherwise an error and a sentence for /readyz. */
	int (*ping)(struct store *, struct err *e);

	/* The rest may be NULL. */

	/* A number that changes with whatever changes an account that was there before: USER_UPDATE,
	 * KEY_REVOKE, SESSION_END. What is new, used or purged does not count. NULL: nobody but this process
	 * writes to the store. Safe to retry. */
	int (*version)(struct store *, uint64_t *ret);

	/* Forgets constants: all with from <= name < before, by bytes. NULL: likewise. Safe to retry. */
	int (*forget)(struct store *, struct str from, struct str before);

	/*
	 * Takes, for good, up to `max` generated keys whose links went by REAP, or wait for it, and whose
	 * rest (rest_ms from the moment they were over) has ended: their ids. Two callers never get the same
	 * one, and neither waits for the other. A CREATE with `reuse` may name links so. NULL: this store
	 * never gives a generated key out again. On failure keys may be lost, never given twice.
	 */
	int (*claim)(struct store *, int64_t now_ms, uint64_t rest_ms, size_t max, uint64_t *ret_ids,
	             size_t *ret_count);

	/* How many databases the links are spread over, and which of them, from 0, a name lies in now. A
	 * change of names of one of them never waits for another one. NULL: it is one. */
	size_t (*shard_count)(struct store *);
	size_t (*shard_of)(struct store *, struct str name);
};

/* --- calls --- */

enum store_op {
	STORE_OP_LOOKUP,
	STORE_OP_APPLY,
	STORE_OP_LIST,
	STORE_OP_TAGGED,
	STORE_OP_CLICKS,
	STORE_OP_PERMITTED,
	STORE_OP_OVER,
	STORE_OP_USERS,
	STORE_OP_KEYS,
	STORE_OP_ACCOUNTS,
	STORE_OP_LEASE,
	STORE_OP_CONSTANT,
	STORE_OP_PING,
	STORE_OP_VERSION,
	STORE_OP_CLAIM,
	STORE_OP_COUNT
};

/* For store_call alone: 0, or the error that this call shall have. */
int store_fault_hit(struct store_fault *f, enum store_op op);
int store_fault_lookup(struct store *s, struct store_lookup *reads, size_t n);
int store_fault_apply(struct store *s, struct store_write *writes, size_t n);
int store_fault_ping(struct store *s, struct err *e);
void store_fault_free(struct store_fault *f);

#define STORE_CALL(s, op, call)                                                                  \
	({                                                                                       \
		int fault_ = UNLIKELY((s)->fault != NULL) ? store_fault_hit((s)->fault, op) : 0; \
		fault_ ? fault_ : (call);                                                        \
	})

static inline void store_free(struct store *s)
{
	struct store_fault *fault = s ? s->fault : NULL;
	if (s)
		s->ops->free(s);
	if (fault)
		store_fault_free(fault);
}
static inline int store_lookup(struct store *s, struct store_lookup *reads, size_t n)
{
	return UNLIKELY(s->fault != NULL) ? store_fault_lookup(s, reads, n) : s->ops->lookup(s, reads, n);
}
static inline int store_apply(struct store *s, struct store_write *writes, size_t n)
{
	return UNLIKELY(s->fault != NULL) ? store_fault_apply(s, writes, n) : s->ops->apply(s, writes, n);
}
static inline int store_list(struct store *s, struct store_list *page)
{
	return STORE_CALL(s, STORE_OP_LIST, s->ops->list(s, page));
}
static inline int store_tagged(struct store *s, struct str tag, size_t max, uint64_t *ret_ids,
                               size_t *ret_count)
{
	return STORE_CALL(s, STORE_OP_TAGGED, s->ops->tagged(s, tag, max, ret_ids, ret_count));
}
static inline int store_set_clicks(struct store *s, uint64_t node, const struct store_count *counts, size_t n)
{
	return STORE_CALL(s, STORE_OP_CLICKS, s->ops->set_clicks(s, node, counts, n));
}
static inline int store_permitted(struct store *s, uint64_t link, struct arena *arena, uint64_t **ret,
                                  size_t *ret_count)
{
	return STORE_CALL(s, STORE_OP_PERMITTED, s->ops->permitted(s, link, arena, ret, ret_count));
}
static inline int store_over(struct store *s, struct store_over *over)
{
	return STORE_CALL(s, STORE_OP_OVER, s->ops->over(s, over));
}
static inline int store_users(struct store *s, struct store_users *page)
{
	return STORE_CALL(s, STORE_OP_USERS, s->ops->users(s, page));
}
static inline int store_keys(struct store *s, struct store_keys *page)
{
	return STORE_CALL(s, STORE_OP_KEYS, s->ops->keys(s, page));
}
static inline int store_accounts(struct store *s, struct store_account *reads, size_t n, struct arena *arena)
{
	return STORE_CALL(s, STORE_OP_ACCOUNTS, s->ops->accounts(s, reads, n, arena));
}
/* The user of that email address (in lower case), or of that id when it is STR_NULL: 0, ERR_NOT_FOUND or a
 * failure. */
static inline int store_user(struct store *s, uint64_t id, struct str email, struct arena *arena,
                             struct user_record *ret)
{
	struct store_account read = {.by = email.ptr ? BY_EMAIL : BY_USER, .id = id, .text = email};
	int r = store_accounts(s, &read, 1, arena);
	if (r == 0)
		r = read.result;
	if (r == 0)
		*ret = read.user;
	return r;
}
static inline int store_lease(struct store *s, struct str counter, uint64_t count, uint64_t *ret_first)
{
	return STORE_CALL(s, STORE_OP_LEASE, s->ops->lease(s, counter, count, ret_first));
}
static inline int store_constant(struct store *s, struct str name, void *value, size_t len)
{
	return STORE_CALL(s, STORE_OP_CONSTANT, s->ops->constant(s, name, value, len));
}
static inline int store_feed(struct store *s, bool accounts, struct feed_page *page)
{
	return s->ops->feed(s, accounts, page);
}
static inline int store_feed_prune(struct store *s, int64_t until_ms, size_t *ret)
{
	return s->ops->feed_prune(s, until_ms, ret);
}
static inline int store_ping(struct store *s, struct err *e)
{
	return UNLIKELY(s->fault != NULL) ? store_fault_ping(s, e) : s->ops->ping(s, e);
}

/* Only of a store that has the operation. */
static inline int store_version(struct store *s, uint64_t *ret)
{
	return STORE_CALL(s, STORE_OP_VERSION, s->ops->version(s, ret));
}
static inline int store_forget(struct store *s, struct str from, struct str before)
{
	return STORE_CALL(s, STORE_OP_CONSTANT, s->ops->forget(s, from, before));
}
static inline int store_claim(struct store *s, int64_t now_ms, uint64_t rest_ms, size_t max,
                              uint64_t *ret_ids, size_t *ret_count)
{
	return STORE_CALL(s, STORE_OP_CLAIM, s->ops->claim(s, now_ms, rest_ms, max, ret_ids, ret_count));
}

static inline size_t store_shard_count(struct store *s)
{
	return s->ops->shard_count ? s->ops->shard_count(s) : 1;
}
static inline size_t store_shard_of(struct store *s, struct str name)
{
	return s->ops->shard_of ? s->ops->shard_of(s, name) : 0;
}
