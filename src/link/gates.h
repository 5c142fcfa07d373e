/*
 * Click limits. A link with a limit has a gate: the number of clicks that it has had, ever. Whoever answers
 * with its target takes one from the gate first, by compare-and-swap, so the limit holds exactly under any
 * concurrency, at the speed of the cache.
 *
 * The truth across crashes is the event log: a click is on record before its answer leaves, so what was
 * counted is known again after a crash. A gate therefore begins uncounted, and lets nobody through until it
 * was told how many clicks the log and the sink know of (api/count.c).
 *
 * Whoever points at a gate has it pinned: cache entries, lookups under way, answers that wait for their
 * record. There is room for GATES_MAX; when it is used up, gates that nobody has pinned go, and are counted
 * anew when their link is asked for again.
 */
#pragma once

#include "base/def.h"

#include <stdatomic.h>

enum { GATES_MAX = 1 << 20 };

struct click_gate {
	uint64_t link;
	_Atomic int64_t used; /* below 0: not counted, for the -used-th time */
	_Atomic uint32_t pins;
	uint32_t rounds; /* of counting; under the table's lock */
};

struct gates;

struct gates *gates_new(void); /* NULL when memory ran out */
void gates_free(struct gates *g);

/* The gate of the link, pinned, made uncounted when there is none; NULL when memory ran out or all gates are
 * pinned. Pool threads; takes a lock. */
struct click_gate *gates_of(struct gates *g, uint64_t link);

/* The link has just been made: it has had no click. Pool threads; takes a lock. */
void gates_begin(struct gates *g, uint64_t link);

/* Another pin, by somebody who has one. NULL is fine in both. */
void gate_pin(struct click_gate *gate);
void gate_unpin(struct click_gate *gate);

/*
 * The link's limit was changed: before, it may have had none, and then clicks went by without the gate. It
 * must be counted again. Link 0: all gates, when nobody knows which link it was. Pool threads; takes a lock.
 */
void gates_uncount(struct gates *g, uint64_t link);

/* Any thread, without a lock. */
bool gate_is_counted(const struct click_gate *gate);
bool gate_is_spent(const struct click_gate *gate, uint64_t max); /* false while it is not counted */

/* Counting: note the round, have all that was served before brought to the sink, ask for the total. It is
 * taken unless the gate was counted or uncounted in between. A round of 0 says that it is counted. */
int64_t gate_round(const struct click_gate *gate);
void gate_count(struct click_gate *gate, int64_t round, uint64_t used);

/* Takes one click. False: none is left, or the gate is not counted. */
bool gate_take(struct click_gate *gate, uint64_t max);
void gate_give_back(struct click_gate *gate); /* the answer did not happen; nothing while it is not counted */
