/*
 * Telling a node what it has not acknowledged yet, on a thread of its own: there may be much of it, and the
 * listener must not wait for it.
 */
#include "obs/log.h"
#include "os/clock.h"
#include "rcache/node.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	TURN_MS = 25,
	RETRY_MS = 500, /* after a refusal: a node that cannot take it now can hardly do so at once */
	SCAN_KEYS = 500,
	CURSOR_BYTES = 32,
	LATE_FILL_MS = RCACHE_MARK_MS,
};

static int settle_keys(struct node *n, struct redis_conn *c, struct err *e)
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

/* The names that one answer of SCAN holds, which ends with the next answer. NULL when memory ran out. */
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

/* One step of SCAN. `cursor` holds the server's, which is "0" at the end. */
static int cover_some(const struct node *n, struct redis_conn *c, char cursor[CURSOR_BYTES], struct err *e)
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
		return err_set(e, ERR_UNAVAILABLE, "SCAN is answered in an unknown way");
	memcpy(cursor, next.text.ptr, next.text.len);
	cursor[next.text.len] = '\0';
	struct arena CLEANUP(arena_release) arena = {0};
	size_t count = found.count;
	const struct str *names = names_copy(&found, &arena);
	r = names ? 0 : err_set(e, ERR_NOMEM, "memory ran out");
	for (size_t at = 0; r == 0 && at < count; at += NODE_BATCH_MAX)
		r = node_cover(c, names + at, MIN(count - at, NODE_BATCH_MAX), e);
	return r;
}

/*
 * Everything is owed. Marks are put over whatever the node holds, so nothing can be believed that was there.
 * SCAN may miss what is filled while it runs; so it begins only when nobody fills any more with what was read
 * before the last change that found no room.
 */
static int settle_all(struct node *n, struct redis_conn *c, struct err *e)
{
	int64_t since_ms;
	uint64_t version;
	char cursor[CURSOR_BYTES] = "0";
	if (!pending_all_begin(n->pending, &since_ms, &version) || clock_mono_ms() - since_ms < LATE_FILL_MS)
		return 0;
	do {
		int r = task_is_stopping(&n->settle) ? ERR_BUSY : cover_some(n, c, cursor, e);
		if (r)
			return r;
	} while (strcmp(cursor, "0") != 0);
	int r = node_publish(n, c, NODE_SAYS_ALL, STR(""), e);
	if (r == 0)
		pending_all_end(n->pending, version);
	return r;
}

static void settle(struct node *n)
{
	struct err e = {""};
	if (!pending_any(n->pending))
		return;
	struct redis_conn *c = redis_take(n->redis, NULL);
	if (!c)
		return;
	int r = settle_keys(n, c, &e) ?: settle_all(n, c, &e);
	redis_return(c);
	if (r == 0) {
		n->refuses = false;
	} else if (e.text[0] && !redis_is_failing(n->redis)) { /* that it is away is the listener's to tell */
		if (!n->refuses)
			log_warn("rcache",
			         "the node %.*s of the shared cache refuses to hear of changes: %s; they "
			         "wait, and other servers may see what was there before until it does",
			         STR_ARG(redis_name(n->redis)), e.text);
		n->refuses = true;
	}
	if (r)
		n->retry_at_ms = clock_mono_ms() + RETRY_MS;
}

static int64_t settle_run(struct task *t)
{
	struct node *n = container_of(t, struct node, settle);
	/* A command may have failed though the subscription stands: nobody else tries the node. */
	if (redis_is_failing(n->redis))
		redis_return(redis_take(n->redis, NULL));
	if (clock_mono_ms() >= n->retry_at_ms)
		settle(n);
	return TURN_MS;
}

static void settle_end(struct task *t)
{
	settle(container_of(t, struct node, settle));
}

int node_settle_start(struct node *n, struct err *e)
{
	const struct task_config config = {
	    .name = "rcache-settle", .run = settle_run, .end = settle_end, .first_ms = TURN_MS};
	return task_start(&n->settle, &config, e);
}
