/*
 * The store interface: links and who may follow them. Users, API keys and counters belong to its registry
 * (registry.h). The composition root opens a backend (backends.h).
 *
 * All calls block. They may come from any thread except an event loop; a backend does its own locking.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "store/registry.h"

struct store_lookup {
	struct link_ref ref; /* in */
	uint64_t user;       /* in: user id; 0: anonymous */
	bool fresh;          /* in: it may just have changed: do not ask replicas */
	struct arena *arena; /* in: owns the record's strings */
	int result;          /* out: 0, ERR_NOT_FOUND, ERR_CORRUPT, ERR_NOMEM or an error of its database */
	struct link_record link; /* out, when result is 0 */
	bool permitted;          /* out, if the link is private: `user` is on its permission list */
	bool old;                /* in: false; out: read from a replica of unknown lag */
};

enum store_write_kind {
	STORE_LINK_CREATE,
	STORE_LINK_UPDATE,
	STORE_LINK_DELETE,
	STORE_LINK_SWEEP, /* delete if link_is_expired; ERR_CONFLICT if not */
	STORE_PERMIT,
	STORE_FORBID,
};

struct store_write {
	enum store_write_kind kind;
	int64_t now_ms;
	uint64_t actor;      /* user id for the feed; 0: this machine */
	struct arena *arena; /* owns the returned strings */
	int result;          /* out: 0 or the error of this change, which then has no effect */

	/*
	 * CREATE takes the whole `link`, with 0 clicks. `ref` names it: ref.key == link.key; for a
	 * generated key ref.id == link.id; for an alias ref.id is what the name decodes to, or 0.
	 *
	 * ERR_CONFLICT: the name is taken. It is taken by an alias of that name, by a generated link whose
	 * id is ref.id, or by any row whose id is link.id. (A store of several databases looks in one of
	 * them: ids come from one counter.) An expired alias (link_is_expired) gives way: its link is
	 * removed, as by SWEEP.
	 *
	 * A generated key is never issued twice, not as an alias either, even if its link has expired or
	 * was removed. An alias's ref.id below the counter STORE_LINK_COUNTER was issued, whether it was
	 * used or not; the caller knows (`was_issued`). A store that supports claim also remembers the keys
	 * of removed links.
	 *
	 * The alias of a swept link is quarantined for quarantine_ms from its expiry: until then only the
	 * same owner may take it (ERR_CONFLICT for others), so that nobody inherits another user's
	 * visitors. DELETE frees an alias at once. Each SWEEP purges a few expired quarantines.
	 *
	 * UPDATE, DELETE, SWEEP, PERMIT and FORBID find the link by `ref`. ERR_NOT_FOUND: not found, or
	 * `owner` is not 0 and not the record's owner. UPDATE sets `fields` from `link`, and updated_ms to
	 * now_ms, and returns the stored link. An expiry that is the default follows a new not_before_ms.
	 * ERR_INVALID: the link would end before it starts (link_never_opens). DELETE and SWEEP return the removed link; its permission
	 * list is removed too.
	 *
	 * PERMIT adds `user` to the permission list, FORBID removes it; both succeed if nothing changes,
	 * and return the link. The caller checks that the user exists. PERMIT: ERR_INVALID if the user is
	 * 0, ERR_LIMIT beyond PERMITTED_MAX.
	 */
	struct link_ref ref;
	uint64_t owner;
	unsigned fields;
	struct link_record link;
	uint64_t user;          /* PERMIT, FORBID */
	uint64_t quarantine_ms; /* CREATE, SWEEP */
	bool was_issued;        /* CREATE: the alias decodes to an issued id, used or not */

	/* CREATE: the name is a generated key from store_claim. Only a current holder blocks it. The link
	 * is stored like an alias, under an id of its own, so that it inherits no statistics. */
	bool reuse;

	/*
	 * CREATE with an idempotency key, which is remembered for 24 h in the same transaction. If its
	 * owner used it before with the same fingerprint, nothing is created: `replayed` is set, and `link`
	 * is the link of that time (ERR_NOT_FOUND: it was removed). The API checks who may see it. With
	 * another fingerprint: ERR_INVALID.
	 */
	struct str idempotency_key; /* STR_NULL: none */
	uint64_t idempotency_owner; /* the caller's user id, not the link owner's */
	uint8_t fingerprint[FINGERPRINT_BYTES];
	bool replay_only; /* create nothing: ERR_LIMIT unless it is a replay */
	bool replayed;
};

/* Expired links (link_is_expired). */
struct store_expired {
	int64_t now_ms;
	size_t max;
	uint64_t *ids; /* array of `max` */
	size_t count;  /* out; earliest expiry first */
	bool count_all;
	uint64_t total; /* out, if count_all: the number of all expired links */
};

/* A page of links, newest first. */
struct store_list {
	uint64_t owner; /* 0: all owners */
	/* STR_NULL: start at the newest; otherwise a previous `next` (ERR_INVALID if it is not). */
	struct str cursor;
	size_t limit;
	size_t bytes_max; /* end the page early at this many bytes of strings; 0: no bound */
	struct arena *arena;
	struct link_record *links; /* out */
	size_t count;              /* out */
	struct str next;           /* out: STR_NULL on the last page */
};

/* The click total of a link, by row id. */
struct store_count {
	uint64_t id;
	uint64_t clicks;
};

enum { STORE_COUNTS_MAX = 512 }; /* per call */

/* The registry counter that link ids are leased from. */
#define STORE_LINK_COUNTER STR("link")

struct store {
	const struct store_ops *ops;
	struct registry *registry;
	bool is_shared;            /* other processes may write to it */
	struct store_fault *fault; /* NULL, or fault injection (store_fault.c) */
};

struct store_ops {
	/* Waits for running calls. Then all acknowledged changes are durable. */
	void (*free)(struct store *);

	/* Reads n links in one round trip: 0, or an error of all of them. A store of several databases
	 * returns 0, and sets `result` of the reads whose database failed. Safe to retry. */
	int (*lookup)(struct store *, struct store_lookup *reads, size_t n);

	/*
	 * Applies n changes in order in one transaction, durable (through power loss) when it returns 0.
	 * ERR_UNAVAILABLE: none was applied, safe to retry. ERR_UNCERTAIN: all or none were applied.
	 *
	 * A store of several databases uses one transaction in each. A database with other writers may
	 * split a batch when a row stays locked. In both cases it returns 0, and sets `result` of the
	 * changes that failed.
	 */
	int (*apply)(struct store *, struct store_write *writes, size_t n);

	/* Safe to retry. The cost of a page depends only on its length, not on the number of links. */
	int (*list)(struct store *, struct store_list *page);

	/* The row ids of at most `max` links with the tag, newest first, including ended links. Safe to
	 * retry. */
	int (*tagged)(struct store *, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count);

	/*
	 * Sets the totals that one node has counted, of at most STORE_COUNTS_MAX links. A link's clicks are
	 * the sum over the nodes. (A store for one process may ignore the node.) Unknown ids are skipped;
	 * updated_ms is unchanged. Totals are only a copy, so power loss may undo this. Safe to retry after
	 * any error.
	 */
	int (*set_clicks)(struct store *, uint64_t node, const struct store_count *counts, size_t n);

	/* The users on a link's permission list, by id; `link` is a row id. Safe to retry. */
	int (*permitted)(struct store *, uint64_t link, struct arena *arena, uint64_t **ret,
	                 size_t *ret_count);

	/* Safe to retry. The cost depends only on `max`, unless count_all. */
	int (*expired)(struct store *, struct store_expired *expired);

	/* Reads the link feed of database page->shard after page->cursor. Safe to retry. */
	int (*feed)(struct store *, struct feed_page *page);

	/* Deletes some rows older than until_ms from the feed; *ret: how many. */
	int (*feed_prune)(struct store *, int64_t until_ms, size_t *ret);

	/* 0 if the backend answers; otherwise an error with a sentence for /readyz. */
	int (*ping)(struct store *, struct err *e);

	/*
	 * Takes up to `max` generated keys for reuse: their ids. Their links were swept, or are expired,
	 * and their quarantine (quarantine_ms from the expiry) has ended. A CREATE with `reuse` may use
	 * them. No key is given to two callers, and callers do not wait for each other. A store for one
	 * process returns none: it never reissues a generated key. A failure may lose keys, but never gives
	 * one twice.
	 */
	int (*claim)(struct store *, int64_t now_ms, uint64_t quarantine_ms, size_t max, uint64_t *ret_ids,
	             size_t *ret_count);

	/* The number of databases, and which of them (from 0) owns a name now. Changes in one database
	 * never wait for another. */
	size_t (*shard_count)(struct store *);
	size_t (*shard_of)(struct store *, struct str name);
};

/* --- calls --- */

int store_fault_lookup(struct store *s, struct store_lookup *reads, size_t n);
int store_fault_apply(struct store *s, struct store_write *writes, size_t n);
int store_fault_ping(struct store *s, struct err *e);
void store_fault_free(struct store_fault *f);

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
static inline int store_expired(struct store *s, struct store_expired *expired)
{
	return STORE_CALL(s, STORE_OP_EXPIRED, s->ops->expired(s, expired));
}
static inline int store_feed(struct store *s, struct feed_page *page)
{
	return s->ops->feed(s, page);
}
static inline int store_feed_prune(struct store *s, int64_t until_ms, size_t *ret)
{
	return s->ops->feed_prune(s, until_ms, ret);
}
static inline int store_ping(struct store *s, struct err *e)
{
	return UNLIKELY(s->fault != NULL) ? store_fault_ping(s, e) : s->ops->ping(s, e);
}
static inline int store_claim(struct store *s, int64_t now_ms, uint64_t quarantine_ms, size_t max,
                              uint64_t *ret_ids, size_t *ret_count)
{
	return STORE_CALL(s, STORE_OP_CLAIM,
	                  s->ops->claim(s, now_ms, quarantine_ms, max, ret_ids, ret_count));
}

static inline size_t store_shard_count(struct store *s)
{
	return s->ops->shard_count(s);
}
static inline size_t store_shard_of(struct store *s, struct str name)
{
	return s->ops->shard_of(s, name);
}
