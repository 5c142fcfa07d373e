/* Named threads with all signals blocked: the main thread alone takes signals. */
#pragma once

#include "base/err.h"

#include <pthread.h>

/* `name` shows in top and gdb; at most 15 bytes. */
int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg, struct err *e);

/* The calling thread steps back behind the others when cores are scarce; 0 is the usual, 19 the most. */
void thread_step_back(int nice);
