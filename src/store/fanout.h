/*
 * Runs several blocking calls in parallel on a small thread pool. If no thread is free, the caller runs the
 * call itself. So a slow database occupies threads, but never delays calls to other databases in a queue.
 */
#pragma once

#include "base/err.h"

struct fanout;

int fanout_new(unsigned threads, struct fanout **ret, struct err *e);
void fanout_free(struct fanout *f); /* no call may be running */

/* Calls run(ctx, i) for each i below n, and returns when all are done. */
void fanout_run(struct fanout *f, size_t n, void (*run)(void *ctx, size_t i), void *ctx);
