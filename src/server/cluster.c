#include "server/cluster.h"

#include "server/backends.h"

/* These run on the cache's thread. Links and accounts that do not exist yet have cached nothing. */

static void changed(void *ctx, struct str key)
{
	struct cluster *c = ctx;
	struct links *links = atomic_load_explicit(&c->links, memory_order_acquire);
	if (links)
		links_changed_elsewhere(links, key);
}

static void notified(void *ctx, struct str topic)
{
	struct cluster *c = ctx;
	struct accounts *accounts = atomic_load_explicit(&c->accounts, memory_order_acquire);
	if (accounts && str_eq(topic, API_TOPIC_ACCOUNTS))
		accounts_watch_wake(accounts);
	if (str_eq(topic, API_TOPIC_OWNERS))
		atomic_fetch_add(c->owner_changes, 1);
}

static void lost(void *ctx)
{
	struct cluster *c = ctx;
	struct links *links = atomic_load_explicit(&c->links, memory_order_acquire);
	struct accounts *accounts = atomic_load_explicit(&c->accounts, memory_order_acquire);
	if (links)
		links_feed_lost(links);
	if (accounts)
		accounts_watch_wake(accounts);
	atomic_fetch_add(c->owner_changes, 1);
}

static int open_limits(struct cluster *c, const struct settings *s, struct store *store, struct err *e)
{
	int r = backend_open_limiter(s->serve.limits_url, store, &c->limiter, e);
	return r == 0 && c->limiter ? quota_sync_new(c->limiter, &c->quota_sync, e) : r;
}

int cluster_open(struct cluster *c, const struct settings *s, struct store *store, bool is_private,
                 _Atomic uint64_t *owner_changes, struct err *e)
{
	c->owner_changes = owner_changes;
	const struct rcache_listener listener = {
	    .changed = changed, .notified = notified, .lost = lost, .ctx = c};
	int r = backend_open_rcache(s->serve.cache_url, store, &listener, &c->rcache, e);
	if (r == 0)
		r = backend_open_source(s, store, &c->source, e);
	if (r == 0 && !is_private)
		r = open_limits(c, s, store, e);
	if (r == 0 && !is_private && s->serve.lease_url[0])
		r = backend_open_leases(s->serve.lease_url, &c->leases, e);
	return r;
}

int cluster_join(struct cluster *c, struct links *links, struct accounts *accounts, struct store *store,
                 bool is_private, struct err *e)
{
	bool watches = store->is_shared && !is_private;
	int r = watches ? accounts_watch_start(accounts, e) : 0;
	if (r == 0 && c->quota_sync)
		r = quota_sync_start(c->quota_sync, e);
	/* release: pairs with the acquires above */
	atomic_store_explicit(&c->links, links, memory_order_release);
	if (r < 0 || !watches)
		return r;
	atomic_store_explicit(&c->accounts, accounts, memory_order_release);
	accounts_watch_wake(accounts); /* an announcement since the accounts were read was missed */
	return 0;
}

void cluster_leave(struct cluster *c)
{
	if (c->rcache)
		c->rcache->ops->free(c->rcache); /* and its thread */
	quota_sync_stop(c->quota_sync);
}

void cluster_close(struct cluster *c)
{
	if (c->source)
		c->source->ops->free(c->source);
	quota_sync_free(c->quota_sync);
	if (c->limiter)
		c->limiter->ops->free(c->limiter);
	leases_free(c->leases);
}
