/*
 * Named threads with all signals blocked: the main thread alone takes signals. For work that comes again and
 * again there is os/task.h.
 */
#pragma once

#include "base/err.h"

#include <pthread.h>
#include <time.h>

/* `name` shows in top and gdb; at most 15 bytes. */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg, struct err *e);

/* The calling thread steps back behind the others when cores are scarce; 0 is the usual, 19 the most. */
void thread_step_back(int nice);

/* From now on the calling thread runs only when no other wants its core; there is no way back. On a machine
 * without idle time it hardly runs at all, also when it holds a lock: see sweep.h for a way to live with it.
 */
void thread_only_when_idle(void);

/* Does the calling thread get a core when it wants one? It uses one for a moment to find out. */
bool thread_has_room(void);

/* A condition variable whose timed waits go by the monotonic clock. */
void cond_init_mono(pthread_cond_t *c);

/* Waits for a signal until `at` (clock_mono_after); false: that time has come. Like every wait, it may return
 * without a signal:
 *	while (!done && cond_wait_until(&c, &lock, &at))
 *		;
 */
bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *at);
