/* Removes expired links in steps that are too small to be noticed. A step finds some in the store, and
 * removes them in one transaction. Its size adapts to the duration of the last steps, so that it holds the
 * store's writer for a few milliseconds (longer when SQLite checkpoints, as after any change). */
#pragma once

#include "link/links.h"

struct sweep {
	size_t batch; /* 0: start small */
};

struct sweep_outcome {
	size_t removed;
	bool more; /* more may be left */
	int64_t took_us;
};

/* Pool threads, one at a time per `struct sweep`; several sweeps take turns. 0, or an error of the store:
 * nothing was removed. */
int sweep_step(struct sweep *s, struct links *l, int64_t now_ms, struct metrics *m,
               struct sweep_outcome *ret);

/*
 * Runs steps until no expired link is left, `until_ms` has passed, or a stop is requested, but at least
 * one; pauses as long as the steps take. It needs its own thread, which runs only in idle time
 * (thread_only_when_idle), so visitors do not wait for it. But a busy machine could then suspend a step
 * that holds the store's writer. So it checks for idle time before each step; after waiting in vain for a
 * while it makes a minimal step.
 */
struct sweep_run {
	struct links *links;
	struct metrics *metrics;
	int64_t until_ms;                     /* monotonic */
	bool (*wait)(void *ctx, uint64_t ms); /* true: stop */
	void *ctx;
	uint64_t removed; /* out */
	bool more;        /* out: more may be left */
};

/* 0, or an error of the store; earlier steps stay done. */
int sweep_run(struct sweep_run *run);
