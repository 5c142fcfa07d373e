/*
 * One Redis server of the shared cache, as this process sees it. For src/rcache/ only.
 *
 * A value is "curt:l:" and the key; its first byte tells what it is: a value of the link store (VALUE), or a
 * mark that it has changed (MARK). Changes are published on one channel of the key's node: 'k' and the key,
 * 't' and a topic, or 'a' when everything on the node may have changed.
 */
#pragma once

#include "client/redis.h"
#include "rcache/owed.h"
#include "rcache/rcache.h"

#include <pthread.h>
#include <stdatomic.h>

#define NODE_PREFIX  STR("curt:l:")
#define NODE_CHANNEL STR("curt:changes")

enum { NODE_VALUE = 'v', NODE_MARK = 'm', NODE_SAYS_KEY = 'k', NODE_SAYS_TOPIC = 't', NODE_SAYS_ALL = 'a' };

/* A mark is told from a full node, too: room for as many marks as one round trip carries. */
enum { NODE_BATCH_MAX = 256 };

struct node {
	struct redis *redis; /* lent */
	struct owed *owed;
	const struct rcache_listener *listener;
	_Atomic bool *stop; /* of the whole cache */
	_Atomic bool listening;
	pthread_t thread;
	bool started;
};

/* `head` byte (none: 0) and text in the arena; STR_NULL when memory ran out. */
struct str node_text(struct arena *arena, struct str prefix, char head, struct str text);

/* Queues marks and messages for up to NODE_BATCH_MAX keys; false when memory ran out. Then reads the answers:
 * 0 when all are in place. */
bool node_mark_write(struct redis_conn *c, const struct str *keys, size_t n);
int node_mark_read(struct redis_conn *c, const struct str *keys, size_t n);

int node_publish(struct redis_conn *c, char kind, struct str text);

/* Tells what is owed, as far as the node answers. */
void node_settle(struct node *n);

/* The thread that listens to the node and settles. */
int node_start(struct node *n, struct err *e);
void node_stop(struct node *n); /* after *stop was set */
