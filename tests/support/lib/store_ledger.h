/*
 * A workload for a store that may fail, and the book of what it said. Batch b creates a tagged link and a
 * name, gives a title to the link of batch b - 1 and takes away the name of batch b - 2, all in one apply;
 * then it leases ten numbers. From the book follows what must be there afterwards, what must not, and what
 * happens all or not at all.
 */
#pragma once

#include "store/store.h"

enum { LEDGER_BATCHES = 64 };

enum ledger_said { LEDGER_NOTHING, LEDGER_DONE, LEDGER_REFUSED, LEDGER_UNCERTAIN };

struct ledger {
	enum ledger_said batches[LEDGER_BATCHES]; /* by number, from 1 */
	uint64_t leased_end;                      /* every number below may have been leased */
};

/* Does batch b, with `filler` more links of 8 KB each, and writes down what the store said: 0 or its error.
 */
int ledger_apply(struct ledger *ledger, struct store *store, unsigned b, size_t filler);
int ledger_lease(struct ledger *ledger, struct store *store);

/* Asserts that a store that works holds what the book says. Takes no notice of what was uncertain but that it
 * happened all or not at all. */
void ledger_check(struct ledger *ledger, struct store *store);
