/*
 * L2: the shared cache of links, between the L1 of each server and the store.
 *
 * It holds only what is the same for everybody and needs no counter: links that are not private and have no
 * password and no click limit, and briefly that a key has no link. It holds records, not responses: each
 * server applies its own clock.
 *
 * A value, numbers little-endian, sizes in bytes:
 *
 *	crc32c of the rest 4, format 1, kind 1
 *	kind 'N'   no such link; nothing follows
 *	kind 'L'   flags 1, redirect status 2, id 8, owner 8, API key 8, not before 8, expires 8,
 *	           URL length 4, URL, expired URL length 4, expired URL
 *
 * Other programs can write to the cache: a value that is not exactly so is a miss.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "rcache/rcache.h"
#include "store/store.h"

/* May the shared cache hold it? */
static inline bool tier2_holds(const struct link_record *link)
{
	return !link->is_private && !link->password.ptr && link->max_clicks == 0;
}

/* NULL: no such link. */
void tier2_encode(const struct link_record *link, struct buf *out);

/* 0 with the fields above (others are zero), ERR_NOT_FOUND, ERR_NOMEM or ERR_CORRUPT. */
int tier2_decode(struct str value, struct arena *arena, struct link_record *ret);

/* The shared cache of one `struct links`. */
struct tier2 {
	struct rcache *rcache; /* NULL: none */
	uint64_t life_ms;
	uint64_t absent_ms; /* 0: misses are not cached */
};

/* One lookup of a batch. */
struct tier2_read {
	struct store_lookup *read; /* ref.key and arena; `fresh` is set if it has just changed */
	bool skip;                 /* in: do not look it up */
	bool answered;             /* out: read->result and read->link are set */
	bool fills;                /* out: pass the store's answer to tier2_fill */
};

/* Looks up all reads in one batch. */
void tier2_get(const struct tier2 *t, struct tier2_read *reads, size_t n);

/* Stores what the database has answered since `began_ms` (monotonic), except possibly outdated answers. */
void tier2_fill(const struct tier2 *t, const struct tier2_read *reads, size_t n, int64_t began_ms);
