/*
 * The rcache interface: a cache that several servers share, and how they notify each other of changes. It
 * is never the only copy: what it cannot answer is a miss, and a failing node is not asked for a while. All
 * calls block for a bounded time, and may come from any thread except an event loop.
 *
 * Staleness. A server may read the store, and fill the cache after another server's change. So a change
 * leaves a mark under its key for RCACHE_MARK_MS. While the mark exists, `get` returns CHANGED (read the
 * store's primary, do not fill), and `fill` is refused. A fill later than half of that time after its read
 * began is not sent. If it turns out to have been that late, or is not answered, it is revoked: its key
 * counts as changed. Values also expire, so an old value does not stay.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum { RCACHE_MARK_MS = 3000 };

enum rcache_state { RCACHE_MISS, RCACHE_HIT, RCACHE_CHANGED };

struct rcache_get {
	struct str key;      /* in */
	struct arena *arena; /* in: owns the value */
	enum rcache_state state;
	struct str value; /* out: for HIT */
};

struct rcache_fill {
	struct str key;
	struct str value;
	uint64_t life_ms;
};

/* Callbacks, on a thread of the cache. */
struct rcache_listener {
	void (*changed)(void *ctx, struct str key);    /* a key was changed, also by this server */
	void (*notified)(void *ctx, struct str topic); /* see `tell` */
	void (*lost)(void *ctx); /* messages may have been missed: cached values may be old */
	void *ctx;
};

struct rcache_stats {
	uint64_t hits, misses, errors;
	uint64_t nodes, nodes_unhealthy;
	uint64_t listening; /* 1: subscribed to every node */
};

struct rcache {
	const struct rcache_ops *ops;
};

struct rcache_ops {
	void (*free)(struct rcache *);
	void (*get)(struct rcache *, struct rcache_get *gets, size_t n);
	/* `began_ms` (monotonic): when the store was read. */
	void (*fill)(struct rcache *, const struct rcache_fill *fills, size_t n, int64_t began_ms);
	/* After a change is durable and before it is acknowledged: marks the keys, and notifies every
	 * server. Undelivered changes are retried until they succeed. */
	void (*change)(struct rcache *, const struct str *keys, size_t n);
	/* Notifies every server of a topic, without a key. */
	void (*tell)(struct rcache *, struct str topic);
	struct rcache_stats (*stats)(struct rcache *);
	/* 0 if all nodes answer; otherwise an error with a sentence that names the others. */
	int (*ping)(struct rcache *, struct err *e);
};
