/*
 * Changes that a node of the cache has not acknowledged yet: being told right now, or owed because it did not
 * answer. While a key is here, this process must not believe what the node says about it.
 *
 * What was acknowledged is remembered for a while: a node that comes back may be another machine, promoted
 * with what had reached it, or the same one without its memory. Then it is told once more. The time counts
 * from one acknowledged change to the next, so an outage does not use it up.
 *
 * Bounded: when more than OWED_KEYS_MAX are not acknowledged, the keys that find no room are not remembered
 * one by one; everything that the node holds counts as changed instead.
 */
#pragma once

#include "base/arena.h"

enum { OWED_KEYS_MAX = 65536, OWED_RECENT_MS = 10000 };

struct owed;

struct owed *owed_new(void); /* NULL when memory ran out */
void owed_free(struct owed *o);

/* Any thread. Before and after an attempt to tell the node of a change; `told` is whether it worked. */
void owed_begin(struct owed *o, const struct str *keys, size_t n);
void owed_end(struct owed *o, const struct str *keys, size_t n, bool told);

bool owed_any(const struct owed *o);
bool owed_has(struct owed *o, struct str key);
size_t owed_count(struct owed *o); /* not acknowledged */

/* Begins another attempt for up to `max` keys that are owed: copies of them in the arena. */
size_t owed_pick(struct owed *o, struct arena *arena, struct str *ret, size_t max);

/* The node may have forgotten: what it acknowledged lately is owed again. */
void owed_recall(struct owed *o);

/* Is everything owed, and since when (monotonic) has no further key found no room? `ret_version` is for
 * owed_all_end, which does nothing if there was another such key in the meantime. */
bool owed_all_begin(struct owed *o, int64_t *ret_since_ms, uint64_t *ret_version);
void owed_all_end(struct owed *o, uint64_t version);
