/*
 * The role `store`: links and API keys. Backends are opened by the composition root; everybody else
 * holds a `struct store *`. All calls block and may come from any thread that is not an event loop;
 * a backend orders them itself.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "store/record.h"

struct store_lookup {
	struct link_ref ref;     /* in */
	struct arena *arena;     /* in: where the record's strings go */
	int result;              /* out: 0, ERR_NOT_FOUND, ERR_CORRUPT or ERR_NOMEM */
	struct link_record link; /* out, when result is 0 */
};

enum store_write_kind {
	STORE_LINK_CREATE,
	STORE_LINK_UPDATE,
	STORE_LINK_DELETE,
	STORE_LINK_REAP, /* delete if expires_ms is set and <= now_ms; otherwise ERR_CONFLICT */
	STORE_KEY_CREATE,
	STORE_KEY_REVOKE,
};

enum {
	LINK_URL = 1 << 0,
	LINK_EXPIRES = 1 << 1,
	LINK_STATUS = 1 << 2,
	LINK_ENABLED = 1 << 3,
	LINK_TITLE = 1 << 4,
	LINK_NOTE = 1 << 5,
	LINK_TAGS = 1 << 6,
};

struct store_write {
	enum store_write_kind kind;
	int64_t now_ms;
	struct arena *arena; /* where the strings of what comes back go */
	int result;          /* out: 0 or this change's own error; its effects are then absent */

	/*
	 * Links. CREATE: `link` as it shall be, with no clicks yet; `ref` names it (ref.key == link.key; for
	 * a generated key ref.id == link.id; for an alias ref.id is what the name would decode to, or 0). It
	 * is ERR_CONFLICT when the name is taken in either way: an alias of that name, or a generated link
	 * whose id is ref.id, or a row whose id is link.id. A holder that has ended by now_ms does not hold
	 * its name any more: it is removed.
	 *
	 * UPDATE, DELETE, REAP: `ref` says which, `owner` (unless 0) must be the record's owner, otherwise
	 * ERR_NOT_FOUND. UPDATE sets the fields whose bit is in `fields` from `link`, and updated_ms to
	 * now_ms; `link` comes back as stored. DELETE and REAP give back the record that was removed.
	 */
	struct link_ref ref;
	uint64_t owner;
	unsigned fields;
	struct link_record link;

	/*
	 * CREATE with an idempotency key (of link.owner, remembered for 24 h in the same transaction): when
	 * it was used before with the same fingerprint, nothing is created, `link` comes back as the
	 * link of that time, `replayed` is true and result is 0 (ERR_NOT_FOUND when that link is gone
	 * since). With another fingerprint result is ERR_INVALID.
	 */
	struct str idempotency_key; /* STR_NULL: none */
	uint8_t fingerprint[FINGERPRINT_BYTES];
	bool replay_only; /* create nothing: ERR_LIMIT when there is nothing to repeat */
	bool replayed;

	/* API keys. CREATE: all but id, which comes back; ERR_CONFLICT when the digest is there already.
	 * REVOKE: by key.id, sets revoked_ms to now_ms (the first time's stays); comes back whole;
	 * ERR_CONFLICT when it is the last admin's key in force. */
	struct key_record key;
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

struct store {
	const struct store_ops *ops;
};

struct store_ops {
	/* Waits for calls under way to end; then all acknowledged work is on its medium. */
	void (*free)(struct store *);

	/* Reads n links in one go. 0, or an error that holds for all of them. Safe to retry. */
	int (*lookup)(struct store *, struct store_lookup *reads, size_t n);

	/* Does n changes in order as one transaction, durable when it returns 0 (they survive power
	 * loss). ERR_UNAVAILABLE: none of them happened, may be retried. ERR_UNCERTAIN: all or none of them
	 * happened. */
	int (*apply)(struct store *, struct store_write *writes, size_t n);

	/* Safe to retry. A page never costs more than its own length, however many links there are. */
	int (*list)(struct store *, struct store_list *page);

	/* The row ids of the links that carry the tag, newest first, at most `max`; ended ones too. Safe to
	 * retry. */
	int (*tagged)(struct store *, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count);

	/*
	 * Sets the totals of at most STORE_COUNTS_MAX links, so that other writers do not wait for long. Ids
	 * that are not there are passed over; updated_ms stays. Totals are counted elsewhere and only shown
	 * here: power loss may take them back. Safe to retry, whatever it said.
	 */
	int (*set_clicks)(struct store *, const struct store_count *counts, size_t n);

	/* All API keys, revoked ones too, by id. Safe to retry. */
	int (*keys)(struct store *, struct arena *arena, struct key_record **ret, size_t *ret_count);

	/* Takes the next `count` numbers of a counter that starts at 1, durably: no process will ever be
	 * given them again. On failure numbers may be lost, never given twice. */
	int (*lease)(struct store *, struct str counter, uint64_t count, uint64_t *ret_first);

	/* Names a value once and for all: stores `value` when there is none of that name, and overwrites
	 * `value` with what is stored. ERR_CORRUPT when the stored one has another length. */
	int (*constant)(struct store *, struct str name, void *value, size_t len);

	/* 0 when the backend answers; otherwise an error and a sentence for /readyz. */
	int (*ping)(struct store *, struct err *e);
};

static inline void store_free(struct store *s)
{
	if (s)
		s->ops->free(s);
}
static inline int store_lookup(struct store *s, struct store_lookup *reads, size_t n)
{
	return s->ops->lookup(s, reads, n);
}
static inline int store_apply(struct store *s, struct store_write *writes, size_t n)
{
	return s->ops->apply(s, writes, n);
}
static inline int store_list(struct store *s, struct store_list *page)
{
	return s->ops->list(s, page);
}
static inline int store_tagged(struct store *s, struct str tag, size_t max, uint64_t *ret_ids,
                               size_t *ret_count)
{
	return s->ops->tagged(s, tag, max, ret_ids, ret_count);
}
static inline int store_set_clicks(struct store *s, const struct store_count *counts, size_t n)
{
	return s->ops->set_clicks(s, counts, n);
}
static inline int store_keys(struct store *s, struct arena *arena, struct key_record **ret, size_t *ret_count)
{
	return s->ops->keys(s, arena, ret, ret_count);
}
static inline int store_lease(struct store *s, struct str counter, uint64_t count, uint64_t *ret_first)
{
	return s->ops->lease(s, counter, count, ret_first);
}
static inline int store_constant(struct store *s, struct str name, void *value, size_t len)
{
	return s->ops->constant(s, name, value, len);
}
static inline int store_ping(struct store *s, struct err *e)
{
	return s->ops->ping(s, e);
}
