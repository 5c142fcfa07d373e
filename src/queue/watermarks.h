/*
 * Watermarks: how far each writer's events have come in each partition. A forwarder that restarts sends
 * events without a receipt again, in the same order and to the same partition. So an event at or before its
 * writer's watermark is a repetition.
 *
 * Watermarks are stored with the positions, as two streams each: segment and position. The number of such a
 * stream is a hash with the highest bit set, which no partition's number has.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"

struct watermarks;

int watermarks_new(struct watermarks **ret);
void watermarks_free(struct watermarks *m);

/* Sets the stored positions; those that are no watermarks are ignored. They apply to partitions that were
 * forgotten, or not seen yet. */
int watermarks_load(struct watermarks *m, const struct position *positions, size_t count);
void watermarks_forget(struct watermarks *m, uint64_t partition);

/* 1: a new event, to which its writer's watermark advances; 0: a repetition; ERR_NOMEM. */
int watermarks_advance(struct watermarks *m, uint64_t partition, struct event_id id);
void watermarks_undo(struct watermarks *m); /* the last watermarks_advance that returned 1 */

/* Changes since the last commit or rewind, at most `watermarks_changes_max`. */
size_t watermarks_changes_max(const struct watermarks *m);
size_t watermarks_changes(const struct watermarks *m, struct advance *ret);
void watermarks_commit(struct watermarks *m);
void watermarks_rewind(struct watermarks *m);
