/*
 * What every backend of the role `queue` promises (queue.h). A bed writes events into a log and gives a queue
 * on them, however they get there; what is in the log is what must come out, to the last byte.
 */
#pragma once

#include "queue/queue.h"

struct event_log;

/* Somebody who keeps positions, and insists on where a step begins. */
struct queue_keeper {
	struct position *positions;
	size_t count, cap;
};

void keeper_release(struct queue_keeper *k);
void keeper_take(struct queue_keeper *k, const struct advance *advances, size_t count);

struct queue_bed {
	const char *name;
	const char *folder; /* of the log */
	struct event_log **log;
	bool has_one_order;   /* of all writers' impressions with the same id; otherwise of each writer's */
	bool keeps_positions; /* it is the reader who does, by `keeper` */
	struct queue_keeper *keeper;
	/* Skips the test when the queue is not to be had. */
	void (*need)(void);
	/* Makes sure that the queue can have all that is in the log. */
	void (*arrive)(void);
	struct queue *(*open)(void);
	/* The log begins a new boot. */
	void (*reboot)(void);
};

/* Runs all of it; each test begins with `setup`, which fills in a bed. Returns how many failed. */
int queue_suite_run(const char *name, int (*setup)(void **state), int (*teardown)(void **state));

/* Set by `setup`. */
extern struct queue_bed queue_bed;
