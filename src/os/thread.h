/* Named threads with all signals blocked: the main thread alone takes signals. */
#pragma once

#include "base/err.h"

#include <pthread.h>

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
