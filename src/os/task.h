/*
 * Background work: named tasks.
 *
 * A task is a function that is run again and again: after a delay, when it is woken, or both. It has a thread
 * of its own, so a run that blocks holds up no other task.
 *
 * Delay. A run returns the delay until the next run: TASK_ON_WAKE, or milliseconds. The delay counts from the
 * end of the run, on the monotonic clock. So a periodic task returns its period; a run that takes longer than
 * the period moves all later runs, and runs never pile up.
 *
 * Wake. task_wake asks for a run at once, whatever the delay. It takes no lock and never blocks, so event
 * loops may call it. No wake-up is lost: a run begins after the call, and sees everything that the caller
 * wrote before it. Wake-ups that come before that run begins share it; one that comes during a run causes
 * another run. Before task_start and after the stop, a wake-up does nothing.
 *
 * Stop. task_ask_stop returns at once: no run begins any more, task_is_stopping is true, and task_sleep
 * returns. A run under way goes on to its end; then `end`, if there is one, is called once on the thread,
 * also when the task never ran. task_stop waits for all of that, and for the thread. How long that takes is
 * bounded by the longest blocking call of the run, if the run asks task_is_stopping between two of them. Any
 * number of threads may stop a task, again and again; its memory may go when all have returned. A task must
 * not stop itself.
 *
 * The memory is the caller's. Zeroed, it is a task that was never started: stopping it does nothing.
 */
#pragma once

#include "base/err.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

enum {
	TASK_ON_WAKE = -1,        /* as a delay: until it is woken */
	TASK_ONLY_WHEN_IDLE = 20, /* as a `nice`: thread_only_when_idle */
};

struct task;

struct task_config {
	const char *name; /* of the thread: at most 15 bytes */
	int64_t (*run)(struct task *t);
	void (*end)(struct task *t); /* NULL: none */
	int64_t first_ms;            /* the delay until the first run */
	int nice;                    /* 0 normal, up to 19, or TASK_ONLY_WHEN_IDLE */
};

struct task {
	struct task_config config;
	bool started;
	pthread_t thread;
	sem_t wake; /* the thread looks at `woken` and `stopping` after each post */
	_Atomic bool woken;
	_Atomic bool stopping;
	pthread_mutex_t lock;   /* guards what follows */
	pthread_cond_t changed; /* it has ended, or the thread was joined */
	bool ended, joining, joined;
};

int task_start(struct task *t, const struct task_config *config, struct err *e);
void task_wake(struct task *t); /* any thread */

void task_ask_stop(struct task *t);
bool task_wait_end(struct task *t, uint64_t timeout_ms) MUST_CHECK; /* false: it has not ended by then */
void task_stop(struct task *t);

/* Was it started, whatever came of it since? */
static inline bool task_was_started(const struct task *t)
{
	return t->started;
}

/* For a run: has the stop been asked for? One relaxed load. */
static inline bool task_is_stopping(const struct task *t)
{
	return atomic_load_explicit(&t->stopping, memory_order_relaxed);
}

/* For a run: sleeps until the time is over or the stop is asked for; true: it is. */
bool task_sleep(struct task *t, uint64_t ms);
