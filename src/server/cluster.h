/*
 * What a server shares with others: the cache and the announcements through it, the source of keys, the
 * limits, the leases. A part that the settings do not name is NULL.
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
	/* For announcements, on the cache's thread; NULL until cluster_join. */
	_Atomic(struct links *) links;
	_Atomic(struct accounts *) accounts;
	_Atomic uint64_t *owner_changes; /* the api's */
};

/* Opens what the settings name, for a server on `store`. A private server (server.h) shares the cache and the
 * source of keys, but no limits and no leases. */
int cluster_open(struct cluster *c, const struct settings *settings, struct store *store, bool is_private,
                 _Atomic uint64_t *owner_changes, struct err *e);

/* From now on the server receives and sends announcements. */
int cluster_join(struct cluster *c, struct links *links, struct accounts *accounts, struct store *store,
                 bool is_private, struct err *e);

/* Ends the threads; afterwards links and accounts may be freed. */
void cluster_leave(struct cluster *c);

/* Call it after the links and the budgets were freed. */
void cluster_close(struct cluster *c);
