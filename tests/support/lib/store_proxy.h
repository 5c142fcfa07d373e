/*
 * A part of a ring between the ring and the real one, so that a test can keep the real one when the ring is
 * closed, share it between several rings, take it away, lose answers, and make steps take time.
 */
#pragma once

#include "store/part.h"

#include <stdatomic.h>

struct store_proxy {
	struct store base;
	struct store_ops ops;
	struct store_part_ops part_ops;
	struct store *inner;
	atomic_bool is_away;                  /* every call is ERR_UNAVAILABLE, and nothing happens */
	atomic_bool loses_commits;            /* `apply` is done and says ERR_UNCERTAIN */
	atomic_bool forgets_moves;            /* the mover dies before move_end: what was put stays in both */
	atomic_bool is_old;                   /* lookups are answered as by a replica of unknown age */
	atomic_bool loses_lookups;            /* `lookup` as a part fails */
	atomic_bool holds_rings;              /* ring_set waits: a transaction stays open there */
	atomic_bool refuses_rings;            /* ring_set has waited for one long enough: ERR_BUSY */
	void (*_Atomic ring_was_asked)(void); /* ring_get calls it when it knows its answer */
	atomic_uint pause_us_max;             /* before and after the steps of moves, lookups and changes */
	atomic_ulong lookups, moves;          /* calls */
	atomic_ulong fresh;                   /* links that were asked for and may just have changed */
};

/* `inner` stays the test's; the store is p->base. */
void store_proxy_init(struct store_proxy *p, struct store *inner);

/* It does whatever it is asked again, and nobody waits in it any more. */
void store_proxy_behave(struct store_proxy *p);
