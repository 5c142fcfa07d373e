/*
 * Budgets on Redis. A budget is a hash {start, used} that ends with its period; it lies on the node of the
 * ring that its key belongs to. One script for each node and round does it all: it counts the servers, begins
 * periods and adds up. So a crash leaves no count without an end, and two servers cannot begin one period
 * twice. The time is the node's own.
 *
 * A node that is away leaves its budgets unsettled; one that forgets begins a new period early.
 */
#include "client/redis_ring.h"
#include "limiter/backends.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

enum { ID_BYTES = 8, ID_TEXT_BYTES = 2 * ID_BYTES + 1, ROUND_MAX = 128, REPLY_PER_USE = 3 };

#define SERVERS_KEY STR("curt:b:servers")

static const char settle_script[] =
    "local t = redis.call('TIME')\n"
    "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "redis.call('ZADD', KEYS[1], now, ARGV[1])\n"
    "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])\n"
    "redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
    "local out = {redis.call('ZCARD', KEYS[1])}\n"
    "for i = 2, #KEYS do\n"
    "  local delta, period = ARGV[2 * i - 1], ARGV[2 * i]\n"
    "  local left, used, start = redis.call('PTTL', KEYS[i]), 0, 0\n"
    "  if left < 0 and tonumber(delta) > 0 then\n"
    "    redis.call('HSET', KEYS[i], 'start', string.format('%.0f', now), 'used', 0)\n"
    "    redis.call('PEXPIRE', KEYS[i], period)\n"
    "    left = tonumber(period)\n"
    "  end\n"
    "  if left >= 0 then\n"
    "    used = redis.call('HINCRBY', KEYS[i], 'used', delta)\n"
    "    start = tonumber(redis.call('HGET', KEYS[i], 'start'))\n"
    "  end\n"
    "  if used < 0 then\n"
    "    redis.call('HSET', KEYS[i], 'used', 0)\n"
    "    used = 0\n"
    "  end\n"
    "  out[#out + 1] = used\n"
    "  out[#out + 1] = math.max(left, 0)\n"
    "  out[#out + 1] = start\n"
    "end\n"
    "return out\n";

struct limiter_redis {
	struct limiter base;
	struct redis_ring ring;
	char id[ID_TEXT_BYTES]; /* names this server among those that settle */
};

static struct limiter_redis *self(struct limiter *base)
{
	return container_of(base, struct limiter_redis, base);
}

/* The uses of one round: their keys, and the node of each. */
struct round {
	struct limiter_use *uses;
	size_t n;
	struct str keys[ROUND_MAX];
	uint8_t node_of[ROUND_MAX];
	struct arena arena;
	struct redis_conn *conns[REDIS_RING_MAX];
};

/* False when memory ran out. */
static bool round_begin(const struct limiter_redis *l, struct round *r)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct limiter_use *u = &r->uses[i];
		r->keys[i] = arena_printf(&r->arena, "curt:b:%c:%llu:%u", u->what,
		                          (unsigned long long)u->owner, u->period_ms);
		if (!r->keys[i].ptr)
			return false;
		r->node_of[i] = (uint8_t)redis_ring_find(&l->ring, r->keys[i]);
	}
	return true;
}

/* EVAL script count servers keys... id life (delta period)... */
static void write_node(struct limiter_redis *l, struct round *r, size_t node)
{
	struct str args[3 + 1 + ROUND_MAX + 2 + 2 * ROUND_MAX];
	size_t n = 4, keys = 1;
	for (size_t i = 0; i < r->n; i++) {
		if (r->node_of[i] == node) {
			args[n++] = r->keys[i];
			keys++;
		}
	}
	args[0] = STR("EVAL");
	args[1] = str_of(settle_script);
	args[2] = arena_printf(&r->arena, "%zu", keys);
	args[3] = SERVERS_KEY;
	args[n++] = str_of(l->id);
	args[n++] = arena_printf(&r->arena, "%d", LIMITER_SERVER_MS);
	for (size_t i = 0; i < r->n; i++) {
		if (r->node_of[i] == node) {
			args[n++] = arena_printf(&r->arena, "%lld", (long long)r->uses[i].delta);
			args[n++] = arena_printf(&r->arena, "%u", r->uses[i].period_ms);
		}
	}
	struct redis_conn *c = redis_take(l->ring.nodes[node], NULL);
	r->conns[node] = c;
	if (c) {
		redis_write(c, args, n);
		redis_send(c);
	}
}

static uint64_t number_at(const struct redis_reply *reply, size_t i)
{
	struct redis_reply item = redis_reply_at(reply, i);
	return item.type == REDIS_INT && item.number > 0 ? (uint64_t)item.number : 0;
}

static void read_uses(struct round *r, size_t node, const struct redis_reply *reply)
{
	size_t at = 1;
	for (size_t i = 0; i < r->n && at + REPLY_PER_USE <= reply->count; i++) {
		struct limiter_use *u = &r->uses[i];
		if (r->node_of[i] != node)
			continue;
		u->used = number_at(reply, at);
		u->left_ms = number_at(reply, at + 1);
		u->period = number_at(reply, at + 2);
		u->settled = true;
		at += REPLY_PER_USE;
	}
}

static void read_node(struct round *r, size_t node, unsigned *servers)
{
	struct redis_reply reply;
	struct redis_conn *c = r->conns[node];
	if (c && redis_read(c, &reply) == 0 && reply.type == REDIS_ARRAY && reply.count > 0) {
		*servers = MAX(*servers, (unsigned)number_at(&reply, 0));
		read_uses(r, node, &reply);
	}
	redis_return(c);
}

static void settle_round(struct limiter_redis *l, struct limiter_use *uses, size_t n, unsigned *servers)
{
	struct round r = {.uses = uses, .n = n};
	if (round_begin(l, &r)) {
		/* Also those that have no use in it: each counts the servers. */
		for (size_t node = 0; node < l->ring.count; node++)
			write_node(l, &r, node);
		for (size_t node = 0; node < l->ring.count; node++)
			read_node(&r, node, servers);
	}
	arena_release(&r.arena);
}

static int redis_settle(struct limiter *base, struct limiter_use *uses, size_t n, unsigned *ret_servers)
{
	unsigned servers = 0;
	bool whole = true;
	size_t at = 0;
	for (size_t i = 0; i < n; i++)
		uses[i].settled = false;
	do {
		size_t some = MIN(n - at, ROUND_MAX);
		settle_round(self(base), uses + at, some, &servers);
		at += some;
	} while (at < n);
	for (size_t i = 0; i < n; i++)
		whole &= uses[i].settled;
	if (servers > 0)
		*ret_servers = servers;
	return whole && servers > 0 ? 0 : ERR_UNAVAILABLE;
}

static int redis_limiter_ping(struct limiter *base, struct err *e)
{
	return redis_ring_ping(&self(base)->ring, e);
}

/* So that the others need not wait until it is missed. */
static void say_goodbye(struct limiter_redis *l, size_t node)
{
	struct redis_reply reply;
	struct redis_conn *c = redis_take(l->ring.nodes[node], NULL);
	if (c)
		redis_ask(c, REDIS_ARGS(STR("ZREM"), SERVERS_KEY, str_of(l->id)), &reply);
	redis_return(c);
}

static void redis_limiter_free(struct limiter *base)
{
	struct limiter_redis *l = self(base);
	for (size_t node = 0; node < l->ring.count; node++)
		say_goodbye(l, node);
	redis_ring_release(&l->ring);
	free(l);
}

static const struct limiter_ops redis_ops = {
    .free = redis_limiter_free,
    .settle = redis_settle,
    .ping = redis_limiter_ping,
};

int limiter_redis_open(const char *urls, struct limiter **ret, struct err *e)
{
	struct limiter_redis *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "memory ran out");
	int r = redis_ring_open(str_of(urls), &l->ring, e);
	if (r) {
		free(l);
		return r;
	}
	unsigned char id[ID_BYTES];
	randombytes_buf(id, sizeof(id));
	sodium_bin2hex(l->id, sizeof(l->id), id, sizeof(id));
	l->base.ops = &redis_ops;
	*ret = &l->base;
	return 0;
}
