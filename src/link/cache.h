/*
 * L1: the in-process cache of links, shared by all workers. A hit takes no lock, makes no allocation, and
 * returns the finished bytes of the response.
 *
 * Reading. A fixed array of buckets, each the head of a chain of entries. Readers (event loops) walk chains
 * with acquire loads. A reachable entry never changes, except its use count and due time; it is replaced
 * instead. Its memory is freed after every loop has ended a turn (os/reclaim.h), so a pointer is valid
 * until the end of the turn.
 *
 * Writing. Pool threads change the cache under one mutex, which no reader takes.
 *
 * Eviction is S3-FIFO. New entries enter a small queue (a tenth of the memory). Entries used again before
 * they reach its end move to the main queue; the others leave, and are remembered in a ghost table. A key
 * that returns while its ghost exists goes straight to the main queue. At the end of the main queue, used
 * entries get another round. So a scan over keys that are requested once passes only through the small
 * queue. S3-FIFO was chosen because a hit only sets two bits (LRU would relink under a lock), and because
 * most short links are requested once.
 *
 * Staleness. A lookup takes time, and the link may change meanwhile. A lookup first reads the key's epoch.
 * Every invalidation raises the epoch, and an insert with an old epoch is refused.
 *
 * Age. If other servers write to the store, an entry may be outdated without an invalidation. So it has a
 * due time. A worker that finds it due postpones it by compare-and-swap; the one that succeeds reads the
 * link again (redirect/refresh.h), while the others keep using the entry.
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
	int64_t expires_ms;        /* real time of the link's end, or of a negative entry's; 0: never */
	_Atomic int64_t due_ms;    /* monotonic time to read it again; INT64_MAX: never */
	uint64_t link;             /* row id */
	struct budget *budget;     /* whose redirect limit applies */
	struct click_limit *limit; /* pinned by the entry; NULL: no click limit */
	uint64_t max_clicks;
	uint32_t response_len; /* 0: no such link */
	uint16_t response_date_at;
	uint8_t key_len;
	bool late;            /* the response goes to expired_url */
	_Atomic uint8_t uses; /* 0 to 3 since the last move */
	/* writers only: position in a queue */
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

/* What to insert. */
struct cache_fill {
	struct str key;
	struct str response; /* empty: no such link */
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
void cache_free(struct cache *c); /* no reader may be active */

/* The entry of the key, valid until the end of the loop's turn, or NULL. Loop threads. */
struct cache_entry *cache_find(struct cache *c, struct str key);

/* Any thread. */
uint32_t cache_epoch(struct cache *c, struct str key);

/* Pool threads. */
void cache_insert(struct cache *c, const struct cache_fill *fill, uint32_t epoch);
void cache_invalidate(struct cache *c, struct str key);

/* A link was created: drops the name's entry, unless it is of that link. */
void cache_link_created(struct cache *c, struct str key, uint64_t link);

/* Drops an outdated entry. Unlike cache_invalidate it does not void running lookups, because one of them
 * calls it. */
void cache_drop(struct cache *c, struct str key);

/* Changes may have been missed: makes every entry due, and voids running lookups. Takes the mutex many
 * times, briefly. */
void cache_expire_all(struct cache *c, int64_t mono_ms);

struct cache_stats cache_read_stats(struct cache *c); /* any thread; takes the mutex */
