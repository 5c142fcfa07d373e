/*
 * The bridge between the keys databases and the Redis shards: keeps shards filled between two marks with keys
 * that it takes from the databases in turn. Any number of processes do this at the same time, each for some
 * of the shards (rounds.h). How many keys a shard has is looked at under its lease only.
 *
 * A key is deleted from the database before it is pushed, so it is never in two places. When the push fails,
 * the keys go back. When nobody knows whether it failed, the push is repeated, which does nothing if it had
 * worked; keys about which nothing can be known in the end are lost, and counted.
 */
#pragma once

#include "keys/keys_db.h"
#include "keys/leased_worker.h"
#include "keys/redis_key_list.h"

struct keysync;

/* What it points at outlives it. */
struct keysync_config {
	struct redis_key_list **lists;
	struct leases **leases; /* for each shelf */
	size_t list_count;
	struct keys_db **dbs;
	size_t db_count;
	uint64_t low, high;
	size_t held_max;
	uint64_t lease_ms;
};

struct keysync_sums {
	uint64_t moved;
	uint64_t returned; /* taken, and put back into a database */
	uint64_t lost;
};

int keysync_start(const struct keysync_config *config, struct keysync **ret, struct err *e);

/* Gives up what it looks after. NULL is fine. */
void keysync_stop(struct keysync *s, struct keysync_sums *ret);
