/*
 * A key source over the Redis shards that keysync fills. It keeps a few keys at hand, taken in batches from
 * the shard that has the most of those that answer, and takes more before they run out, so that who wants a
 * key rarely waits for Redis. What is at hand at the end goes back.
 */
#pragma once

#include "link/source.h"

enum { POOL_BATCH_MAX = 1000 };

/* `urls` as in keys.url. Does not wait for any shard to answer. */
int key_pool_open(const char *urls, size_t batch, struct key_source **ret, struct err *e);
