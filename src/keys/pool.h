/* A key source over the Redis shards that keysync fills. It keeps some keys ready, taken in batches from
 * the fullest shard that answers, and fetches more before they run out, so that a request rarely waits for
 * Redis. Unused keys go back at the end. */
#pragma once

#include "link/key_source.h"

enum { POOL_BATCH_MAX = 1000 };

/* `urls` as in keys.url. Does not wait for any shard. */
int key_pool_open(const char *urls, size_t batch, struct key_source **ret, struct err *e);
