/* The backends of the role `limiter`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "limiter/limiter.h"

/* redis:// or redis+sentinel://; several separated by commas are a ring. */
int limiter_redis_open(const char *urls, struct limiter **ret, struct err *e);
