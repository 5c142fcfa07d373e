/* The server of one worker: its settings, its connections, and the duration of its requests. */
#include "http/conn_private.h"
#include "http/peers.h"
#include "os/clock.h"

#include <stdlib.h>

#define SETTING(...) CONF_ROW(struct http_settings, __VA_ARGS__)

const struct conf_row http_rows[] = {
    SETTING("limits", "line_bytes", CONF_BYTES, limits.line_bytes_max, "8k",
            "The longest request line; a longer one gets 414.", .min = 256, .max = 1 << 20),
    SETTING("limits", "headers_bytes", CONF_BYTES, limits.headers_bytes_max, "32k",
            "The most bytes of header fields in a request; more get 431.", .min = 1024, .max = 1 << 20),
    SETTING("limits", "headers", CONF_UINT, limits.headers_max, "100",
            "The most header fields in a request; more get 431.", .min = 8, .max = HTTP_FIELDS_MAX),
    SETTING("limits", "body_bytes", CONF_BYTES, limits.body_bytes_max, "4m",
            "The largest request body; a larger one gets 413.", .min = 1024, .max = 1 << 30),
    SETTING("limits", "head_time", CONF_DURATION, head_ms, "10s",
            "How long a client may take for a request's head, from its first byte to its last; after that it "
            "gets 408.",
            .min = 100, .max = 3600000),
    SETTING("limits", "idle_time", CONF_DURATION, idle_ms, "60s",
            "How long a connection may be idle between requests before it is closed.", .min = 100,
            .max = 86400000),
    SETTING("limits", "byte_rate", CONF_BYTES, body_bytes_rate, "1k",
            "The lowest rate, in bytes a second, at which a client must send a body and read an answer, "
            "after a start of limits.head_time. Beyond 64 KiB, the lowest rate is 64k a second.",
            .min = 1, .max = 1 << 30),
    SETTING("limits", "connections", CONF_UINT, connections_max, "16384",
            "The most connections of one worker; further ones wait. The limit of open files may lower it.",
            .min = 16, .max = 1 << 20),
    SETTING("limits", "connections_per_address", CONF_UINT, connections_per_address_max, "512",
            "The most connections of one address (an IPv6 /64) to one worker; loopback has no limit. 0: no "
            "limit.",
            .max = 1 << 20),
};
const size_t http_row_count = ARRAY_LEN(http_rows);

static struct stream *conn_open(void *ctx, const struct net_addr *peer)
{
	struct http_server *srv = ctx;
	bool counted = !net_addr_is_loopback(peer);
	if (counted && !peers_enter(srv->peers, peer, srv->settings.connections_per_address_max))
		return NULL;
	struct http_conn *c = object_pool_get(&srv->conns);
	if (!c) {
		if (counted)
			peers_leave(srv->peers, peer);
		return NULL;
	}
	*c = (struct http_conn){
	    .srv = srv, .counted = counted, .state = CONN_HEAD, .backlog_bytes_max = BACKLOG_BYTES_MAX};
	c->stream.ops = &conn_stream_ops;
	c->stream.deadline_ms = loop_mono_ms(srv->loop) + (int64_t)srv->settings.head_ms;
	return &c->stream;
}

/* All requests that this turn received and answered took the same time: from its beginning until its output
 * leaves. One reading of the clock is enough for them. */
static void count_turn(void *ctx)
{
	struct http_server *srv = ctx;
	if (srv->turn_routes == 0)
		return;
	uint64_t duration_ns = (uint64_t)(clock_mono_ns() - loop_mono_ns(srv->loop));
	for (; srv->turn_routes; srv->turn_routes &= srv->turn_routes - 1) {
		int route = __builtin_ctzll(srv->turn_routes);
		histogram_add(&srv->metrics->http_request_duration[route], duration_ns,
		              srv->turn_replies[route]);
		srv->turn_replies[route] = 0;
	}
}

int http_server_new(struct loop *l, const struct http_settings *s, const struct http_handler *h,
                    struct metrics *m, struct http_server **ret, struct err *e)
{
	struct http_server *srv = calloc(1, sizeof(*srv));
	struct peers *peers = peers_new(s->connections_max);
	if (!srv || !peers) {
		free(srv);
		peers_free(peers);
		return err_set(e, ERR_NOMEM, "out of memory for the HTTP server");
	}
	srv->loop = l;
	srv->settings = *s;
	srv->handler = *h;
	srv->metrics = m;
	srv->peers = peers;
	object_pool_init(&srv->conns, sizeof(struct http_conn), s->connections_max);
	loop_add_turn_hook(l, count_turn, srv);
	*ret = srv;
	return 0;
}

void http_server_free(struct http_server *srv)
{
	if (!srv)
		return;
	ASSERT(srv->large_bytes == 0 && srv->bodies.taken_bytes == 0);
	object_pool_release(&srv->conns);
	peers_free(srv->peers);
	free(srv);
}

int http_server_listen(struct http_server *srv, int fd, struct err *e)
{
	return loop_listen(srv->loop, fd, conn_open, srv, e);
}

static void drain_one(struct stream *s, void *ctx)
{
	const struct http_server *srv = ctx;
	struct http_conn *c = conn_of(s);
	bool may_begin = !c->had_request && loop_mono_ms(srv->loop) < srv->drain_new_until_ms;
	if (c->state == CONN_HEAD && !c->head_started && !c->parked) {
		/* A request that has arrived is answered: the next turn delivers it. */
		if (!may_begin && stream_is_open(s) && !stream_has_input(s))
			stream_close(s);
	} else if (c->state == CONN_STREAMING && c->owner && stream_is_open(s)) {
		streaming_end(c);
	}
}

void http_server_drain(struct http_server *srv, uint64_t new_ms)
{
	srv->draining = true;
	srv->drain_new_until_ms = loop_mono_ms(srv->loop) + (int64_t)new_ms;
	loop_listen_end(srv->loop);
	loop_listen_is_empty(srv->loop); /* accepts what waits */
}

bool http_server_drained(struct http_server *srv, bool is_last)
{
	bool is_empty = loop_listen_is_empty(srv->loop);
	if (is_empty || is_last)
		loop_unlisten(srv->loop);
	loop_each_stream(srv->loop, drain_one, srv);
	return (is_empty || is_last) && http_server_is_idle(srv);
}

bool http_server_is_idle(const struct http_server *srv)
{
	return srv->conns.live == 0;
}
