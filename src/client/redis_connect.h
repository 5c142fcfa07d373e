/*
 * A new connection to the server that a URL means, which has answered: the server itself, or the one that the
 * sentinels name and that calls itself a primary. For client/redis.c only.
 */
#pragma once

#include "client/redis_wire.h"

#include <stdatomic.h>

/* Within REDIS_TIMEOUT_MS; NULL with a sentence. `sentinel` is which of them answered last: it is asked
 * first. */
struct redis_conn *redis_connect(const struct redis_url *u, _Atomic size_t *sentinel, struct err *e);
