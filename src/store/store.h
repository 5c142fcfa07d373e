/*
 * The role `store`: links and who may follow them. What belongs to no link (users, API keys, counters) is its
 * registry's (registry.h). Backends are opened by the composition root; everybody else holds a `struct store
 * *`. All calls block and may come from any thread that is not an event loop; a backend orders them itself.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "store/registry.h"

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
	STORE_LINK_SWEEP, /* delete if link_is_expired; otherwise ERR_CONFLICT */
	STORE_PERMIT,
	STORE_FORBID,
};

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
	 * them: ids come from one counter). An alias that is over (link_is_expired) does not hold its name
	 * any more: its link is removed, as by REAP.
	 *
	 * A generated key is never given out twice, not as an alias either, whoever asks: one whose link is
	 * over stays taken, and so does one whose link is gone. Gone is an alias's ref.id that the counter
	 * STORE_LINK_COUNTER has passed, whether it was ever used or not: the caller knows (`was_given`). A
	 * store that gives keys back (claim) also remembers those whose links went, however they were made.
	 *
	 * The alias of a link that went by REAP rests for quarantine_ms from the moment it was over: until
	 * then only the same owner may take it again (for others it is ERR_CONFLICT), so that nobody inherits
	 * another's visitors. DELETE frees an alias at once. Names that have rested are forgotten by later
	 * REAPs, some by each.
	 *
	 * UPDATE, DELETE, REAP, PERMIT, FORBID: `ref` says which, `owner` (unless 0) must be the record's
	 * owner, otherwise ERR_NOT_FOUND. UPDATE sets the fields whose bit is in `fields` from `link`, and
	 * updated_ms to now_ms; `link` comes back as stored. DELETE and REAP give back the record that was
	 * removed; its list goes with it.
	 *
	 * PERMIT puts `user` on the link's list, FORBID takes it off; both are content when it was so before,
	 * and `link` comes back. That the user is there is the caller's to know. PERMIT is ERR_INVALID when
	 * it is 0, ERR_LIMIT beyond PERMITTED_MAX.
	 */
	struct link_ref ref;
	uint64_t owner;
	unsigned fields;
	struct link_record link;
	uint64_t user;          /* PERMIT, FORBID */
	uint64_t quarantine_ms; /* CREATE, REAP */
	bool was_given;         /* CREATE: the alias reads like a key that was given out, used or not */

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
};

/* Links that may go: link_is_expired. */
struct store_expired {
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

/* The registry's counter that the ids of links are leased from. */
#define STORE_LINK_COUNTER STR("link")

struct store {
	const struct store_ops *ops;
	struct registry *registry;
	bool is_shared;            /* other processes may write to it, too */
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
	int (*expired)(struct store *, struct store_expired *expired);

	/* What has changed since `page->cursor`, in the database page->shard. Safe to retry. */
	int (*feed)(struct store *, struct feed_page *page);

	/* Removes what is older from the feed, some of it at a time: *ret says how many rows went. */
	int (*feed_prune)(struct store *, int64_t until_ms, size_t *ret);

	/* 0 when the backend answers; otherwise an error and a sentence for /readyz. */
	int (*ping)(struct store *, struct err *e);

	/*
	 * Takes, for good, up to `max` generated keys whose links went by REAP, or wait for it, and whose
	 * rest (quarantine_ms from the moment they were over) has ended: their ids. Two callers never get the
	 * same one, and neither waits for the other. A CREATE with `reuse` may name links so. A store that
	 * serves one process gives none: it never gives a generated key out again. On failure keys may be
	 * lost, never given twice.
	 */
	int (*claim)(struct store *, int64_t now_ms, uint64_t quarantine_ms, size_t max, uint64_t *ret_ids,
	             size_t *ret_count);

	/* How many databases the links are spread over, and which of them, from 0, a name lies in now. A
	 * change of names of one of them never waits for another one. */
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
