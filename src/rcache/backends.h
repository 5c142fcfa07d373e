/* The backends of the role `rcache`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "rcache/rcache.h"

/*
 * Several redis:// or redis+sentinel:// URLs separated by commas, on a ring by their address (or, with
 * Sentinel, by the name of the primary). `installation` is the same for all servers on one store, and another
 * for those on another: letters and digits. It opens also when no node answers: then everything is a miss.
 */
int rcache_redis_open(const char *urls, const char *installation, const struct rcache_listener *listener,
                      struct rcache **ret, struct err *e);
