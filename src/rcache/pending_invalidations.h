/*
 * Changes that a node of the cache has not acknowledged yet: being told right now, or owed because it did not
 * answer. While a key is here, this process must not believe what the node says about it.
 *
 * What was acknowledged is remembered for a while: a node that comes back may be another machine, promoted
 * with what had reached it, or the same one without its memory. Then it is told once more. The time counts
 * from one acknowledged change to the next, so an outage does not use it up.
 *
 * Bounded: when more than PENDING_KEYS_MAX are not acknowledged, the keys that find no room are not
 * remembered one by one; everything that the node holds counts as changed instead.
 */
#pragma once

#include "base/arena.h"

enum { PENDING_KEYS_MAX = 65536, PENDING_RECENT_MS = 10000 };

struct pending;

struct pending *pending_new(void); /* NULL when memory ran out */
void pending_free(struct pending *o);

/* Any thread. Before and after an attempt to tell the node of a change; `told` is whether it worked. */
void pending_begin(struct pending *o, const struct str *keys, size_t n);
void pending_end(struct pending *o, const struct str *keys, size_t n, bool acknowledged);

bool pending_any(const struct pending *o);
bool pending_has(struct pending *o, struct str key);
size_t pending_count(struct pending *o); /* not acknowledged */

/* Begins another attempt for up to `max` keys that are owed: copies of them in the arena. */
size_t pending_pick(struct pending *o, struct arena *arena, struct str *ret, size_t max);

/* The node may have forgotten: what it acknowledged lately is owed again. */
void pending_recall(struct pending *o);

/* Is everything owed, and since when (monotonic) has no further key found no room? `ret_version` is for
 * pending_all_end, which does nothing if there was another such key in the meantime. */
bool pending_all_begin(struct pending *o, int64_t *ret_since_ms, uint64_t *ret_version);
void pending_all_end(struct pending *o, uint64_t version);
