/*
 * What a server has in common with others: the shared cache and what they tell each other through it, the
 * source of keys, the limits, the leases. What the settings do not name is not there, and costs nothing.
 */
#pragma once

#include "handler/api.h"
#include "lease/lease.h"
#include "link/quota_sync.h"
#include "rcache/rcache.h"
#include "server/settings.h"

/* Zeroed members have not been made. */
struct cluster {
	struct rcache *rcache;
	struct key_source *source;
	struct limiter *limiter;
	struct quota_sync *quota_sync;
	struct leases *leases;
	/* For what is told on the cache's own thread; NULL: there is nobody to be told yet. */
	_Atomic(struct links *) links;
	_Atomic(struct accounts *) accounts;
	_Atomic uint64_t *owner_changes; /* the api's */
};

/*
 * Opens what the settings name, for a server on `store`. A server for this process's own use shares the cache
 * and the source of keys, but settles no limits and takes no leases.
 */
int cluster_open(struct cluster *c, const struct settings *settings, struct store *store, bool is_private,
                 _Atomic uint64_t *owner_changes, struct err *e);

/* From now on it hears what others tell, and they what it does. */
int cluster_join(struct cluster *c, struct links *links, struct accounts *accounts, struct store *store,
                 bool is_private, struct err *e);

/* Ends the threads; links and accounts may go afterwards. */
void cluster_leave(struct cluster *c);

/* After the links and the budgets have gone. */
void cluster_close(struct cluster *c);
