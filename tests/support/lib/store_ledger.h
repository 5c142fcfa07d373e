/*
 * A workload for a store that may fail, and the book of what it said. Batch b in one apply of links
 *	- creates a tagged link and a name, gives a title to the link of batch b - 1 and takes away the name
 *	  of batch b - 2; puts the first user on the link's list;
 *	- makes a name that is over at once, and reaps that of batch b - 1, which rests then;
 * and in one apply of accounts
 *	- makes a user, and a key with a user of its own; ends the first user's sessions, and tells of a use
 *	  of the first key;
 *	- makes a session;
 * then it leases ten numbers. From the book follows what must be there afterwards, what must not, and what
 * happens all or not at all.
 */
#pragma once

#include "store/store.h"

enum { LEDGER_BATCHES = 64 };

enum ledger_said { LEDGER_NOTHING, LEDGER_DONE, LEDGER_REFUSED, LEDGER_UNCERTAIN };

struct ledger {
	enum ledger_said batches[LEDGER_BATCHES]; /* of links, by number from 1 */
	enum ledger_said accounts[LEDGER_BATCHES];
	uint64_t leased_end; /* every number below may have been leased */
};

/* Does batch b, with `filler` more links of 8 KB each, and writes down what the store said: 0 or its error.
 */
int ledger_apply(struct ledger *ledger, struct store *store, unsigned b, size_t filler);
int ledger_lease(struct ledger *ledger, struct store *store);

/* Asserts that a store that works holds what the book says. Takes no notice of what was uncertain but that it
 * happened all or not at all. */
void ledger_check(struct ledger *ledger, struct store *store);
