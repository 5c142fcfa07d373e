/*
 * Keeps the cache in step with what other servers change: reads the change feed of every database
 * (store/feed.h) and drops what was changed. Servers that share a cache (rcache/) hear of a change at once;
 * for the others, and when a message got lost, this bounds how long an old link is served. A task for each
 * database, so that one that hangs delays none of the others.
 */
#pragma once

#include "link/links.h"

struct links_follower;

/* ERR_UNAVAILABLE never: a feed that does not answer is read when it does. *ret is NULL when nobody else
 * writes to the store. */
int links_follow_start(struct links *l, struct links_follower **ret, struct err *e);
void links_follow_stop(struct links_follower *f); /* before the links go; NULL is fine */
