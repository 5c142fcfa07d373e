/*
 * Limits failed attempts (unknown keys, wrong passwords) per address, account or link in a period.
 *
 * Addresses are unbounded, so the table has a fixed size: sets of four entries, each one atomic word, found
 * by a keyed hash of what is limited. A full set evicts an expired entry first, then the one with the fewest
 * attempts: a flood of new addresses cannot push out those with the most attempts. Two keys with the same set
 * and tag share a limit; with 2^18 entries and 20 bits of tag that is rare.
 *
 * Lock-free, shared by all workers. Memory is resident only where it was touched.
 */
#pragma once

#include "base/def.h"
#include "link/budget.h"

struct throttle;

enum { THROTTLE_MAX = (1 << 20) - 1, THROTTLE_PERIOD_MS_MAX = 3600 * 1000 }; /* larger values are cut */

/* At most `max` attempts in a period, which begins with the first. */
struct throttle_rule {
	uint32_t max; /* 0: no limit; nothing is counted */
	uint32_t period_ms;
};

struct throttle *throttle_new(void); /* NULL: out of memory */
void throttle_free(struct throttle *t);

/* The key of what is limited. All kinds of limits share the table, so the kind is part of the key. */
uint64_t throttle_key(const struct throttle *t, unsigned kind, const void *bytes, size_t len);

/* Takes one attempt. False: none is left. `ret` may be NULL. */
bool throttle_take(struct throttle *t, uint64_t key, const struct throttle_rule *rule, int64_t mono_ms,
                   struct meter_reading *ret);

/* Returns an attempt that did not fail, unless its period has ended. */
void throttle_refund(struct throttle *t, uint64_t key, const struct throttle_rule *rule, int64_t mono_ms);

/* Are all attempts used up? Takes none. */
bool throttle_is_spent(const struct throttle *t, uint64_t key, const struct throttle_rule *rule,
                       int64_t mono_ms, struct meter_reading *ret);

/* Could any key of any kind be used up now? One relaxed load, for the hot path. */
bool throttle_any_spent(const struct throttle *t, int64_t mono_ms);
