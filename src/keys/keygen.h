/*
 * `curt keygen`: keeps keys databases filled between two marks. Any number of processes do this at the same
 * time, each for some of the databases (leased_worker.h).
 *
 * Keys come from a source that never yields a key twice: ids of the store's counter under the store's
 * cipher, like the servers' own keys, and keys of expired links after their quarantine (link/claim.h). So
 * no server makes a key that waits in a keys database, and the store refuses an alias that equals one.
 *
 * Keys that a database refuses are kept for the next one. Lost, and counted, are keys whose insertion is
 * uncertain, and keys that are left at the end.
 */
#pragma once

#include "keys/keys_db.h"
#include "keys/leased_worker.h"

struct keygen;

/* All pointers must outlive the generator. */
struct keygen_config {
	struct key_source *origin;
	struct leases *leases;
	struct keys_db **dbs;
	size_t db_count;
	uint64_t low, high;
	size_t held_max;
	uint64_t lease_ms;
};

struct keygen_sums {
	uint64_t made; /* added to a database */
	uint64_t lost;
};

int keygen_start(const struct keygen_config *config, struct keygen **ret, struct err *e);

/* Releases all leases. Takes NULL. */
void keygen_stop(struct keygen *g, struct keygen_sums *ret);
