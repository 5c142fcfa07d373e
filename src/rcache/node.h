/*
 * One Redis server of the shared cache. For src/rcache/ only.
 *
 *	key       "curt:l:" INSTALLATION ":" KEY
 *	value     VALUE and the bytes of tier2.h, or MARK: the key was changed
 *	channel   "curt:changes:" INSTALLATION
 *	message   'k' and a key, 't' and a topic, or 'a': everything on the node may have changed
 *
 * A node without memory refuses marks, but still deletes: then old values are deleted instead, and the
 * change counts as delivered. A late fill finds no mark there, but no memory either.
 *
 * Two tasks per node, each on its own thread: one only listens (listen.c), the other delivers pending
 * invalidations (deliver.c).
 */
#pragma once

#include "client/redis.h"
#include "os/task.h"
#include "rcache/pending_invalidations.h"
#include "rcache/rcache.h"

#include <stdatomic.h>

enum { NODE_VALUE = 'v', NODE_MARK = 'm', NODE_SAYS_KEY = 'k', NODE_SAYS_TOPIC = 't', NODE_SAYS_ALL = 'a' };

/* Keys per round trip. */
enum { NODE_BATCH_MAX = 256 };

/* The names of this installation on every node. */
struct node_names {
	struct str prefix;
	struct str channel;
};

struct rcache_node {
	struct redis *redis; /* borrowed */
	const struct node_names *names;
	struct pending *pending;
	const struct rcache_listener *listener;
	_Atomic bool listening;
	struct task listen, deliver;
	/* listener only */
	struct redis_conn *conn; /* NULL: not subscribed */
	int64_t pinged_ms;
	int64_t asked_ms; /* first unanswered ping; 0: none */
	bool is_down;     /* it was logged */
	/* deliverer only */
	int64_t retry_at_ms;
	bool refuses; /* it was logged */
};

/* The `head` byte (0: none) and the text, in the arena; STR_NULL: out of memory. */
struct str node_text(struct arena *arena, struct str prefix, char head, struct str text);

/* Mark and publish up to NODE_BATCH_MAX keys in one round trip. The first queues the commands (false: out
 * of memory), the second reads the replies: 0 if all were delivered. */
bool node_tell_write(const struct rcache_node *node, struct redis_conn *c, const struct str *keys, size_t n);
int node_tell_read(const struct rcache_node *node, struct redis_conn *c, const struct str *keys, size_t n);

/* The same in two round trips: a key that cannot be marked is not published. `e` says why. */
int node_tell(const struct rcache_node *node, struct redis_conn *c, const struct str *keys, size_t n,
              struct err *e);

/* Overwrites up to NODE_BATCH_MAX existing names (prefix and key) with marks. */
int node_cover(struct redis_conn *c, const struct str *names, size_t n, struct err *e);

int node_publish(const struct rcache_node *node, struct redis_conn *c, char kind, struct str text,
                 struct err *e);

/* The task that delivers pending invalidations, and retries a node that is down. */
int node_deliver_start(struct rcache_node *n, struct err *e);

/* Both tasks. Call node_ask_stop for all nodes first, so that they stop in parallel. */
int node_start(struct rcache_node *n, struct err *e);
void node_ask_stop(struct rcache_node *n);
void node_stop(struct rcache_node *n); /* also if not started, or only partly */
