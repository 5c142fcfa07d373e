/*
 * The generator: keeps keys databases filled between two marks. Any number of processes do this at the same
 * time, each for some of the databases (rounds.h).
 *
 * Its keys come from an origin that no two processes get the same key from: ids of the store's counter under
 * the store's cipher, as the servers' own keys are, and keys that links have left behind after their
 * quarantine (link/claim.h). So no server makes a key that waits in a stock, and the store refuses an alias
 * that reads like one.
 *
 * Keys that a database does not take are kept for the next one that wants some. Lost are those of which
 * nobody knows whether it took them, and what is kept at the end; they are counted.
 */
#pragma once

#include "keys/keys_db.h"
#include "keys/leased_worker.h"

struct keygen;

/* What it points at outlives the generator. */
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
	uint64_t made; /* and in a database */
	uint64_t lost;
};

int keygen_start(const struct keygen_config *config, struct keygen **ret, struct err *e);

/* Gives up what it looks after. NULL is fine. */
void keygen_stop(struct keygen *g, struct keygen_sums *ret);
