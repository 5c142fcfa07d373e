/*
 * L1: the in-process cache of links, shared by all workers. A hit takes no lock, makes no allocation, and
 * gives the ready-made bytes of the response.
 *
 * Reading. A fixed array of buckets, each the head of a chain of entries. Readers (event loops) walk chains
 * with acquire loads. An entry never changes once it is reachable, except for its use count; it is unlinked
 * and replaced instead. Its memory is freed after every loop has ended a turn (os/reclaim.h), so a pointer is
 * good until the end of the turn.
 *
 * Writing. All changes are made by pool threads under one mutex, which no reader takes.
 *
 * Eviction is S3-FIFO: new entries enter a small queue (a tenth of the memory); those used again before they
 * reach its end move to the main queue, the rest leave and are remembered in a ghost table; a key that comes
 * back while its ghost is there goes straight to the main queue; the main queue's end gives used entries
 * another round. A scan over keys that are asked for once therefore only washes through the small queue. It
 * was chosen because a hit merely sets two bits (LRU would have to relink under a lock), and because most
 * short links are one-hit wonders.
 *
 * Staleness. A lookup in the store takes time, and the link may change meanwhile. Whoever looks up notes the
 * key's epoch first; every invalidation raises the epoch; an insert with an old epoch is refused.
 *
 * Age. When others write to the store too, what is kept may be old without anybody having said so. So an
 * entry has a time when it is due to be read again. Who finds it due puts that off by compare-and-swap, and
 * whoever succeeds reads it again (redirect/refresh.h): one at a time, while the others go on with what is
 * there.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "link/budget.h"
#include "link/click_limit.h"

#include <stdatomic.h>

struct cache;

struct cache_entry {
	_Atomic(struct cache_entry *) next;
	uint64_t hash;
	int64_t expires_ms;        /* real time; when the link ends, or a negative entry does; 0: never */
	_Atomic int64_t due_ms;    /* monotonic; when it should be read again; INT64_MAX: never */
	uint64_t link;             /* row id */
	struct budget *budget;     /* whose limit of redirections holds */
	struct click_limit *limit; /* pinned while the entry is there; NULL: no limit of clicks */
	uint64_t max_clicks;
	uint32_t response_len; /* 0: there is no such link */
	uint16_t response_date_at;
	uint8_t key_len;
	bool late;            /* the response sends elsewhere, for the link's time is over */
	_Atomic uint8_t uses; /* 0 to 3, since it was last moved */
	/* the writers' own: place in a queue */
	struct cache_entry *older;
	struct cache_entry *newer;
	uint32_t bytes;
	bool in_main;
	char data[]; /* the key, then the response */
};

static inline const char *cache_entry_response(const struct cache_entry *e)
{
	return e->data + e->key_len;
}

/* What to keep. */
struct cache_fill {
	struct str key;
	struct str response; /* empty: there is no such link */
	uint16_t response_date_at;
	int64_t expires_ms;
	int64_t due_ms; /* 0: never */
	uint64_t link;
	struct budget *budget;
	struct click_limit *limit;
	uint64_t max_clicks;
	bool late;
};

struct cache_stats {
	uint64_t entries, bytes, bytes_max, main_evictions, small_evictions;
};

int cache_new(uint64_t bytes_max, uint64_t seed, struct cache **ret, struct err *e);
void cache_free(struct cache *c); /* no reader may be left */

/* The entry of the key, good until the end of the loop's turn; NULL when there is none. Loop threads. */
struct cache_entry *cache_find(struct cache *c, struct str key);

/* Any thread. */
uint32_t cache_epoch(struct cache *c, struct str key);

/* Pool threads. */
void cache_insert(struct cache *c, const struct cache_fill *fill, uint32_t epoch);
void cache_invalidate(struct cache *c, struct str key);

/* The link was made: what is kept of the name goes, unless it is of that link. */
void cache_made(struct cache *c, struct str key, uint64_t link);

/* The entry is not what the store has, and nothing shall stand in its place. Other than cache_invalidate it
 * ends no lookup under way: it comes from one. */
void cache_forget(struct cache *c, struct str key);

/* Changes may have been missed: every entry is due now, and no lookup under way counts any more. Takes the
 * writers' mutex many times for a moment. */
void cache_age(struct cache *c, int64_t mono_ms);

struct cache_stats cache_read_stats(struct cache *c); /* any thread; takes the writers' mutex */
