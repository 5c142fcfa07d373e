/*
 * Invalidates cached links that other servers change, by reading the change feed of every database
 * (store/feed.h). Servers with a shared cache (rcache/) are notified at once; for the others, and for lost
 * messages, this bounds how long an old link is served. One task per database, so that a slow one delays no
 * other.
 */
#pragma once

#include "link/links.h"

struct links_follower;

/* Never ERR_UNAVAILABLE: a feed that fails is retried. *ret is NULL if no other process writes to the
 * store. */
int links_follow_start(struct links *l, struct links_follower **ret, struct err *e);
void links_follow_stop(struct links_follower *f); /* before links_free; takes NULL */
