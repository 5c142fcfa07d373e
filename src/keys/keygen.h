/*
 * The generator: keeps keys databases filled between two marks. Any number of processes do this at the same
 * time, each for some of the databases (rounds.h).
 *
 * A key is made of an id from the store's counter by the store's cipher (link/key.h), as the servers' own
 * keys are. So no two generators ever make the same key, no server makes one that waits in a stock, and the
 * store refuses an alias that reads like one. Keys that links have left behind after their quarantine
 * (store_claim) come first, marked as used before.
 */
#pragma once

#include "keys/rounds.h"
#include "keys/stock.h"
#include "link/key.h"
#include "store/store.h"

struct keygen;

/* What it points at outlives the generator. */
struct keygen_config {
	struct store *store;
	const struct key_cipher *cipher;
	struct leases *leases;
	struct stock **stocks;
	size_t stock_count;
	uint64_t low, high;
	uint64_t quarantine_ms;
	size_t held_max;
	uint64_t lease_ms;
};

int keygen_start(const struct keygen_config *config, struct keygen **ret, struct err *e);

/* Gives up what it looks after, and says how many keys it has made. NULL is fine. */
void keygen_stop(struct keygen *g, uint64_t *ret_made);
