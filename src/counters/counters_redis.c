/*
 * Counters on Redis. A batch with many links is added in parts, so that no script blocks the server for
 * long. A crash between two parts leaves a position at which no batch starts.
 *
 * A stream is a hash:
 *
 *	LINK       "EPOCH CLICKS STORED": the total, and the last total that the store has; "-" if clicks
 *	           since then are not in the total
 *	"@"        "EPOCH LIFE PLACE": totals of this epoch are valid at this position of the stream, during
 *	           this run of the server (its run_id)
 *	"@reach"   how far in the stream the sink may be
 *
 * A restarted or promoted server may have lost the last changes: its run_id differs. A place is an offset,
 * or "FROM>TO/N" if only N parts of a batch were added. A new epoch outdates all totals at once.
 *
 * One file (about 540 lines): the scripts and the C code that calls them share this format.
 */
#include "base/arena.h"
#include "client/redis_ring.h"
#include "counters/backends.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	PART_MAX = 512, /* links per script */
	AHEAD_MAX = 16, /* scripts without a reply */
	FIXED_ARGS_MAX = 10,
	PREFIX_BYTES_MAX = 64,
	KEY_BYTES_MAX = PREFIX_BYTES_MAX + 40,
};

/* Scripts */

#define LIFE_MS "2592000000" /* a stream is dropped 30 days after its last batch */
#define FAR     "100000000"  /* a position so far back means another stream */
#define SCRIPT_STATE                                                                          \
	"local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')\n"            \
	"local function state(key)\n"                                                         \
	"  local own = redis.call('HGET', key, '@') or ''\n"                                  \
	"  local epoch, life, place = string.match(own, '^(%d+) (%w+) (%S+)$')\n"             \
	"  if not epoch then return 0, '', '' end\n"                                          \
	"  return tonumber(epoch), life, place\n"                                             \
	"end\n"                                                                               \
	"local function parts(value)\n"                                                       \
	"  local epoch, clicks, flushed = string.match(value or '', '^(%d+) (%d+) (%S+)$')\n" \
	"  return tonumber(epoch), tonumber(clicks), flushed\n"                               \
	"end\n"                                                                               \
	"local function value(epoch, clicks, flushed)\n"                                      \
	"  return string.format('%.0f %.0f %s', epoch, clicks, flushed)\n"                    \
	"end\n"                                                                               \
	"local function values(key, first, step)\n" /* the links among the arguments */       \
	"  local links = {}\n"                                                                \
	"  for i = first, #ARGV, step do links[#links + 1] = ARGV[i] end\n"                   \
	"  if #links == 0 then return links, {} end\n"                                        \
	"  return links, redis.call('HMGET', key, unpack(links))\n"                           \
	"end\n"

/* ARGV: place before, place after, offset after, reach; then link, clicks... Returns enum counters_fate,
 * and the links that need their total. */
static const char add_script[] = SCRIPT_STATE
    "local key, before, after, to = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])\n"
    "local epoch, life, place = state(key)\n"
    "local reach = math.max(tonumber(redis.call('HGET', key, '@reach') or 0), tonumber(ARGV[4]))\n"
    "local at = tonumber(string.match(place, '^%d+') or 0)\n"
    "if life == run and at >= to and at < to + " FAR " then return {2} end\n"
    "local out = {1}\n"
    "if life ~= run or place ~= before then epoch, out[1] = epoch + 1, 3 end\n"
    "local set = {'@', string.format('%.0f %s %s', epoch, run, after)}\n"
    "local links, olds = values(key, 5, 2)\n"
    "for i, old in ipairs(olds) do\n"
    "  local e, clicks, flushed = parts(old)\n"
    "  set[#set + 1] = links[i]\n"
    "  if e == epoch then\n"
    "    set[#set + 1] = value(e, clicks + tonumber(ARGV[4 + 2 * i]), flushed)\n"
    "  else\n"
    "    set[#set + 1] = value(e or 0, clicks or 0, '-')\n"
    "    if reach <= to then out[#out + 1] = i - 1 end\n"
    "  end\n"
    "end\n"
    "redis.call('HSET', key, unpack(set))\n"
    "redis.call('SADD', KEYS[2], key)\n"
    "redis.call('PEXPIRE', key, " LIFE_MS ")\n"
    "redis.call('PEXPIRE', KEYS[2], " LIFE_MS ")\n"
    "return out\n";

/* ARGV: offset. */
static const char announce_script[] =
    "local reach, to = tonumber(redis.call('HGET', KEYS[1], '@reach') or 0), tonumber(ARGV[1])\n"
    "if reach < to or reach >= to + " FAR " then redis.call('HSET', KEYS[1], '@reach', ARGV[1]) end\n"
    "return redis.call('PEXPIRE', KEYS[1], " LIFE_MS ")\n";

/* ARGV: place; then link, clicks... */
static const char put_script[] = SCRIPT_STATE
    "local epoch, life, place = state(KEYS[1])\n"
    "if life ~= run or place ~= ARGV[1] then return 0 end\n"
    "if tonumber(redis.call('HGET', KEYS[1], '@reach') or 0) > tonumber(ARGV[1]) then return 0 end\n"
    "local set = {}\n"
    "local links, olds = values(KEYS[1], 2, 2)\n"
    "for i, old in ipairs(olds) do\n"
    "  local _, _, flushed = parts(old)\n"
    "  set[#set + 1] = links[i]\n"
    "  set[#set + 1] = value(epoch, tonumber(ARGV[1 + 2 * i]), flushed or '-')\n"
    "end\n"
    "redis.call('HSET', KEYS[1], unpack(set))\n"
    "return #links\n";

/* ARGV: place; then link... Returns their totals, -1 if there is none. */
static const char read_script[] = SCRIPT_STATE "local epoch, life, place = state(KEYS[1])\n"
                                               "local good = life == run and place == ARGV[1]\n"
                                               "local out = {}\n"
                                               "local _, olds = values(KEYS[1], 2, 1)\n"
                                               "for i, old in ipairs(olds) do\n"
                                               "  local e, clicks = parts(old)\n"
                                               "  out[i] = good and e == epoch and clicks or -1\n"
                                               "end\n"
                                               "return out\n";

/* ARGV: link, clicks... */
static const char updated_script[] = SCRIPT_STATE
    "local set, epoch = {}, state(KEYS[1])\n"
    "local links, olds = values(KEYS[1], 1, 2)\n"
    "for i, old in ipairs(olds) do\n"
    "  local e, clicks = parts(old)\n"
    "  if e then\n"
    "    if e ~= epoch then clicks = math.max(clicks, tonumber(ARGV[2 * i])) end\n"
    "    set[#set + 1] = links[i]\n"
    "    set[#set + 1] = value(e, clicks, ARGV[2 * i])\n"
    "  end\n"
    "end\n"
    "if #set > 0 then redis.call('HSET', KEYS[1], unpack(set)) end\n"
    "return #set\n";

/* ARGV: cursor. Returns the next one, then links. */
static const char dirty_script[] = SCRIPT_STATE
    "local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 512)\n"
    "local out = {page[1]}\n"
    "for i = 1, #page[2], 2 do\n"
    "  local _, clicks, flushed = parts(page[2][i + 1])\n"
    "  if clicks and clicks ~= tonumber(flushed) and page[2][i] ~= '@' then out[#out + 1] = page[2][i] end\n"
    "end\n"
    "return out\n";

/* ARGV: the most fields of a stream. */
static const char trim_script[] = "if redis.call('HLEN', KEYS[1]) <= tonumber(ARGV[1]) then return 0 end\n"
                                  "local own = redis.call('HMGET', KEYS[1], '@', '@reach')\n"
                                  "redis.call('UNLINK', KEYS[1])\n"
                                  "if own[1] then redis.call('HSET', KEYS[1], '@', own[1]) end\n"
                                  "if own[2] then redis.call('HSET', KEYS[1], '@reach', own[2]) end\n"
                                  "return 1\n";

/* ARGV: link... Returns the largest total of each, -1 if there is none. */
static const char get_script[] = "local out = {}\n"
                                 "for i = 1, #ARGV do out[i] = -1 end\n"
                                 "for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do\n"
                                 "  for i, value in ipairs(redis.call('HMGET', key, unpack(ARGV))) do\n"
                                 "    local clicks = value and tonumber(string.match(value, '^%d+ (%d+) '))\n"
                                 "    if clicks and clicks > 0 and clicks > out[i] then out[i] = clicks end\n"
                                 "  end\n"
                                 "end\n"
                                 "return out\n";

struct counters_redis {
	struct counters base;
	struct redis_ring ring;
	char prefix[PREFIX_BYTES_MAX];
	char list_key[PREFIX_BYTES_MAX + 8];
	uint64_t stream_links_max;
	pthread_mutex_t lock;                /* guards `troubles` */
	struct err troubles[REDIS_RING_MAX]; /* per node */
};

static struct counters_redis *self(struct counters *base)
{
	return container_of(base, struct counters_redis, base);
}

/* Trouble */

static void trouble_set(struct counters_redis *c, size_t node, const struct err *why)
{
	pthread_mutex_lock(&c->lock);
	if (why)
		c->troubles[node] = *why;
	else
		c->troubles[node].text[0] = '\0';
	pthread_mutex_unlock(&c->lock);
}

static int redis_trouble(struct counters *base, struct err *e)
{
	struct counters_redis *c = self(base);
	int r = 0;
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; r == 0 && i < c->ring.count; i++) {
		if (c->troubles[i].text[0])
			r = err_set(e, ERR_UNAVAILABLE,
			            "%s; until then clicks are shown as of the link store",
			            c->troubles[i].text);
	}
	pthread_mutex_unlock(&c->lock);
	return r;
}

/* A call: a stream, its node, and the arguments. */
struct counters_call {
	struct counters_redis *counters;
	size_t node;
	char key[KEY_BYTES_MAX];
	struct redis_conn *conn;
	struct err why;     /* its error */
	struct arena arena; /* texts of numbers */
	struct str args[FIXED_ARGS_MAX + 2 * PART_MAX];
	size_t count;
};

/* False: the node is down. */
static bool node_take(struct counters_call *call, struct counters_redis *c, size_t node)
{
	call->counters = c;
	call->node = node;
	call->arena = (struct arena){0};
	call->conn = redis_take(c->ring.nodes[node], &call->why);
	if (!call->conn)
		trouble_set(c, node, &call->why);
	return call->conn != NULL;
}

static bool call_begin(struct counters_call *call, struct counters_redis *c, uint64_t source, uint64_t stream)
{
	int n = snprintf(call->key, sizeof(call->key), "%s%016llx:%llx", c->prefix,
	                 (unsigned long long)source, (unsigned long long)stream);
	return node_take(call, c, redis_ring_find(&c->ring, str_n(call->key, (size_t)n)));
}

static void call_end(struct counters_call *call, int r)
{
	trouble_set(call->counters, call->node, r < 0 ? &call->why : NULL);
	redis_return(call->conn);
	arena_release(&call->arena);
}

static void put_text(struct counters_call *call, struct str text)
{
	call->args[call->count++] = text;
}

static void put_number(struct counters_call *call, uint64_t value)
{
	put_text(call, arena_printf(&call->arena, "%llu", (unsigned long long)value));
}

/* EVAL script 2 stream list arguments... */
static void script_begin(struct counters_call *call, const char *script)
{
	call->count = 0;
	arena_release(&call->arena);
	put_text(call, STR("EVAL"));
	put_text(call, str_of(script));
	put_text(call, STR("2"));
	put_text(call, str_of(call->key));
	put_text(call, str_of(call->counters->list_key));
}

static void put_links(struct counters_call *call, const struct counter *links, size_t count, bool with_clicks)
{
	for (size_t i = 0; i < count; i++) {
		put_number(call, links[i].link);
		if (with_clicks)
			put_number(call, links[i].clicks);
	}
}

/* ERR_NOMEM: an argument had no room, and nothing was sent. */
static int script_write(struct counters_call *call)
{
	for (size_t i = 0; i < call->count; i++) {
		if (!call->args[i].ptr)
			return err_set(&call->why, ERR_NOMEM, "out of memory");
	}
	redis_write(call->conn, call->args, call->count);
	return 0;
}

static int reply_read(struct counters_call *call, struct redis_reply *ret)
{
	if (redis_read(call->conn, ret) < 0)
		return err_set(&call->why, ERR_UNAVAILABLE, "the Redis of the counters does not answer: %s",
		               redis_why(call->conn));
	if (ret->type == REDIS_ERROR)
		return err_set(&call->why, ERR_UNAVAILABLE, "the Redis of the counters refused: %.*s",
		               STR_ARG(ret->text));
	return 0;
}

static int script_ask(struct counters_call *call, struct redis_reply *ret)
{
	int r = script_write(call);
	return r < 0 ? r : reply_read(call, ret);
}

/* Adding */

static void redis_announce(struct counters *base, uint64_t source, const struct advance *steps, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct counters_call call;
		struct redis_reply reply;
		if (!call_begin(&call, self(base), source, steps[i].stream))
			continue;
		script_begin(&call, announce_script);
		put_number(&call, steps[i].to);
		call_end(&call, script_ask(&call, &reply));
	}
}

static size_t parts_of(const struct counters_step *step)
{
	return step->count == 0 ? 1 : (step->count + PART_MAX - 1) / PART_MAX;
}

static size_t part_size(const struct counters_step *step, size_t part)
{
	return MIN(step->count - part * PART_MAX, (size_t)PART_MAX);
}

/* The place after so many parts of the batch. */
static struct str place_after(struct counters_call *call, const struct counters_step *step, size_t parts)
{
	if (parts == 0 || parts == parts_of(step))
		return arena_printf(&call->arena, "%llu",
		                    (unsigned long long)(parts == 0 ? step->at.from : step->at.to));
	return arena_printf(&call->arena, "%llu>%llu/%zu", (unsigned long long)step->at.from,
	                    (unsigned long long)step->at.to, parts);
}

static int add_parts(struct counters_call *call, struct counters_step *step)
{
	size_t parts = parts_of(step), written = 0;
	int r = 0;
	for (size_t read = 0; r == 0 && read < parts; read++) {
		for (; r == 0 && written < parts && written < read + AHEAD_MAX; written++) {
			script_begin(call, add_script);
			put_text(call, place_after(call, step, written));
			put_text(call, place_after(call, step, written + 1));
			put_number(call, step->at.to);
			put_number(call, step->reach);
			put_links(call, step->links + written * PART_MAX, part_size(step, written), true);
			r = script_write(call);
		}
		struct redis_reply reply = {.count = 0};
		if (r == 0)
			r = reply_read(call, &reply);
		for (size_t i = 0; r == 0 && i < reply.count; i++) {
			struct redis_reply item = redis_reply_at(&reply, i);
			size_t missing = (size_t)item.number;
			if (i == 0)
				step->fate = MAX(step->fate, (enum counters_fate)item.number);
			else if (missing < part_size(step, read))
				step->links[read * PART_MAX + missing].is_missing = true;
		}
	}
	return r;
}

static void set_missing(const struct counters_step *step, bool is_missing)
{
	for (size_t i = 0; i < step->count; i++)
		step->links[i].is_missing = is_missing;
}

static void redis_add(struct counters *base, struct counters_step *step)
{
	struct counters_call call;
	set_missing(step, false);
	step->fate = COUNTERS_AWAY;
	if (!call_begin(&call, self(base), step->source, step->at.stream))
		return;
	int r = add_parts(&call, step);
	if (r < 0) {
		set_missing(step, false); /* nobody can store their totals */
		step->fate = COUNTERS_AWAY;
	}
	call_end(&call, r);
}

/* Totals */

/* Reads the totals of a script's reply. Of several replies the largest counts. */
static void take_totals(struct counter *links, size_t count, const struct redis_reply *reply)
{
	for (size_t i = 0; i < count && i < reply->count; i++) {
		struct redis_reply item = redis_reply_at(reply, i);
		if (item.number < 0)
			continue;
		links[i].clicks = links[i].is_missing ? (uint64_t)item.number
		                                      : MAX(links[i].clicks, (uint64_t)item.number);
		links[i].is_missing = false;
	}
}

/* One script per part of a batch's links. */
struct by_parts {
	const char *script;
	bool has_place;  /* its first argument is the end of the batch */
	bool has_clicks; /* the links have clicks */
	bool has_totals; /* its reply has totals */
};

static void run_by_parts(struct counters *base, const struct counters_step *step, struct by_parts what)
{
	struct counters_call call;
	struct redis_reply reply;
	int r = 0;
	if (step->count == 0 || !call_begin(&call, self(base), step->source, step->at.stream))
		return;
	for (size_t part = 0; r == 0 && part < parts_of(step); part++) {
		struct counter *links = step->links + part * PART_MAX;
		script_begin(&call, what.script);
		if (what.has_place)
			put_number(&call, step->at.to);
		put_links(&call, links, part_size(step, part), what.has_clicks);
		r = script_ask(&call, &reply);
		if (r == 0 && what.has_totals)
			take_totals(links, part_size(step, part), &reply);
	}
	call_end(&call, r);
}

static void redis_put(struct counters *base, const struct counters_step *step)
{
	run_by_parts(base, step, (struct by_parts){put_script, .has_place = true, .has_clicks = true});
}

static void redis_read_totals(struct counters *base, struct counters_step *step)
{
	set_missing(step, true);
	run_by_parts(base, step, (struct by_parts){read_script, .has_place = true, .has_totals = true});
}

static void redis_updated(struct counters *base, const struct counters_step *step)
{
	run_by_parts(base, step, (struct by_parts){updated_script, .has_clicks = true});
}

static int redis_dirty(struct counters *base, uint64_t source, uint64_t stream, uint64_t *cursor,
                       void (*take)(void *ctx, uint64_t link), void *ctx)
{
	struct counters_call call;
	struct redis_reply reply;
	uint64_t number;
	if (!call_begin(&call, self(base), source, stream))
		return ERR_UNAVAILABLE;
	script_begin(&call, dirty_script);
	put_number(&call, *cursor);
	int r = script_ask(&call, &reply);
	for (size_t i = 0; r == 0 && i < reply.count; i++) {
		if (!str_u64(redis_reply_at(&reply, i).text, &number))
			r = err_set(&call.why, ERR_UNAVAILABLE,
			            "the Redis of the counters returned an invalid number");
		else if (i == 0)
			*cursor = number;
		else
			take(ctx, number);
	}
	call_end(&call, r);
	return r;
}

static void redis_trim(struct counters *base, uint64_t source, uint64_t stream)
{
	struct counters_call call;
	struct redis_reply reply;
	if (!call_begin(&call, self(base), source, stream))
		return;
	script_begin(&call, trim_script);
	put_number(&call, self(base)->stream_links_max);
	call_end(&call, script_ask(&call, &reply));
}

static int get_of_node(struct counters_redis *c, size_t node, struct counter *links, size_t n)
{
	struct counters_call call = {.key = ""};
	struct redis_reply reply;
	if (!node_take(&call, c, node))
		return ERR_UNAVAILABLE;
	script_begin(&call, get_script);
	put_links(&call, links, n, false);
	int r = script_ask(&call, &reply);
	if (r == 0)
		take_totals(links, n, &reply);
	call_end(&call, r);
	return r;
}

static int redis_get(struct counters *base, struct counter *links, size_t n)
{
	struct counters_redis *c = self(base);
	int r = 0;
	ASSERT(n <= COUNTERS_GET_MAX);
	for (size_t i = 0; i < n; i++)
		links[i].is_missing = true;
	for (size_t node = 0; n > 0 && node < c->ring.count; node++) {
		if (get_of_node(c, node, links, n) < 0)
			r = ERR_UNAVAILABLE;
	}
	return r;
}

/* Opening and closing */

static void redis_counters_free(struct counters *base)
{
	struct counters_redis *c = self(base);
	redis_ring_release(&c->ring);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static const struct counters_ops redis_counters_ops = {
    .free = redis_counters_free,
    .announce = redis_announce,
    .add = redis_add,
    .put = redis_put,
    .read = redis_read_totals,
    .updated = redis_updated,
    .dirty_links = redis_dirty,
    .trim = redis_trim,
    .get = redis_get,
    .trouble = redis_trouble,
};

int counters_redis_open(const struct counters_redis_config *config, struct counters **ret, struct err *e)
{
	struct counters_redis *c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ERR_NOMEM, "out of memory");
	c->base.ops = &redis_counters_ops;
	c->stream_links_max = config->stream_links_max;
	pthread_mutex_init(&c->lock, NULL);
	snprintf(c->prefix, sizeof(c->prefix), "curt:c:%s:", config->installation);
	snprintf(c->list_key, sizeof(c->list_key), "%sstreams", c->prefix);
	int r = redis_ring_open(str_of(config->urls), &c->ring, e);
	if (r < 0) {
		redis_counters_free(&c->base);
		return r;
	}
	*ret = &c->base;
	return 0;
}
