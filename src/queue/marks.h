/*
 * How far each writer's events have come in each partition. A forwarder that starts again sends what it has
 * no receipt for a second time, in the same order and to the same partition: an event at or before its
 * writer's mark was there before.
 *
 * Whoever keeps positions keeps the marks with them, as two streams each: the segment's and the position's.
 * Their numbers are hashes with the highest bit set, which no partition's number has.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"

struct marks;

int marks_new(struct marks **ret);
void marks_free(struct marks *m);

/* What is kept, as it was told at resume; positions that are no marks' are passed over. For marks of
 * partitions that were forgotten, or never met. */
int marks_load(struct marks *m, const struct position *positions, size_t count);
void marks_forget(struct marks *m, uint64_t partition);

/* 1: it is a new one, and its writer's mark moves there; 0: it was there before; ERR_NOMEM. */
int marks_pass(struct marks *m, uint64_t partition, struct event_id id);
void marks_undo(struct marks *m); /* the last marks_pass that said 1 */

/* Steps since the last commit or rewind, at most `marks_steps_max`. */
size_t marks_steps_max(const struct marks *m);
size_t marks_steps(const struct marks *m, struct advance *ret);
void marks_commit(struct marks *m);
void marks_rewind(struct marks *m);
