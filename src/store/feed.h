/*
 * The change feed. Each transaction appends its entries as one row, so the feed and the tables always
 * agree. Servers read it to invalidate their caches, and `curt reshard` reads it to catch up. Rows are
 * pruned by age (store_feed_prune).
 *
 * Rows are ordered by transaction number. On PostgreSQL, transactions that waited for each other may commit
 * in the other order. So an entry says only that something changed; the table says what it is now.
 *
 * An entry says who changed what, with the fields before and after. The entry of a new link has only its id
 * and name.
 *
 *	row       entry...
 *	entry     kind 1, actor 8, id 8, name length 2, changes length 4, name, changes
 *	          (sizes in bytes; numbers are big-endian; readers skip unknown kinds)
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum feed_kind {
	FEED_LINK_MADE = 1,
	FEED_LINK_CHANGED, /* or its permission list */
	FEED_LINK_REMOVED,
	FEED_NAME_CHANGED, /* quarantine or click totals of a name */
	FEED_USER,
	FEED_KEY,
	FEED_SESSION,
};

struct feed_entry {
	enum feed_kind kind;
	int64_t at_ms;
	uint64_t actor;     /* user id; 0: this machine */
	uint64_t id;        /* of the row */
	struct str name;    /* of a link; of a session, its id as bytes */
	struct str changes; /* {"title":["before","after"]}; STR_NULL: not recorded */
};

/* A position in a feed. Zero is before the first row. */
struct feed_cursor {
	uint64_t transaction, sequence;
};

/* A page of entries after a cursor. */
struct feed_page {
	size_t shard;              /* in: the database (store_shard_of); the account feed has only 0 */
	struct feed_cursor cursor; /* in; out: after the last row that need not be read again */
	bool from_end;             /* in: return only the cursor of the end */
	bool settled;              /* in: stop before rows that an open transaction may still precede */
	size_t max;                /* in: rows, one per transaction */
	struct arena *arena;
	struct feed_entry *entries; /* out */
	size_t count;
	bool more; /* out: the next page can be read now */
	/* out: rows after the cursor may have been pruned, or more than a page of rows is unsettled:
	 * rebuild all copies */
	bool lost;
};

/* The encoded entry; STR_NULL: out of memory. */
struct str feed_entry_bytes(struct arena *arena, const struct feed_entry *e);

/* Decodes and removes the first entry of `*row`, borrowing its strings: 1, 0 at the end, or ERR_CORRUPT. */
int feed_entry_take(struct str *row, struct feed_entry *ret);

/* Appends the entries of a row to the page: 0, ERR_NOMEM or ERR_CORRUPT. */
int feed_page_add(struct feed_page *page, size_t *room, struct str row, int64_t at_ms);
