/*
 * One Redis server of the shared cache, as this process sees it. For src/rcache/ only.
 *
 * A value lies under "curt:l:", the installation's name, ":" and the key; its first byte tells what it is: a
 * value of the link store (VALUE), or a mark that it has changed (MARK). Changes are published on one channel
 * of the key's node, "curt:changes:" and the installation's name: 'k' and the key, 't' and a topic, or 'a'
 * when everything on the node may have changed.
 *
 * A node without room refuses marks, but not that old values go: then these are removed instead, and the
 * change counts as told. A late fill finds no mark there, but no room either.
 *
 * Two tasks look after a node, each on a thread of its own. One listens, and does nothing else that takes
 * time; the other settles.
 */
#pragma once

#include "client/redis.h"
#include "os/task.h"
#include "rcache/pending_invalidations.h"
#include "rcache/rcache.h"

#include <stdatomic.h>

enum { NODE_VALUE = 'v', NODE_MARK = 'm', NODE_SAYS_KEY = 'k', NODE_SAYS_TOPIC = 't', NODE_SAYS_ALL = 'a' };

/* What one round trip carries. */
enum { NODE_BATCH_MAX = 256 };

/* Where this installation's values and messages are, on every node. */
struct node_names {
	struct str prefix;
	struct str channel;
};

struct node {
	struct redis *redis; /* lent */
	const struct node_names *names;
	struct pending *pending;
	const struct rcache_listener *listener;
	_Atomic bool listening;
	struct task listen, settle;
	/* the listener's own */
	struct redis_conn *conn; /* NULL: not subscribed */
	int64_t pinged_ms;
	int64_t asked_ms; /* for the first time since it was heard; 0: not yet */
	bool is_away;     /* the log was told */
	/* the settler's own */
	int64_t retry_at_ms;
	bool refuses; /* the log was told */
};

/* `head` byte (none: 0) and text in the arena; STR_NULL when memory ran out. */
struct str node_text(struct arena *arena, struct str prefix, char head, struct str text);

/* Tell of up to NODE_BATCH_MAX keys in one round trip. The first queues the commands; false when memory ran
 * out. The second reads the answers: 0 when all is told. */
bool node_tell_write(const struct node *node, struct redis_conn *c, const struct str *keys, size_t n);
int node_tell_read(const struct node *node, struct redis_conn *c, const struct str *keys, size_t n);

/* The same in two round trips: what cannot be marked is not published either. `e` says why. */
int node_tell(const struct node *node, struct redis_conn *c, const struct str *keys, size_t n, struct err *e);

/* Marks over what stands under up to NODE_BATCH_MAX names (the prefix and the key), and none where nothing
 * is. */
int node_cover(struct redis_conn *c, const struct str *names, size_t n, struct err *e);

int node_publish(const struct node *node, struct redis_conn *c, char kind, struct str text, struct err *e);

/* The task that tells what is owed to the node, and tries it when it is away. */
int node_settle_start(struct node *n, struct err *e);

/* Both tasks. node_ask_stop first for all nodes, so that they end side by side. */
int node_start(struct node *n, struct err *e);
void node_ask_stop(struct node *n);
void node_stop(struct node *n); /* also when it was not started, or half */
