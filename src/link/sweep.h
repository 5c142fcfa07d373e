/*
 * Removes links that are over, in steps that are small enough not to be felt: a step asks the store for some
 * of them and removes them in one transaction. Its size follows from how long the last ones took, so that the
 * store's writer is held for a few milliseconds at most.
 */
#pragma once

#include "link/links.h"

struct sweep {
	size_t batch; /* 0: begin small */
};

struct sweep_outcome {
	size_t removed;
	bool more; /* there may be further ones now */
	int64_t took_us;
};

/* Pool threads, one at a time for each `struct sweep`; several sweeps take turns. 0, or the store's failure:
 * nothing was removed. */
int sweep_step(struct sweep *s, struct links *l, int64_t now_ms, struct metrics *m,
               struct sweep_outcome *ret);

/* How long to leave the store to others before the next step: as long as this one took. */
static inline uint64_t sweep_rest_ms(const struct sweep_outcome *step)
{
	return (uint64_t)step->took_us / 1000 + 1;
}
