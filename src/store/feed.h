/*
 * The change feed: what has changed. Each transaction of changes appends its entries in one row, so the feed
 * knows neither more nor less than the tables. Rows come in the order of their transactions' numbers. On
 * PostgreSQL two that waited for each other may have been committed the other way round: an entry says that
 * something has changed, and the row says what it is now. Caches of other
 * servers and `curt reshard` read it; it is pruned by age (store_feed_prune).
 *
 * An entry says who changed what, and how. That of a new link has no more than its id and name: the link
 * itself is the rest.
 *
 * A row is a list of entries: kind (1 byte), actor and id (8 each), lengths of name (2) and changes (4),
 * name, changes. Numbers are big-endian. Readers skip kinds that they do not know.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum feed_kind {
	FEED_LINK_MADE = 1,
	FEED_LINK_CHANGED, /* also its list of users */
	FEED_LINK_REMOVED,
	FEED_NAME_CHANGED, /* what is kept of a name without a link */
	FEED_USER,
	FEED_KEY,
	FEED_SESSION,
};

struct feed_entry {
	enum feed_kind kind;
	int64_t at_ms;
	uint64_t actor;     /* the user; 0: the machine's own */
	uint64_t id;        /* of the row */
	struct str name;    /* of a link; an id in bytes of a session */
	struct str changes; /* {"title":["before","after"]}; STR_NULL: none are told */
};

/* A place in a feed. Zero is before everything that is kept. */
struct feed_cursor {
	uint64_t transaction, sequence;
};

/* A page of entries behind a cursor. */
struct feed_page {
	size_t shard;              /* in: of which database (store_shard_of); accounts have one feed, 0 */
	struct feed_cursor cursor; /* in; out: behind what need not be read again */
	bool from_end;             /* in: start at the end: only `cursor` comes back */
	bool settled; /* in: leave out what may still be overtaken by a transaction that is open */
	size_t max;   /* in: transactions */
	struct arena *arena;
	struct feed_entry *entries; /* out */
	size_t count;
	bool more; /* out: read on at once */
	/* out: what followed the cursor may have been pruned, or there is more than a page of what is not
	 * settled: whoever keeps copies must read all again */
	bool lost;
};

/* The entry as it stands in a row; STR_NULL: memory ran out. */
struct str feed_entry_bytes(struct arena *arena, const struct feed_entry *e);

/* Takes the first entry off `*row`, whose strings it borrows: 1, 0 at the end, or ERR_CORRUPT. */
int feed_entry_take(struct str *row, struct feed_entry *ret);

/* Adds a row's entries to the page, in its arena: 0, ERR_NOMEM or ERR_CORRUPT. */
int feed_page_add(struct feed_page *page, size_t *room, struct str row, int64_t at_ms);
