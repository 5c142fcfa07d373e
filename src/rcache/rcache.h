/*
 * The role `rcache`: what several servers cache together, and how they tell each other of changes. It is
 * never the only copy of anything: what it cannot answer is a miss, and a node that is sick is left alone for
 * a while. All calls block for a bounded time and may come from any thread that is not an event loop.
 *
 * Staleness. A server that reads the store and then fills the cache may come after somebody else's change. So
 * a change leaves a mark under its key for RCACHE_MARK_MS: while it is there, `get` says CHANGED (ask the
 * store's primary, and do not fill) and `fill` is refused. A fill that comes later than half of that after
 * its read began is not made at all; one that turns out to have come so late, or is not answered, is taken
 * back: its key counts as changed. Values also end by themselves, so what slips through does not stay.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum { RCACHE_MARK_MS = 3000 };

enum rcache_state { RCACHE_MISS, RCACHE_HIT, RCACHE_CHANGED };

struct rcache_get {
	struct str key;      /* in */
	struct arena *arena; /* in: where the value goes */
	enum rcache_state state;
	struct str value; /* out, for HIT */
};

struct rcache_fill {
	struct str key;
	struct str value;
	uint64_t life_ms;
};

/* Told on the cache's own thread. */
struct rcache_listener {
	void (*changed)(void *ctx, struct str key);    /* somebody has changed it; also our own changes */
	void (*notified)(void *ctx, struct str topic); /* rcache_tell */
	void (*lost)(void *ctx); /* messages may have been missed: whatever was kept may be old */
	void *ctx;
};

struct rcache_stats {
	uint64_t hits, misses, errors;
	uint64_t nodes, nodes_unhealthy;
	uint64_t listening; /* 1: to every node: changes of others arrive */
};

struct rcache {
	const struct rcache_ops *ops;
};

struct rcache_ops {
	void (*free)(struct rcache *);
	void (*get)(struct rcache *, struct rcache_get *gets, size_t n);
	/* `began_ms` (monotonic) is when the store was asked for these. */
	void (*fill)(struct rcache *, const struct rcache_fill *fills, size_t n, int64_t began_ms);
	/* After a change is durable and before it is acknowledged: marks the keys and tells every server.
	 * What cannot be delivered now is tried again by itself until it is. */
	void (*change)(struct rcache *, const struct str *keys, size_t n);
	/* Tells every server something that has no key. */
	void (*tell)(struct rcache *, struct str topic);
	struct rcache_stats (*stats)(struct rcache *);
	/* 0 when all nodes answer; otherwise an error and a sentence that names those that do not. */
	int (*ping)(struct rcache *, struct err *e);
};
