/*
 * Several blocking calls side by side. A few threads take what is handed over; what none of them is free for,
 * the caller does itself. So a database that answers late costs the others a thread, never a place in a
 * queue.
 */
#pragma once

#include "base/err.h"

struct fan;

int fan_new(unsigned threads, struct fan **ret, struct err *e);
void fan_free(struct fan *f); /* nothing may be under way */

/* Calls run(ctx, i) for each i below n, and returns when all are done. */
void fan_run(struct fan *f, size_t n, void (*run)(void *ctx, size_t i), void *ctx);
