/*
 * Removes links that are over, in steps that are small enough not to be felt: a step asks the store for some
 * of them and removes them in one transaction. Its size follows from how long the last ones took, so that the
 * store's writer is held for a few milliseconds (some more when SQLite moves its log into the file, as after
 * any change).
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

/*
 * Step after step, and at least one, until nothing is left, `until_ms` has come or the end is asked for, with
 * rests as long as the steps. On a thread of its own, which runs only when the machine has idle time
 * (thread_only_when_idle): so visitors do not wait for it. But then a step that holds the store's writer
 * could be left standing by a machine that has become busy; so each step is preceded by a look whether there
 * is room, and when there was none for a while, the smallest step is made all the same.
 */
struct sweep_run {
	struct links *links;
	struct metrics *metrics;
	int64_t until_ms;                     /* monotonic */
	bool (*wait)(void *ctx, uint64_t ms); /* true: the end is asked for */
	void *ctx;
	uint64_t removed; /* out */
	bool more;        /* out: there may be further ones */
};

/* 0, or the store's failure; what was removed before stays so. */
int sweep_run(struct sweep_run *run);
