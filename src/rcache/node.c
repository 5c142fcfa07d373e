#include "rcache/node.h"

#include <stdio.h>

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

/* NULL: out of memory. */
static const struct str *texts(struct arena *arena, struct str prefix, char head, const struct str *keys,
                               size_t n)
{
	struct str *texts = arena_alloc(arena, (n + 1) * sizeof(*texts));
	for (size_t i = 0; texts && i < n; i++) {
		texts[i] = node_text(arena, prefix, head, keys[i]);
		if (!texts[i].ptr)
			return NULL;
	}
	return texts;
}

static int out_of_memory(struct err *e)
{
	return err_set(e, ERR_NOMEM, "out of memory");
}

static int failed(const struct redis_conn *c, struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "%s", redis_why(c));
}

static int refused(const struct redis_reply *reply, struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "%.*s", (int)MIN(reply->text.len, 200), reply->text.ptr);
}

/* --- marks --- */

static void marks_write(struct redis_conn *c, const struct str *names, size_t n, bool only_over)
{
	const char mark = NODE_MARK;
	char life[16];
	snprintf(life, sizeof(life), "%d", RCACHE_MARK_MS);
	const struct str tail[] = {str_n(&mark, 1), STR("PX"), str_of(life), STR("XX")};
	for (size_t i = 0; i < n; i++) {
		const struct str args[] = {STR("SET"), names[i], tail[0], tail[1], tail[2], tail[3]};
		redis_write(c, args, ARRAY_LEN(args) - (only_over ? 0 : 1));
	}
}

/* The refused names, in `ret`. */
static int marks_read(struct redis_conn *c, const struct str *names, size_t n, struct str *ret,
                      size_t *ret_count, struct err *e)
{
	struct redis_reply reply;
	*ret_count = 0;
	for (size_t i = 0; i < n; i++) {
		if (redis_read(c, &reply) != 0)
			return failed(c, e);
		if (reply.type == REDIS_ERROR)
			ret[(*ret_count)++] = names[i];
	}
	return 0;
}

static int drop(struct redis_conn *c, const struct str *names, size_t n, struct err *e)
{
	struct str args[NODE_BATCH_MAX + 1] = {STR("UNLINK")};
	struct redis_reply reply;
	if (n == 0)
		return 0;
	memcpy(args + 1, names, n * sizeof(*names));
	if (redis_ask(c, args, n + 1, &reply) != 0)
		return failed(c, e);
	return reply.type == REDIS_INT ? 0 : refused(&reply, e);
}

static int mark(struct redis_conn *c, const struct str *names, size_t n, bool only_over, struct err *e)
{
	struct str gone[NODE_BATCH_MAX];
	size_t gone_count = 0;
	ASSERT(n <= NODE_BATCH_MAX);
	marks_write(c, names, n, only_over);
	return marks_read(c, names, n, gone, &gone_count, e) ?: drop(c, gone, gone_count, e);
}

int node_cover(struct redis_conn *c, const struct str *names, size_t n, struct err *e)
{
	return mark(c, names, n, true, e);
}

/* --- messages --- */

static void messages_write(const struct rcache_node *node, struct redis_conn *c, const struct str *messages,
                           size_t n)
{
	for (size_t i = 0; i < n; i++)
		redis_write(c, REDIS_ARGS(STR("PUBLISH"), node->names->channel, messages[i]));
}

static int messages_read(struct redis_conn *c, size_t n, struct err *e)
{
	struct redis_reply reply;
	int r = 0;
	for (size_t i = 0; i < n; i++) {
		if (redis_read(c, &reply) != 0)
			return failed(c, e);
		if (reply.type != REDIS_INT)
			r = refused(&reply, e);
	}
	return r;
}

int node_publish(const struct rcache_node *node, struct redis_conn *c, char kind, struct str text,
                 struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct str message = node_text(&arena, STR(""), kind, text);
	if (!message.ptr)
		return out_of_memory(e);
	messages_write(node, c, &message, 1);
	return messages_read(c, 1, e);
}

/* --- both --- */

bool node_tell_write(const struct rcache_node *node, struct redis_conn *c, const struct str *keys, size_t n)
{
	struct arena CLEANUP(arena_release) arena = {0};
	const struct str *names = texts(&arena, node->names->prefix, 0, keys, n);
	const struct str *messages = texts(&arena, STR(""), NODE_SAYS_KEY, keys, n);
	if (!names || !messages)
		return false;
	marks_write(c, names, n, false);
	messages_write(node, c, messages, n);
	return true;
}

int node_tell_read(const struct rcache_node *node, struct redis_conn *c, const struct str *keys, size_t n)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct str gone[NODE_BATCH_MAX];
	size_t gone_count = 0;
	ASSERT(n <= NODE_BATCH_MAX);
	int r = marks_read(c, keys, n, gone, &gone_count, NULL) ?: messages_read(c, n, NULL);
	const struct str *names = texts(&arena, node->names->prefix, 0, gone, gone_count);
	if (r || !names)
		return r ? r : ERR_NOMEM;
	return drop(c, names, gone_count, NULL);
}

int node_tell(const struct rcache_node *node, struct redis_conn *c, const struct str *keys, size_t n,
              struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	const struct str *names = texts(&arena, node->names->prefix, 0, keys, n);
	const struct str *messages = texts(&arena, STR(""), NODE_SAYS_KEY, keys, n);
	if (!names || !messages)
		return out_of_memory(e);
	int r = mark(c, names, n, false, e);
	if (r)
		return r;
	messages_write(node, c, messages, n);
	return messages_read(c, n, e);
}
