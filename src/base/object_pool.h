/*
 * Objects of one size for one thread. Freed ones are kept and handed out again, so a steady user allocates
 * nothing. Beyond `max` live objects object_pool_get returns NULL, and the caller has an answer for that.
 * Objects come as their last user left them, zeroed the first time.
 */
#pragma once

#include "base/def.h"

struct object_pool {
	size_t object_bytes;
	size_t max;
	size_t live;
	void *free_list;
};

void object_pool_init(struct object_pool *p, size_t object_bytes, size_t max);
void *object_pool_get(struct object_pool *p) MUST_CHECK;
void object_pool_put(struct object_pool *p, void *object); /* NULL is fine */
void object_pool_release(struct object_pool *p);           /* all must be back */
