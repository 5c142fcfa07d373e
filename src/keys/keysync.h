/*
 * `curt keysync`: keeps Redis shards filled between two marks with keys from the keys databases, which it
 * takes from in turn. Any number of processes do this at the same time, each for some of the shards
 * (leased_worker.h). Only the holder of a shard's lease counts its keys.
 *
 * A key is deleted from its database before it is pushed, so it is never in two places. If the push fails,
 * the keys go back. If its outcome is unknown, the push is repeated, which does nothing if it had
 * succeeded. Keys that stay uncertain are lost, and counted.
 */
#pragma once

#include "keys/keys_db.h"
#include "keys/leased_worker.h"
#include "keys/redis_key_list.h"

struct keysync;

/* All pointers must outlive it. */
struct keysync_config {
	struct redis_key_list **lists;
	struct leases **leases; /* one per list */
	size_t list_count;
	struct keys_db **dbs;
	size_t db_count;
	uint64_t low, high;
	size_t held_max;
	uint64_t lease_ms;
};

struct keysync_sums {
	uint64_t moved;
	uint64_t returned; /* put back into a database */
	uint64_t lost;
};

int keysync_start(const struct keysync_config *config, struct keysync **ret, struct err *e);

/* Releases all leases. Takes NULL. */
void keysync_stop(struct keysync *s, struct keysync_sums *ret);
