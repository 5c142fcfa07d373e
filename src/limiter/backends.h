/* The backends of the role `limiter`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "limiter/limiter.h"

/* redis:// or redis+sentinel://; several separated by commas are a ring. `installation` is the same for all
 * servers on one store, and another for those on another: letters and digits. */
int limiter_redis_open(const char *urls, const char *installation, struct limiter **ret, struct err *e);
