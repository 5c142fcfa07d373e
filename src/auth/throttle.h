/*
 * Budgets for strangers: how often something may go wrong for one address, one account, one link in a period
 * (misses, wrong passwords). There is no end of strangers, so this is a table of fixed size: each entry is
 * one atomic word, found by a keyed hash of whoever it is about, four to a set. When a set is full, one whose
 * period is over goes first, then the one with the fewest tries: a flood of new names cannot wash out those
 * that have tried most. Two that share an entry's tag share its budget; with 2^18 entries and 20 bits of tag
 * that is rare.
 *
 * Lock-free, shared by all workers; memory is resident only where it was touched.
 */
#pragma once

#include "base/def.h"
#include "link/budget.h"

struct throttle;

enum { THROTTLE_MAX = (1 << 20) - 1, THROTTLE_PERIOD_MS_MAX = 3600 * 1000 }; /* larger ones count as these */

/* So many in a period that begins with the first. */
struct throttle_rule {
	uint32_t max; /* 0: no bound, and nothing is kept */
	uint32_t period_ms;
};

struct throttle *throttle_new(void); /* NULL when memory ran out */
void throttle_free(struct throttle *t);

/* What a try is about: a kind, so that tables can be shared between kinds, and some bytes. */
uint64_t throttle_key(const struct throttle *t, unsigned kind, const void *bytes, size_t len);

/* Takes one. False when none is left. `ret` may be NULL. */
bool throttle_take(struct throttle *t, uint64_t name, const struct throttle_rule *rule, int64_t mono_ms,
                   struct meter_reading *ret);

/* Gives one back, if its period is not over: it was not wrong after all. */
void throttle_refund(struct throttle *t, uint64_t name, const struct throttle_rule *rule, int64_t mono_ms);

/* Is none left? Takes nothing. */
bool throttle_is_spent(const struct throttle *t, uint64_t name, const struct throttle_rule *rule,
                       int64_t mono_ms, struct meter_reading *ret);

/* Could any name of any kind be spent now? One relaxed load: the hot path asks this first. */
bool throttle_any_spent(const struct throttle *t, int64_t mono_ms);
