/* Named threads with all signals blocked: only the main thread takes signals. os/task.h is for repeated work. */
#pragma once

#include "base/err.h"

#include <pthread.h>
#include <time.h>

/* `name` shows in top and gdb; at most 15 bytes. */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg, struct err *e);

/* Lowers the calling thread's priority: 0 is normal, 19 the lowest. */
void thread_step_back(int nice);

/* From now on the calling thread runs only when no other wants its core. It cannot be undone. On a machine
 * without idle time the thread hardly runs, even when it holds a lock: link/sweep.h shows how to handle that. */
void thread_only_when_idle(void);

/* Whether the calling thread gets a core when it wants one. It uses one for 50 µs to find out. */
bool thread_has_room(void);

/* A condition variable whose timed waits go by the monotonic clock. */
void cond_init_mono(pthread_cond_t *c);

/* Waits for a signal until `at` (clock_mono_after); false: timed out. It may return without a signal:
 *	while (!done && cond_wait_until(&c, &lock, &at))
 *		;
 */
bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *at);
