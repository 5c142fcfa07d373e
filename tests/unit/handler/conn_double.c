#include "conn_double.h"

#include "lib/test.h"
#include "loop/loop.h"

int64_t double_mono_ms, double_real_ms;

struct http_conn conn_from(const char *address)
{
	struct http_conn c = {0};
	assert_int_equal(net_addr_parse(str_of(address), &c.peer, NULL), 0);
	return c;
}

struct loop *http_conn_loop(struct http_conn *c)
{
	return (struct loop *)c;
}

const struct net_addr *http_conn_peer(const struct http_conn *c)
{
	return &c->peer;
}

struct arena *http_conn_arena(struct http_conn *c)
{
	return &c->arena;
}

void http_conn_defer(struct http_conn *c)
{
	c->deferrals++;
}

void http_reply(struct http_conn *c, const struct http_response *r)
{
	size_t len = 0;
	c->replies++;
	c->status = r->status;
	c->content_type = r->content_type;
	snprintf(c->body, sizeof(c->body), "%.*s", STR_ARG(r->body));
	for (size_t i = 0; i < r->field_count && len < sizeof(c->fields); i++)
		len += (size_t)snprintf(c->fields + len, sizeof(c->fields) - len, "%.*s: %.*s\n",
		                        STR_ARG(r->fields[i].name), STR_ARG(r->fields[i].value));
}

int64_t loop_mono_ms(const struct loop *l)
{
	return double_mono_ms;
}

int64_t loop_real_ms(const struct loop *l)
{
	return double_real_ms;
}
