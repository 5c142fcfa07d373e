/* Delivers pending invalidations to a node, on its own thread: there may be many, and the listener must not
 * wait. */
#include "obs/log.h"
#include "os/clock.h"
#include "rcache/node.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	TURN_MS = 25,
	RETRY_MS = 500, /* after a refusal */
	SCAN_KEYS = 500,
	CURSOR_BYTES = 32,
	LATE_FILL_MS = RCACHE_MARK_MS,
};

static int deliver_keys(struct rcache_node *n, struct redis_conn *c, struct err *e)
{
	for (;;) {
		struct arena CLEANUP(arena_release) arena = {0};
		struct str keys[NODE_BATCH_MAX];
		size_t count = pending_pick(n->pending, &arena, keys, ARRAY_LEN(keys));
		int r = node_tell(n, c, keys, count, e);
		pending_end(n->pending, keys, count, r == 0);
		if (r || count == 0)
			return r;
	}
}

/* The names of one SCAN reply, valid until the next reply. NULL: out of memory. */
static struct str *names_copy(const struct redis_reply *found, struct arena *arena)
{
	struct str *names = arena_alloc(arena, (found->count + 1) * sizeof(*names));
	for (size_t i = 0; names && i < found->count; i++) {
		names[i] = arena_str(arena, redis_reply_at(found, i).text);
		if (!names[i].ptr)
			return NULL;
	}
	return names;
}

/* One step of SCAN. `cursor` is the server's, "0" at the end. */
static int cover_some(const struct rcache_node *n, struct redis_conn *c, char cursor[CURSOR_BYTES],
                      struct err *e)
{
	struct redis_reply reply;
	char pattern[64], step[16];
	snprintf(pattern, sizeof(pattern), "%.*s*", STR_ARG(n->names->prefix));
	snprintf(step, sizeof(step), "%d", SCAN_KEYS);
	int r = redis_ask(c,
	                  REDIS_ARGS(STR("SCAN"), str_of(cursor), STR("MATCH"), str_of(pattern), STR("COUNT"),
	                             str_of(step)),
	                  &reply);
	if (r)
		return err_set(e, r, "%s", redis_why(c));
	if (reply.type != REDIS_ARRAY || reply.count != 2)
		return err_set(e, ERR_UNAVAILABLE, "SCAN: %.*s", (int)MIN(reply.text.len, 200),
		               reply.text.ptr ? reply.text.ptr : "");
	struct redis_reply next = redis_reply_at(&reply, 0), found = redis_reply_at(&reply, 1);
	if (next.text.len >= CURSOR_BYTES || found.type != REDIS_ARRAY)
		return err_set(e, ERR_UNAVAILABLE, "SCAN: unexpected reply");
	memcpy(cursor, next.text.ptr, next.text.len);
	cursor[next.text.len] = '\0';
	struct arena CLEANUP(arena_release) arena = {0};
	size_t count = found.count;
	const struct str *names = names_copy(&found, &arena);
	r = names ? 0 : err_set(e, ERR_NOMEM, "out of memory");
	for (size_t at = 0; r == 0 && at < count; at += NODE_BATCH_MAX)
		r = node_cover(c, names + at, MIN(count - at, NODE_BATCH_MAX), e);
	return r;
}

/* All keys are pending: overwrites everything on the node with marks, so no old value is used. SCAN may
 * miss what is filled while it runs. So it starts only when no fill can be older than the last change that
 * found no room. */
static int deliver_all(struct rcache_node *n, struct redis_conn *c, struct err *e)
{
	int64_t since_ms;
	uint64_t version;
	char cursor[CURSOR_BYTES] = "0";
	if (!pending_all_begin(n->pending, &since_ms, &version) || clock_mono_ms() - since_ms < LATE_FILL_MS)
		return 0;
	do {
		int r = task_is_stopping(&n->deliver) ? ERR_BUSY : cover_some(n, c, cursor, e);
		if (r)
			return r;
	} while (strcmp(cursor, "0") != 0);
	int r = node_publish(n, c, NODE_SAYS_ALL, STR(""), e);
	if (r == 0)
		pending_all_end(n->pending, version);
	return r;
}

static void deliver(struct rcache_node *n)
{
	struct err e = {""};
	if (!pending_any(n->pending))
		return;
	struct redis_conn *c = redis_take(n->redis, NULL);
	if (!c)
		return;
	int r = deliver_keys(n, c, &e) ?: deliver_all(n, c, &e);
	redis_return(c);
	if (r == 0) {
		n->refuses = false;
	} else if (e.text[0] && !redis_is_failing(n->redis)) { /* the listener logs that it is down */
		if (!n->refuses)
			log_warn("rcache",
			         "cache node refuses invalidations, other servers may see old values "
			         "node=%.*s error=\"%s\"",
			         STR_ARG(redis_name(n->redis)), e.text);
		n->refuses = true;
	}
	if (r)
		n->retry_at_ms = clock_mono_ms() + RETRY_MS;
}

static int64_t deliver_run(struct task *t)
{
	struct rcache_node *n = container_of(t, struct rcache_node, deliver);
	/* A command may have failed while the subscription works: nobody else retries the node. */
	if (redis_is_failing(n->redis))
		redis_return(redis_take(n->redis, NULL));
	if (clock_mono_ms() >= n->retry_at_ms)
		deliver(n);
	return TURN_MS;
}

static void deliver_end(struct task *t)
{
	deliver(container_of(t, struct rcache_node, deliver));
}

int node_deliver_start(struct rcache_node *n, struct err *e)
{
	const struct task_config config = {
	    .name = "rcache-deliver", .run = deliver_run, .end = deliver_end, .first_ms = TURN_MS};
	return task_start(&n->deliver, &config, e);
}
