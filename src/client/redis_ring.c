#include "client/redis_ring.h"

static int open_nodes(struct redis_ring *r, const struct str *urls, size_t count, struct err *e)
{
	struct str names[REDIS_RING_MAX];
	for (size_t i = 0; i < count; i++) {
		int bad = redis_new(urls[i], &r->nodes[i], e);
		if (bad)
			return bad;
		r->count++;
		names[i] = redis_name(r->nodes[i]);
		for (size_t k = 0; k < i; k++) {
			if (str_eq(names[k], names[i]))
				return err_set(e, ERR_INVALID, "the Redis server %.*s is listed twice",
				               STR_ARG(names[i]));
		}
	}
	r->ring = ring_new(names, count);
	return r->ring ? 0 : err_set(e, ERR_NOMEM, "memory ran out");
}

int redis_ring_open(struct str urls, struct redis_ring *ret, struct err *e)
{
	struct redis_ring r = {0};
	struct arena arena = {0};
	struct str *list;
	size_t count;
	int bad = redis_urls_cut(urls, &arena, &list, &count, e);
	if (bad == 0 && count > REDIS_RING_MAX)
		bad = err_set(e, ERR_INVALID, "more than %d Redis servers are listed", REDIS_RING_MAX);
	if (bad == 0)
		bad = open_nodes(&r, list, count, e);
	arena_release(&arena);
	if (bad)
		redis_ring_release(&r);
	else
		*ret = r;
	return bad;
}

void redis_ring_release(struct redis_ring *r)
{
	for (size_t i = 0; i < r->count; i++)
		redis_free(r->nodes[i]);
	ring_free(r->ring);
	*r = (struct redis_ring){0};
}

int redis_ping(struct redis *r, struct err *e)
{
	struct redis_reply reply;
	struct redis_conn *c = redis_take(r, e);
	if (!c)
		return ERR_UNAVAILABLE;
	int bad = redis_ask(c, REDIS_ARGS(STR("PING")), &reply);
	redis_return(c);
	return bad ? err_set(e, bad, "Redis (%.*s) does not answer", STR_ARG(redis_name(r))) : 0;
}

int redis_ring_ping(struct redis_ring *r, struct err *e)
{
	struct err one;
	struct buf all = {0};
	for (size_t i = 0; i < r->count; i++) {
		if (redis_ping(r->nodes[i], &one) != 0)
			buf_printf(&all, "%s%s", all.len ? "; " : "", one.text);
	}
	int bad = all.len || all.failed ? ERR_UNAVAILABLE : 0;
	if (bad)
		err_set(e, bad, "%.*s", (int)all.len, all.data ? all.data : "");
	buf_release(&all);
	return bad;
}
