/*
 * Several blocking calls side by side. A few threads take what is handed over; what none of them is free for,
 * the caller does itself. So a database that answers late costs the others a thread, never a place in a
 * queue.
 */
#pragma once

#include "base/err.h"
#include "base/list.h"

struct fan;
struct fan_call;

struct fan_task {
	void (*run)(struct fan_task *);

	/* the fan's own */
	struct list list;
	struct fan_call *call;
	bool waits; /* in the queue */
};

int fan_new(unsigned threads, struct fan **ret, struct err *e);
void fan_free(struct fan *f); /* nothing may be under way */

/* Returns when all are done. */
void fan_run(struct fan *f, struct fan_task *const *tasks, size_t n);
