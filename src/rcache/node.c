#include "rcache/node.h"

#include "os/clock.h"

#include <stdio.h>

enum { SCAN_KEYS = 500, LATE_FILL_MS = RCACHE_MARK_MS };

struct str node_text(struct arena *arena, struct str prefix, char head, struct str text)
{
	size_t len = prefix.len + (head ? 1 : 0) + text.len;
	char *out = arena_alloc(arena, len), *at = out;
	if (!out)
		return STR_NULL;
	memcpy(at, prefix.ptr, prefix.len);
	at += prefix.len;
	if (head)
		*at++ = head;
	memcpy(at, text.ptr, text.len);
	return str_n(out, len);
}

static struct str mark_life(char out[16])
{
	return str_n(out, (size_t)snprintf(out, 16, "%d", RCACHE_MARK_MS));
}

bool node_mark_write(struct redis_conn *c, const struct str *keys, size_t n)
{
	const char mark = NODE_MARK;
	char life[16];
	struct arena arena = {0};
	bool whole = true;
	for (size_t i = 0; i < n && whole; i++) {
		struct str key = node_text(&arena, NODE_PREFIX, 0, keys[i]);
		struct str message = node_text(&arena, STR(""), NODE_SAYS_KEY, keys[i]);
		whole = key.ptr && message.ptr;
		if (!whole)
			break;
		redis_write(c, REDIS_ARGS(STR("SET"), key, str_n(&mark, 1), STR("PX"), mark_life(life)));
		redis_write(c, REDIS_ARGS(STR("PUBLISH"), NODE_CHANNEL, message));
	}
	arena_release(&arena);
	return whole;
}

/* A node without room refuses marks, but not that old values go. */
static void drop(struct redis_conn *c, const struct str *keys, size_t n)
{
	struct arena arena = {0};
	struct redis_reply reply;
	for (size_t i = 0; i < n; i++) {
		struct str key = node_text(&arena, NODE_PREFIX, 0, keys[i]);
		if (!key.ptr || redis_ask(c, REDIS_ARGS(STR("UNLINK"), key), &reply) != 0)
			break;
	}
	arena_release(&arena);
}

int node_mark_read(struct redis_conn *c, const struct str *keys, size_t n)
{
	struct redis_reply reply;
	bool refused = false;
	for (size_t i = 0; i < 2 * n; i++) {
		int r = redis_read(c, &reply);
		if (r)
			return r;
		refused |= reply.type == REDIS_ERROR;
	}
	if (refused)
		drop(c, keys, n);
	return refused ? ERR_UNAVAILABLE : 0;
}

int node_publish(struct redis_conn *c, char kind, struct str text)
{
	struct arena arena = {0};
	struct redis_reply reply;
	struct str message = node_text(&arena, STR(""), kind, text);
	int r = message.ptr ? redis_ask(c, REDIS_ARGS(STR("PUBLISH"), NODE_CHANNEL, message), &reply)
	                    : ERR_NOMEM;
	arena_release(&arena);
	return r;
}

/* --- what is owed --- */

static int settle_keys(struct node *n, struct redis_conn *c)
{
	for (;;) {
		struct arena arena = {0};
		struct str keys[NODE_BATCH_MAX];
		size_t count = owed_pick(n->owed, &arena, keys, ARRAY_LEN(keys));
		int r = node_mark_write(c, keys, count) ? node_mark_read(c, keys, count) : ERR_NOMEM;
		owed_end(n->owed, keys, count, r == 0);
		arena_release(&arena);
		if (r || count == 0)
			return r;
	}
}

/* Turns what stands under the keys of one SCAN answer into marks. They are not created where nothing is. */
static int mark_found(struct redis_conn *c, const struct redis_reply *keys)
{
	const char mark = NODE_MARK;
	char life[16];
	struct redis_reply reply;
	for (size_t i = 0; i < keys->count; i++)
		redis_write(c, REDIS_ARGS(STR("SET"), redis_reply_at(keys, i).text, str_n(&mark, 1),
		                          STR("PX"), mark_life(life), STR("XX")));
	int r = 0;
	for (size_t count = keys->count; r == 0 && count > 0; count--)
		r = redis_read(c, &reply);
	return r;
}

/* One step of SCAN. `cursor` holds the server's, which is "0" at the end. */
static int mark_some(struct redis_conn *c, char cursor[32])
{
	struct redis_reply reply;
	char pattern[16], step[16];
	struct str prefix = NODE_PREFIX;
	snprintf(pattern, sizeof(pattern), "%.*s*", STR_ARG(prefix));
	snprintf(step, sizeof(step), "%d", SCAN_KEYS);
	int r = redis_ask(c,
	                  REDIS_ARGS(STR("SCAN"), str_of(cursor), STR("MATCH"), str_of(pattern), STR("COUNT"),
	                             str_of(step)),
	                  &reply);
	if (r)
		return r;
	if (reply.type != REDIS_ARRAY || reply.count != 2)
		return ERR_UNAVAILABLE;
	struct redis_reply next = redis_reply_at(&reply, 0), keys = redis_reply_at(&reply, 1);
	if (next.text.len >= 32 || keys.type != REDIS_ARRAY)
		return ERR_UNAVAILABLE;
	memcpy(cursor, next.text.ptr, next.text.len);
	cursor[next.text.len] = '\0';
	return mark_found(c, &keys);
}

/*
 * Everything is owed. Marks are put over whatever the node holds, so nothing can be believed that was there.
 * SCAN may miss what is filled while it runs; so it begins only when nobody fills any more with what was read
 * before the last change that found no room.
 */
static void settle_all(struct node *n, struct redis_conn *c)
{
	int64_t since_ms;
	uint64_t version;
	char cursor[32] = "0";
	if (!owed_all_begin(n->owed, &since_ms, &version) || clock_mono_ms() - since_ms < LATE_FILL_MS)
		return;
	do {
		if (atomic_load(n->stop) || mark_some(c, cursor) != 0)
			return;
	} while (strcmp(cursor, "0") != 0);
	if (node_publish(c, NODE_SAYS_ALL, STR("")) == 0)
		owed_all_end(n->owed, version);
}

void node_settle(struct node *n)
{
	if (!owed_any(n->owed))
		return;
	struct redis_conn *c = redis_take(n->redis, NULL);
	if (c && settle_keys(n, c) == 0)
		settle_all(n, c);
	redis_return(c);
}
