/*
 * Objects of one size for one thread: freed ones are kept and handed out again, so a steady user
 * allocates nothing. Bounded: beyond `max` live objects pool_get says NULL, and the caller has an
 * answer for that. Objects come as they were left by their last user (zeroed the first time).
 */
#pragma once

#include "base/def.h"

struct pool {
	size_t object_bytes;
	size_t max;
	size_t live;
	void *free_list;
};

void pool_init(struct pool *p, size_t object_bytes, size_t max);
void *pool_get(struct pool *p) MUST_CHECK;
void pool_put(struct pool *p, void *object); /* NULL is fine */
void pool_release(struct pool *p,
                  void (*object_release)(void *)); /* all must be back; the callback may be NULL */
