/* The backends of the role `limiter`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "limiter/limiter.h"

/* redis:// or redis+sentinel://; several separated by commas are a ring. */
int limiter_redis_open(const char *urls, struct limiter **ret, struct err *e);

/* For tests: all limiters of this process that were opened with the same name settle with each other. */
int limiter_memory_open(const char *name, struct limiter **ret, struct err *e);
