/* Constructors of the rcache backends. Only the composition root and tests include this. */
#pragma once

#include "rcache/rcache.h"

/* Several redis:// or redis+sentinel:// URLs separated by commas, on a ring by their address (with
 * Sentinel, by the name of the primary). `installation` identifies the store: letters and digits, the same
 * for all its servers. It opens even if no node answers: then everything is a miss. */
int rcache_redis_open(const char *urls, const char *installation, const struct rcache_listener *listener,
                      struct rcache **ret, struct err *e);
