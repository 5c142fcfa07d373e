/* Constructors of the limiter backends. Only the composition root and tests include this. */
#pragma once

#include "limiter/limiter.h"

/* redis:// or redis+sentinel://; several separated by commas form a ring. `installation` identifies the
 * store: letters and digits, the same for all its servers. */
int limiter_redis_open(const char *urls, const char *installation, struct limiter **ret, struct err *e);
