/*
 * The shared cache on Redis. Each key belongs to one node of a ring. While a node is down, its keys are
 * misses; other nodes do not take them over, because its old values would be trusted when it returns.
 *
 * Guarantees. With all nodes up, no server reads an old value after `change` returned, and every server is
 * notified within the network delay. If a node is unreachable only for the changing server, other servers
 * may see an old value until the change is delivered, or the value expires. A node that loses acknowledged
 * data (restart, or promotion of a lagging replica) breaks the connections of all listeners: all get
 * `lost`, and recent changes are sent again.
 *
 * Old values stay until they expire in four cases: the changing server died before delivery; a node
 * returned with data older than PENDING_RECENT_MS (disable its persistence); it evicted a mark too early; a
 * server was stopped for seconds before a fill, and died before revoking it. So the lifetime of values,
 * minutes, bounds every error.
 */
#include "client/redis_ring.h"
#include "os/clock.h"
#include "rcache/backends.h"
#include "rcache/node.h"

#include <stdio.h>
#include <stdlib.h>

enum { NOWHERE = REDIS_RING_MAX };

struct rcache_redis {
	struct rcache base;
	struct rcache_listener listener;
	struct arena texts; /* owns the names */
	struct node_names names;
	struct redis_ring ring;
	_Atomic uint64_t hits, misses, errors;
	struct rcache_node nodes[REDIS_RING_MAX];
};

/* One batch: the keys of a call by node, and a connection to each node. */
struct round {
	struct rcache_redis *cache;
	struct arena arena; /* what is sent */
	size_t n;
	uint8_t node_of[NODE_BATCH_MAX]; /* NOWHERE: skipped */
	struct redis_conn *conns[REDIS_RING_MAX];
};

static struct rcache_redis *self(struct rcache *base)
{
	return container_of(base, struct rcache_redis, base);
}

static void count(_Atomic uint64_t *counter, size_t n)
{
	if (n > 0)
		atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Lookups do not wait for a node that is known to be down; its listener finds out when it is back. */
static struct redis_conn *take_if_well(struct redis *node)
{
	return redis_is_failing(node) ? NULL : redis_take(node, NULL);
}

static bool batch_uses_node(const struct round *r, size_t node)
{
	return memchr(r->node_of, (int)node, r->n) != NULL;
}

/* --- get --- */

static struct redis_conn *get_write(struct round *r, const struct rcache_get *gets, size_t node)
{
	struct str args[NODE_BATCH_MAX + 1] = {STR("MGET")};
	size_t n = 1;
	for (size_t i = 0; i < r->n; i++) {
		if (r->node_of[i] != node)
			continue;
		args[n] = node_text(&r->arena, r->cache->names.prefix, 0, gets[i].key);
		if (!args[n++].ptr)
			return NULL;
	}
	struct redis_conn *c = take_if_well(r->cache->ring.nodes[node]);
	if (c) {
		redis_write(c, args, n);
		redis_send(c);
	}
	return c;
}

static void get_one(struct rcache_get *get, struct redis_reply found)
{
	if (found.type != REDIS_STR || found.text.len == 0)
		return;
	if (found.text.ptr[0] == NODE_MARK)
		get->state = RCACHE_CHANGED;
	if (found.text.ptr[0] != NODE_VALUE)
		return;
	get->value = arena_str(get->arena, str_n(found.text.ptr + 1, found.text.len - 1));
	if (get->value.ptr)
		get->state = RCACHE_HIT;
}

/* False: the node did not answer. */
static bool get_read(struct round *r, struct rcache_get *gets, size_t node)
{
	struct redis_reply reply;
	size_t at = 0;
	if (!r->conns[node] || redis_read(r->conns[node], &reply) != 0 || reply.type != REDIS_ARRAY)
		return false;
	for (size_t i = 0; i < r->n; i++) {
		if (r->node_of[i] == node && at < reply.count)
			get_one(&gets[i], redis_reply_at(&reply, at++));
	}
	return true;
}

static void get_round(struct rcache_redis *cache, struct rcache_get *gets, size_t n)
{
	struct round r = {.cache = cache, .n = n};
	for (size_t i = 0; i < n; i++) {
		/* Keys that this process is changing are not looked up. */
		size_t node = redis_ring_find(&cache->ring, gets[i].key);
		bool pending = pending_has(cache->nodes[node].pending, gets[i].key);
		gets[i].state = pending ? RCACHE_CHANGED : RCACHE_MISS;
		gets[i].value = STR_NULL;
		r.node_of[i] = (uint8_t)(pending ? NOWHERE : node);
	}
	for (size_t node = 0; node < cache->ring.count; node++) {
		if (batch_uses_node(&r, node))
			r.conns[node] = get_write(&r, gets, node);
	}
	for (size_t node = 0; node < cache->ring.count; node++) {
		if (batch_uses_node(&r, node) && !get_read(&r, gets, node))
			count(&cache->errors, 1);
		redis_return(r.conns[node]);
	}
	arena_release(&r.arena);
}

static void cache_get(struct rcache *base, struct rcache_get *gets, size_t n)
{
	struct rcache_redis *cache = self(base);
	size_t hits = 0;
	for (size_t at = 0; at < n; at += NODE_BATCH_MAX)
		get_round(cache, gets + at, MIN(n - at, NODE_BATCH_MAX));
	for (size_t i = 0; i < n; i++)
		hits += gets[i].state == RCACHE_HIT;
	count(&cache->hits, hits);
	count(&cache->misses, n - hits);
}

/* --- change --- */

/* The keys of a batch, grouped by node. */
struct change {
	struct str keys[NODE_BATCH_MAX];
	size_t first[REDIS_RING_MAX + 1];
	struct redis_conn *conns[REDIS_RING_MAX];
	bool sent[REDIS_RING_MAX];
};

static void change_round(struct rcache_redis *cache, const struct str *keys, size_t n)
{
	struct change change = {.first = {0}};
	uint8_t node_of[NODE_BATCH_MAX];
	size_t at[REDIS_RING_MAX];
	for (size_t i = 0; i < n; i++) {
		node_of[i] = (uint8_t)redis_ring_find(&cache->ring, keys[i]);
		change.first[node_of[i] + 1]++;
	}
	for (size_t node = 0; node < cache->ring.count; node++) {
		at[node] = change.first[node];
		change.first[node + 1] += change.first[node];
	}
	for (size_t i = 0; i < n; i++)
		change.keys[at[node_of[i]]++] = keys[i];
	for (size_t node = 0; node < cache->ring.count; node++) {
		const struct str *own = change.keys + change.first[node];
		size_t own_count = change.first[node + 1] - change.first[node];
		if (own_count == 0)
			continue;
		pending_begin(cache->nodes[node].pending, own, own_count);
		struct redis_conn *c = take_if_well(cache->ring.nodes[node]);
		change.conns[node] = c;
		change.sent[node] = c && node_tell_write(&cache->nodes[node], c, own, own_count);
		if (change.sent[node])
			redis_send(c);
	}
	for (size_t node = 0; node < cache->ring.count; node++) {
		const struct str *own = change.keys + change.first[node];
		size_t own_count = change.first[node + 1] - change.first[node];
		if (own_count == 0)
			continue;
		bool acknowledged = change.sent[node] &&
		                    node_tell_read(&cache->nodes[node], change.conns[node], own, own_count) ==
		                        0;
		pending_end(cache->nodes[node].pending, own, own_count, acknowledged);
		redis_return(change.conns[node]);
		if (!acknowledged)
			count(&cache->errors, 1);
	}
}

static void cache_change(struct rcache *base, const struct str *keys, size_t n)
{
	for (size_t at = 0; at < n; at += NODE_BATCH_MAX)
		change_round(self(base), keys + at, MIN(n - at, NODE_BATCH_MAX));
}

/* --- fill --- */

static bool fill_write_one(struct round *r, struct redis_conn *c, const struct rcache_fill *fill)
{
	char life[24];
	struct str key = node_text(&r->arena, r->cache->names.prefix, 0, fill->key);
	struct str value = node_text(&r->arena, STR(""), NODE_VALUE, fill->value);
	if (!key.ptr || !value.ptr)
		return false;
	snprintf(life, sizeof(life), "%llu", (unsigned long long)fill->life_ms);
	redis_write(c, REDIS_ARGS(STR("SET"), key, value, STR("PX"), str_of(life), STR("NX")));
	return true;
}

/* Returns the number of commands sent. */
static size_t fill_write(struct round *r, const struct rcache_fill *fills, size_t node)
{
	size_t sent = 0;
	struct redis_conn *c = take_if_well(r->cache->ring.nodes[node]);
	r->conns[node] = c;
	for (size_t i = 0; c && i < r->n; i++) {
		if (r->node_of[i] == node && fill_write_one(r, c, &fills[i]))
			sent++;
	}
	if (c)
		redis_send(c);
	return sent;
}

/* Is it so late that a mark may have expired? */
static bool fill_is_late(int64_t began_ms)
{
	return clock_mono_ms() - began_ms > RCACHE_MARK_MS / 2;
}

/* A thread may be stopped between reading the clock and sending, and an unanswered fill may still be
 * applied. So the clock is checked again after the replies. Late or unanswered keys count as changed, which
 * removes the fill. `ret`: how many. */
static size_t fill_round(struct rcache_redis *cache, const struct rcache_fill *fills, size_t n,
                         int64_t began_ms, struct str ret[NODE_BATCH_MAX])
{
	struct round r = {.cache = cache, .n = n};
	size_t sent[REDIS_RING_MAX] = {0};
	bool doubted[REDIS_RING_MAX] = {false};
	for (size_t i = 0; i < n; i++) {
		size_t node = redis_ring_find(&cache->ring, fills[i].key);
		bool may = fills[i].life_ms > 0 && !pending_has(cache->nodes[node].pending, fills[i].key);
		r.node_of[i] = (uint8_t)(may ? node : NOWHERE);
	}
	for (size_t node = 0; node < cache->ring.count; node++) {
		if (batch_uses_node(&r, node))
			sent[node] = fill_write(&r, fills, node);
	}
	for (size_t node = 0; node < cache->ring.count; node++) {
		struct redis_conn *c = r.conns[node];
		struct redis_reply reply;
		bool answered = c != NULL;
		for (size_t i = 0; answered && i < sent[node]; i++)
			answered = redis_read(c, &reply) == 0;
		if (batch_uses_node(&r, node) && !answered)
			count(&cache->errors, 1);
		doubted[node] = sent[node] > 0 && (!answered || fill_is_late(began_ms));
		redis_return(c);
	}
	size_t doubts = 0;
	for (size_t i = 0; i < r.n; i++) {
		if (r.node_of[i] != NOWHERE && doubted[r.node_of[i]])
			ret[doubts++] = fills[i].key;
	}
	arena_release(&r.arena);
	return doubts;
}

static void cache_fill(struct rcache *base, const struct rcache_fill *fills, size_t n, int64_t began_ms)
{
	struct str doubtful[NODE_BATCH_MAX];
	for (size_t at = 0; at < n && !fill_is_late(began_ms); at += NODE_BATCH_MAX) {
		size_t doubts = fill_round(self(base), fills + at, MIN(n - at, NODE_BATCH_MAX), began_ms,
		                           doubtful);
		if (doubts > 0)
			change_round(self(base), doubtful, doubts);
	}
}

/* --- other operations --- */

static void cache_tell(struct rcache *base, struct str topic)
{
	struct rcache_redis *cache = self(base);
	for (size_t i = 0; i < cache->ring.count; i++) {
		struct redis_conn *c = take_if_well(cache->ring.nodes[i]);
		if (!c || node_publish(&cache->nodes[i], c, NODE_SAYS_TOPIC, topic, NULL) != 0)
			count(&cache->errors, 1);
		redis_return(c);
	}
}

static struct rcache_stats cache_stats(struct rcache *base)
{
	struct rcache_redis *cache = self(base);
	struct rcache_stats s = {
	    .hits = atomic_load_explicit(&cache->hits, memory_order_relaxed),
	    .misses = atomic_load_explicit(&cache->misses, memory_order_relaxed),
	    .errors = atomic_load_explicit(&cache->errors, memory_order_relaxed),
	    .nodes = cache->ring.count,
	    .listening = 1,
	};
	for (size_t i = 0; i < cache->ring.count; i++) {
		s.nodes_unhealthy += redis_is_failing(cache->ring.nodes[i]);
		s.listening &= atomic_load_explicit(&cache->nodes[i].listening, memory_order_relaxed);
	}
	return s;
}

static int cache_ping(struct rcache *base, struct err *e)
{
	return redis_ring_ping(&self(base)->ring, e);
}

static void cache_free(struct rcache *base)
{
	struct rcache_redis *cache = self(base);
	for (size_t i = 0; i < cache->ring.count; i++)
		node_ask_stop(&cache->nodes[i]);
	for (size_t i = 0; i < cache->ring.count; i++) {
		node_stop(&cache->nodes[i]);
		pending_free(cache->nodes[i].pending);
	}
	redis_ring_release(&cache->ring);
	arena_release(&cache->texts);
	free(cache);
}

static const struct rcache_ops redis_ops = {
    .free = cache_free,
    .get = cache_get,
    .fill = cache_fill,
    .change = cache_change,
    .tell = cache_tell,
    .stats = cache_stats,
    .ping = cache_ping,
};

static int start_nodes(struct rcache_redis *cache, struct err *e)
{
	for (size_t i = 0; i < cache->ring.count; i++) {
		cache->nodes[i] = (struct rcache_node){.redis = cache->ring.nodes[i],
		                                       .names = &cache->names,
		                                       .pending = pending_new(),
		                                       .listener = &cache->listener};
		if (!cache->nodes[i].pending)
			return err_set(e, ERR_NOMEM, "out of memory");
		int r = node_start(&cache->nodes[i], e);
		if (r)
			return r;
	}
	return 0;
}

int rcache_redis_open(const char *urls, const char *installation, const struct rcache_listener *listener,
                      struct rcache **ret, struct err *e)
{
	struct rcache_redis *cache = calloc(1, sizeof(*cache));
	if (!cache)
		return err_set(e, ERR_NOMEM, "out of memory");
	cache->base.ops = &redis_ops;
	cache->listener = *listener;
	cache->names = (struct node_names){
	    .prefix = arena_printf(&cache->texts, "curt:l:%s:", installation),
	    .channel = arena_printf(&cache->texts, "curt:changes:%s", installation),
	};
	bool named = cache->names.prefix.ptr && cache->names.channel.ptr;
	int r = named ? redis_ring_open(str_of(urls), &cache->ring, e)
	              : err_set(e, ERR_NOMEM, "out of memory");
	if (r == 0)
		r = start_nodes(cache, e);
	if (r)
		cache_free(&cache->base);
	else
		*ret = &cache->base;
	return r;
}
