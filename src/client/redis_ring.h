/* Several Redis servers, each with its share of the keys: a ring by their names (base/ring.h). Keys of a
 * server that is down still belong to it; no other server takes them over. */
#pragma once

#include "base/ring.h"
#include "client/redis.h"

enum { REDIS_RING_MAX = 64 };

struct redis_ring {
	size_t count;
	struct redis *nodes[REDIS_RING_MAX];
	struct ring *ring;
};

/* A list of URLs as in redis_urls_cut. Does not connect. */
int redis_ring_open(struct str urls, struct redis_ring *ret, struct err *e);
void redis_ring_release(struct redis_ring *r); /* also if zeroed or half built */

static inline size_t redis_ring_find(const struct redis_ring *r, struct str key)
{
	return ring_find(r->ring, key);
}

/* 0 if the server answers, otherwise ERR_UNAVAILABLE with a sentence. */
int redis_ping(struct redis *r, struct err *e);

/* 0 if all answer, otherwise ERR_UNAVAILABLE with a sentence that names the others. */
int redis_ring_ping(struct redis_ring *r, struct err *e);
