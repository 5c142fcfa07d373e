/*
 * L2: what the servers of a cluster cache together about links, between the L1 of each of them and the store.
 *
 * Only what is the same for everybody is in there, and what no server counts by itself: links that are
 * neither private nor have a password or a click limit; and, briefly, that a key has no link. What is kept is
 * the record, not the answer: each server judges it by its own clock.
 *
 * A value, all numbers little-endian:
 *
 *	crc32c of all that follows (4) | format (1) | kind (1): 'N' no such link, and nothing behind it; 'L':
 *	flags (1) | redirect status (2) | id | owner | API key | not before | expires (8 each)
 *	| length of the URL (4) | the URL | length of the place for the late (4) | that place
 *
 * The bytes come from a server that others can write to: a value that is not exactly so is a miss.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "rcache/rcache.h"
#include "store/store.h"

/* May others see it from the shared cache? */
static inline bool tier2_holds(const struct link_record *link)
{
	return !link->is_private && !link->password.ptr && link->max_clicks == 0;
}

/* NULL: there is no such link. */
void tier2_encode(const struct link_record *link, struct buf *out);

/* 0 with the fields above (the others are zero), ERR_NOT_FOUND, ERR_NOMEM, or ERR_CORRUPT. */
int tier2_decode(struct str value, struct arena *arena, struct link_record *ret);

/* How lookups use it. The settings of one `struct links`. */
struct tier2 {
	struct rcache *rcache; /* NULL: there is none */
	uint64_t life_ms;
	uint64_t absent_ms; /* 0: that there is no link is not kept */
};

/* One lookup of a batch. */
struct tier2_read {
	struct store_lookup *read; /* ref.key and arena; `fresh` is set when it has just changed */
	bool skip;                 /* in: it is not for everybody anyhow */
	bool answered;             /* out: read->result and read->link are there */
	bool fills;                /* out: the store's answer should be given to tier2_fill */
};

/* Asks for all of them at once. */
void tier2_get(const struct tier2 *t, struct tier2_read *reads, size_t n);

/* Gives the others what the store has said since `began_ms` (monotonic), but nothing that may be old: it
 * would outlive the time when the store knows better. */
void tier2_fill(const struct tier2 *t, const struct tier2_read *reads, size_t n, int64_t began_ms);
