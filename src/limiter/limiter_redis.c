/*
 * Budgets on Redis. A budget is a hash that expires with its period: the period's id, and one field per
 * server with its use and grant. It is on the node of the ring that its key belongs to. One script per node
 * and hundred budgets does everything: it counts servers, begins periods, sums up and grants. So a crash
 * leaves no budget without expiry, and a period cannot begin twice. Time is the node's. A field has the
 * number of the sync that wrote it, so a delayed sync does not overwrite a later one.
 *
 * Budgets of a node that is down stay unsynced, as do those of a node (of several) that does not answer
 * within LATE_MS. A task waits for such nodes and retries them, so the others are not delayed.
 */
#include "client/redis_ring.h"
#include "limiter/backends.h"
#include "os/clock.h"
#include "os/task.h"

#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { ID_BYTES = 8, ID_TEXT_BYTES = 2 * ID_BYTES + 1, SCRIPT_USES_MAX = 128, PROBE_MS = 50, LATE_MS = 100 };
enum { PREFIX_BYTES_MAX = 64, SERVERS_KEY_BYTES = PREFIX_BYTES_MAX + 8 };
enum { SCRIPT_ARGS = 5, ARGS_PER_USE = 7, REPLY_PER_USE = 4 };

/* ARGV: this server's id, the number of the sync, LIMITER_SERVER_MS, LIMITER_CALM_MS, LIMITER_TAIL_MS; then
 * for each budget period_ms, period, left_ms, max, used, grant, want. */
static const char sync_script[] =
    "local t = redis.call('TIME')\n"
    "local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "local me, seq, life = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])\n"
    "local calm_ms, tail = tonumber(ARGV[4]), tonumber(ARGV[5])\n"
    "redis.call('ZADD', KEYS[1], now, me)\n"
    "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - life)\n"
    "redis.call('PEXPIRE', KEYS[1], life)\n"
    "local ids, lives = redis.call('ZRANGE', KEYS[1], 0, -1), {}\n"
    "for _, id in ipairs(ids) do lives[id] = true end\n"
    "local out = {#ids}\n"
    "local function begin(key, name, left, calm)\n"
    "  redis.call('HSET', key, '.period', string.format('%.0f', name))\n"
    "  if calm then redis.call('HSET', key, '.calm', string.format('%.0f', now + calm)) end\n"
    "  redis.call('PEXPIRE', key, string.format('%.0f', left))\n"
    "end\n"
    "for i = 2, #KEYS do\n"
    "  local key, a = KEYS[i], {}\n"
    "  for k = 1, 7 do a[k] = tonumber(ARGV[5 + (i - 2) * 7 + k]) end\n"
    "  local length, known, known_left, max, used, grant, want = unpack(a)\n"
    "  local name, left = 0, redis.call('PTTL', key)\n"
    "  if left >= 0 then name = tonumber(redis.call('HGET', key, '.period')) end\n"
    "  local counts = left >= 0 and (known == 0 or known >= name)\n"
    "  if not counts and known > 0 and known_left >= tail then\n" /* the data was lost */
    "    name, left, counts = known, math.min(known_left, length), true\n"
    "    begin(key, name, left, calm_ms)\n"
    "  elseif left < 0 and known == 0 and used + want > 0 then\n"
    "    name, left, counts = now, length, true\n"
    "    begin(key, name, left)\n"
    "  end\n"
    "  local others, calm, last = 0, 0, 0\n"
    "  local all = redis.call('HGETALL', key)\n"
    "  for k = 1, #all, 2 do\n"
    "    local field, text = all[k], all[k + 1]\n"
    "    if field == '.calm' then\n"
    "      calm = tonumber(text)\n"
    "    elseif field ~= '.period' then\n"
    "      local s, u, g = string.match(text, '(%d+) (%d+) (%d+)')\n"
    "      if field == me then\n"
    "        last = tonumber(s)\n"
    "      else\n"
    "        others = others + tonumber(lives[field] and g or u)\n"
    "      end\n"
    "    end\n"
    "  end\n"
    "  if counts then\n"
    "    local share = math.ceil(math.max(max - others - used, 0) / math.max(#ids, 2))\n"
    "    if now < calm then share = 0 end\n"
    "    grant = math.max(grant, used + math.min(want, share))\n"
    "    if seq > last then\n"
    "      redis.call('HSET', key, me, string.format('%.0f %.0f %.0f', seq, used, grant))\n"
    "    end\n"
    "  end\n"
    "  for _, v in ipairs({name, math.max(left, 0), grant, others}) do out[#out + 1] = v end\n"
    "end\n"
    "return out\n";

struct limiter_redis {
	struct limiter base;
	struct redis_ring ring;
	char prefix[PREFIX_BYTES_MAX]; /* prefix of the installation's keys */
	char servers_key[SERVERS_KEY_BYTES];
	char id[ID_TEXT_BYTES]; /* identifies this server */
	_Atomic uint64_t settlings;
	/* Connections whose reply is missing, for the prober to wait for; NULL elsewhere. The reply itself
	 * is not needed: everything is reported again. */
	_Atomic(struct redis_conn *) late[REDIS_RING_MAX];
	struct task prober; /* retries nodes that are down */
};

static struct limiter_redis *self(struct limiter *base)
{
	return container_of(base, struct limiter_redis, base);
}

/* The uses of one call: their keys, and the node of each. */
struct limiter_call {
	struct limiter_use *uses;
	size_t n;
	struct str *keys;
	uint8_t *node_of;
	struct arena arena;
	struct redis_conn *conns[REDIS_RING_MAX];
};

/* False: out of memory. */
static bool call_begin(const struct limiter_redis *l, struct limiter_call *c)
{
	c->keys = arena_alloc(&c->arena, (c->n + 1) * sizeof(*c->keys));
	c->node_of = arena_alloc(&c->arena, c->n + 1);
	if (!c->keys || !c->node_of)
		return false;
	for (size_t i = 0; i < c->n; i++) {
		const struct limiter_use *u = &c->uses[i];
		c->keys[i] = arena_printf(&c->arena, "%s%c:%llu:%u", l->prefix, u->what,
		                          (unsigned long long)u->owner, u->period_ms);
		if (!c->keys[i].ptr)
			return false;
		c->node_of[i] = (uint8_t)redis_ring_find(&l->ring, c->keys[i]);
	}
	return true;
}

/* The node's next uses from `*at` on, as many as one script takes; advances `*at`. */
static size_t call_some(const struct limiter_call *c, size_t node, size_t *at, size_t ret[SCRIPT_USES_MAX])
{
	size_t n = 0;
	for (; *at < c->n && n < SCRIPT_USES_MAX; ++*at) {
		if (c->node_of[*at] == node)
			ret[n++] = *at;
	}
	return n;
}

static struct str number(struct limiter_call *c, uint64_t value)
{
	return arena_printf(&c->arena, "%llu", (unsigned long long)value);
}

static size_t write_use(struct limiter_call *c, const struct limiter_use *u, struct str *args)
{
	const uint64_t values[ARGS_PER_USE] = {u->period_ms, u->period, u->left_ms, u->max,
	                                       u->used,      u->grant,  u->want};
	for (size_t i = 0; i < ARGS_PER_USE; i++)
		args[i] = number(c, values[i]);
	return ARGS_PER_USE;
}

/* Is it up, as far as known? The prober retries the others. */
static bool node_is_well(struct limiter_redis *l, size_t node)
{
	bool is_well = !redis_is_failing(l->ring.nodes[node]) && !atomic_load(&l->late[node]);
	if (!is_well)
		task_wake(&l->prober);
	return is_well;
}

/* Sends all scripts without waiting for replies: nodes work in parallel. */
static void write_node(struct limiter_redis *l, struct limiter_call *c, size_t node)
{
	size_t uses[SCRIPT_USES_MAX];
	size_t at = 0;
	c->conns[node] = node_is_well(l, node) ? redis_take(l->ring.nodes[node], NULL) : NULL;
	if (!c->conns[node])
		return;
	do { /* also without a use: each script counts the servers */
		size_t count = call_some(c, node, &at, uses);
		/* EVAL script count servers keys... arguments... */
		struct str args[3 + 1 + SCRIPT_USES_MAX + SCRIPT_ARGS + ARGS_PER_USE * SCRIPT_USES_MAX];
		size_t n = 0;
		args[n++] = STR("EVAL");
		args[n++] = str_of(sync_script);
		args[n++] = number(c, 1 + count);
		args[n++] = str_of(l->servers_key);
		for (size_t i = 0; i < count; i++)
			args[n++] = c->keys[uses[i]];
		args[n++] = str_of(l->id);
		args[n++] = number(c, atomic_fetch_add(&l->settlings, 1) + 1);
		args[n++] = number(c, LIMITER_SERVER_MS);
		args[n++] = number(c, LIMITER_CALM_MS);
		args[n++] = number(c, LIMITER_TAIL_MS);
		for (size_t i = 0; i < count; i++)
			n += write_use(c, &c->uses[uses[i]], args + n);
		redis_write(c->conns[node], args, n);
	} while (at < c->n);
	redis_send(c->conns[node]);
}

static uint64_t number_at(const struct redis_reply *reply, size_t i)
{
	struct redis_reply item = redis_reply_at(reply, i);
	return item.type == REDIS_INT && item.number > 0 ? (uint64_t)item.number : 0;
}

static void read_node(struct limiter_redis *l, struct limiter_call *c, size_t node, int64_t late_ms,
                      unsigned *servers)
{
	struct redis_reply reply;
	struct redis_conn *conn = c->conns[node];
	size_t uses[SCRIPT_USES_MAX];
	size_t at = 0;
	if (!conn)
		return;
	/* It has not begun to answer, and others shall not wait for it. */
	if (l->ring.count != 1 && !redis_is_ready(conn, (uint64_t)MAX(late_ms - clock_mono_ms(), 0))) {
		atomic_store(&l->late[node], conn);
		task_wake(&l->prober);
		return;
	}
	do {
		size_t count = call_some(c, node, &at, uses);
		if (redis_read(conn, &reply) != 0)
			break;
		if (reply.type == REDIS_ARRAY && reply.count > 0) {
			*servers = MAX(*servers, (unsigned)number_at(&reply, 0));
			for (size_t k = 0; k < count && 1 + (k + 1) * REPLY_PER_USE <= reply.count; k++) {
				struct limiter_use *u = &c->uses[uses[k]];
				size_t first = 1 + k * REPLY_PER_USE;
				u->period = number_at(&reply, first);
				u->left_ms = number_at(&reply, first + 1);
				u->grant = number_at(&reply, first + 2);
				u->others = number_at(&reply, first + 3);
				u->synced = true;
			}
		}
	} while (at < c->n);
	redis_return(conn);
}

static int redis_sync(struct limiter *base, struct limiter_use *uses, size_t n, unsigned *ret_servers)
{
	struct limiter_redis *l = self(base);
	struct limiter_call c = {.uses = uses, .n = n};
	unsigned servers = 0;
	bool whole = true;
	for (size_t i = 0; i < n; i++)
		uses[i].synced = false;
	if (call_begin(l, &c)) {
		for (size_t node = 0; node < l->ring.count; node++)
			write_node(l, &c, node);
		int64_t late_ms = clock_mono_ms() + LATE_MS;
		for (size_t node = 0; node < l->ring.count; node++)
			read_node(l, &c, node, late_ms, &servers);
	}
	arena_release(&c.arena);
	for (size_t i = 0; i < n; i++)
		whole &= uses[i].synced;
	if (servers > 0)
		*ret_servers = servers;
	return whole && servers > 0 ? 0 : ERR_UNAVAILABLE;
}

static int redis_limiter_ping(struct limiter *base, struct err *e)
{
	return redis_ring_ping(&self(base)->ring, e);
}

/* Reads and drops a late reply (with more pending, also the connection). Without one, the node is down. */
static void late_end(struct limiter_redis *l, size_t node, bool waits)
{
	struct redis_reply reply;
	struct redis_conn *c = atomic_load(&l->late[node]);
	if (!c)
		return;
	if (waits)
		redis_read(c, &reply);
	redis_return(c);
	atomic_store(&l->late[node], NULL);
}

static int64_t probe(struct task *t)
{
	struct limiter_redis *l = container_of(t, struct limiter_redis, prober);
	bool some = false;
	for (size_t node = 0; node < l->ring.count && !task_is_stopping(t); node++) {
		late_end(l, node, true);
		if (redis_is_failing(l->ring.nodes[node]))
			some |= redis_ping(l->ring.nodes[node], NULL) != 0;
	}
	return some ? PROBE_MS : TASK_ON_WAKE;
}

static void redis_limiter_free(struct limiter *base)
{
	struct limiter_redis *l = self(base);
	task_stop(&l->prober);
	for (size_t node = 0; node < l->ring.count; node++) {
		late_end(l, node, false);
		/* So that other servers need not wait until it times out. */
		struct redis_reply reply;
		struct redis_conn *c = redis_is_failing(l->ring.nodes[node])
		                           ? NULL
		                           : redis_take(l->ring.nodes[node], NULL);
		if (c)
			redis_ask(c, REDIS_ARGS(STR("ZREM"), str_of(l->servers_key), str_of(l->id)), &reply);
		redis_return(c);
	}
	redis_ring_release(&l->ring);
	free(l);
}

static const struct limiter_ops redis_ops = {
    .free = redis_limiter_free,
    .sync = redis_sync,
    .ping = redis_limiter_ping,
};

int limiter_redis_open(const char *urls, const char *installation, struct limiter **ret, struct err *e)
{
	struct limiter_redis *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory");
	unsigned char id[ID_BYTES];
	randombytes_buf(id, sizeof(id));
	sodium_bin2hex(l->id, sizeof(l->id), id, sizeof(id));
	snprintf(l->prefix, sizeof(l->prefix), "curt:b:%s:", installation);
	snprintf(l->servers_key, sizeof(l->servers_key), "%sservers", l->prefix);
	l->base.ops = &redis_ops;
	const struct task_config prober = {.name = "limits-probe", .run = probe, .first_ms = TASK_ON_WAKE};
	int r = redis_ring_open(str_of(urls), &l->ring, e) ?: task_start(&l->prober, &prober, e);
	if (r == 0) {
		*ret = &l->base;
		return 0;
	}
	redis_ring_release(&l->ring);
	free(l);
	return r;
}
