/*
 * Invalidations that a node has not acknowledged: being sent, or pending because it did not answer. While a
 * key is here, this process ignores the node's value for it.
 *
 * Acknowledged invalidations are remembered for a while. A node that comes back may be another machine,
 * promoted with incomplete data, or the same one without its data; then they are sent again. The time runs
 * only while changes are acknowledged, so an outage does not use it up.
 *
 * Bounded: beyond PENDING_KEYS_MAX, keys are not remembered singly; everything on the node counts as
 * changed.
 */
#pragma once

#include "base/arena.h"

enum { PENDING_KEYS_MAX = 65536, PENDING_RECENT_MS = 10000 };

struct pending;

struct pending *pending_new(void); /* NULL: out of memory */
void pending_free(struct pending *o);

/* Any thread. Before and after an attempt to deliver a change; `acknowledged`: it succeeded. */
void pending_begin(struct pending *o, const struct str *keys, size_t n);
void pending_end(struct pending *o, const struct str *keys, size_t n, bool acknowledged);

bool pending_any(const struct pending *o);
bool pending_has(struct pending *o, struct str key);
size_t pending_count(struct pending *o); /* not acknowledged yet */

/* Starts another attempt for up to `max` pending keys; copies them into the arena. */
size_t pending_pick(struct pending *o, struct arena *arena, struct str *ret, size_t max);

/* The node may have lost its data: recently acknowledged keys are pending again. */
void pending_recall(struct pending *o);

/* Are all keys pending, and since when (monotonic) has no further key found no room? `ret_version` is for
 * pending_all_end, which does nothing if another such key came meanwhile. */
bool pending_all_begin(struct pending *o, int64_t *ret_since_ms, uint64_t *ret_version);
void pending_all_end(struct pending *o, uint64_t version);
