/*
 * Click limits. A link with a limit has a gate: the number of clicks that it has had, ever. Whoever answers
 * with its target takes one from the gate first, by compare-and-swap, so the limit holds exactly under any
 * concurrency, at the speed of the cache.
 *
 * The truth across crashes is the event log: a click is on record before its answer leaves, so what was
 * counted is known again after a crash. A gate therefore begins uncounted, and lets nobody through until it
 * was told how many clicks the log and the sink know of (redirect/click_count.c).
 *
 * Whoever points at a gate has it pinned: cache entries, lookups under way, answers that wait for their
 * record. There is room for CLICK_LIMITS_MAX; when it is used up, gates that nobody has pinned go, and are
 * counted anew when their link is asked for again.
 */
#pragma once

#include "base/def.h"

#include <stdatomic.h>

enum { CLICK_LIMITS_MAX = 1 << 20 };

struct click_limit {
	uint64_t link;
	_Atomic int64_t used; /* below 0: not counted, for the -used-th time */
	_Atomic uint32_t pins;
	uint32_t rounds; /* of counting; under the table's lock */
};

struct click_limits;

struct click_limits *click_limits_new(void); /* NULL when memory ran out */
void click_limits_free(struct click_limits *g);

/* The gate of the link, pinned, made uncounted when there is none; NULL when memory ran out or all gates are
 * pinned. Pool threads; takes a lock. */
struct click_limit *click_limits_get(struct click_limits *g, uint64_t link);

/* The link has just been made: it has had no click. Pool threads; takes a lock. */
void click_limits_begin(struct click_limits *g, uint64_t link);

/* Another pin, by somebody who has one. NULL is fine in both. */
void click_limit_pin(struct click_limit *limit);
void click_limit_unpin(struct click_limit *limit);

/*
 * The link's limit was changed: before, it may have had none, and then clicks went by without the gate. It
 * must be counted again. Link 0: all gates, when nobody knows which link it was. Pool threads; takes a lock.
 */
void click_limits_uncount(struct click_limits *g, uint64_t link);

/* Any thread, without a lock. */
bool click_limit_is_counted(const struct click_limit *limit);
bool click_limit_is_spent(const struct click_limit *limit, uint64_t max); /* false while it is not counted */

/* Counting: note the round, have all that was served before brought to the sink, ask for the total. It is
 * taken unless the gate was counted or uncounted in between. A round of 0 says that it is counted. */
int64_t click_limit_round(const struct click_limit *limit);
void click_limit_count(struct click_limit *limit, int64_t round, uint64_t used);

/* Takes one click. False: none is left, or the gate is not counted. */
bool click_limit_take(struct click_limit *limit, uint64_t max);
void click_limit_give_back(
    struct click_limit *limit); /* the answer did not happen; nothing while it is not counted */
