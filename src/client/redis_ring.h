/*
 * Several Redis servers, each with its share of the keys: a ring by their names (base/ring.h). A key of a
 * server that is away belongs to it all the same; nobody takes its place.
 */
#pragma once

#include "base/ring.h"
#include "client/redis.h"

enum { REDIS_RING_MAX = 64 };

struct redis_ring {
	size_t count;
	struct redis *nodes[REDIS_RING_MAX];
	struct ring *ring;
};

/* A list of URLs as in redis_urls_cut. Connects to none of them. */
int redis_ring_open(struct str urls, struct redis_ring *ret, struct err *e);
void redis_ring_release(struct redis_ring *r); /* zeroed and half-built ones too */

static inline size_t redis_ring_find(const struct redis_ring *r, struct str key)
{
	return ring_find(r->ring, key);
}

/* 0 when the server answers, otherwise ERR_UNAVAILABLE and a sentence. */
int redis_ping(struct redis *r, struct err *e);

/* 0 when all of them answer, otherwise ERR_UNAVAILABLE and a sentence that names those that do not. */
int redis_ring_ping(struct redis_ring *r, struct err *e);
