/*
 * One connection is in one of five states:
 *
 *   HEAD     waiting for a request's head, or for the rest of it
 *   BODY     the head is kept in the arena, the body gathers behind it
 *   WAITING  the handler deferred; input is paused until the reply
 *   ENDLESS  the answer belongs to an owner who writes on; input is thrown away
 *   ENDING   the last response is queued; later bytes are not looked at
 *
 * A request whose body is not all there yet is copied into the arena and parsed again from the copy: the
 * parser is pure, so this gives the same request, and the common case (all bytes at hand) copies nothing.
 *
 * Large answers could fill the memory when nobody reads them, so a worker has a budget for those that wait.
 * Behind one, the connection's next request is not looked at until it has left: a connection holds one at
 * most, and asking for more does not win time.
 *
 * Bodies have a budget too (http/body.h). A body is released, and its share with it, where nobody can look at
 * it any more: when the handler has returned with a reply, with the reply of one that deferred, with any
 * refusal, and when the peer sends no more or has gone. A peer that then does not read its answer, or watches
 * an endless one, holds none of it.
 */
#include "http/conn.h"

#include "base/pool.h"
#include "http/body.h"
#include "http/peers.h"

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

enum {
	BACKLOG_BYTES_MAX = 256 * 1024, /* queued output beyond which no further request is parsed */
	LARGE_ANSWERS_BYTES_MAX = 64 * 1024 * 1024, /* the budget of a worker */
};

enum conn_state { CONN_HEAD, CONN_BODY, CONN_WAITING, CONN_ENDLESS, CONN_ENDING };

struct http_conn {
	struct stream stream;
	struct http_server *srv;
	enum conn_state state;
	bool in_handler;
	bool replied;
	bool counted; /* by address */
	bool gone;    /* the peer left while the handler held a promise */
	bool head_started;
	bool parked;              /* paused because the peer does not read its answers */
	size_t backlog_bytes_max; /* beyond this the connection parks; 0 while a large answer waits */
	size_t large_bytes;       /* of the server's budget, while a large answer waits */

	/* of the request at hand */
	enum http_method method;
	uint8_t minor_version;
	bool keep_alive;
	struct http_body body;
	struct http_request *kept; /* in the arena, while a body gathers */
	struct arena arena;

	/* of an endless answer */
	struct http_stream_owner *owner; /* until it has been told of the end, or has ended it */
	uint64_t queued_bytes;           /* in all */
	uint64_t unsent_bytes;           /* of which this much must have left by the deadline */
};

struct http_server {
	struct loop *loop;
	struct http_settings settings;
	struct http_handler handler;
	struct metrics *metrics;
	struct pool conns;
	struct peers *peers;
	bool draining;
	size_t large_bytes; /* of all connections */
	struct http_bodies bodies;
	struct http_request request; /* the one at hand: parsed in place, handled before the next */
};

static const struct stream_ops conn_stream_ops, endless_stream_ops;

static struct http_conn *conn_of(struct stream *s)
{
	return container_of(s, struct http_conn, stream);
}

static int64_t now_ms(const struct http_conn *c)
{
	return loop_mono_ms(c->srv->loop);
}

/* Ends of requests and connections */

static void body_over(struct http_conn *c)
{
	if (UNLIKELY(c->body.bytes.data))
		http_body_release(&c->body, &c->srv->bodies);
}

static void request_reset(struct http_conn *c)
{
	c->state = CONN_HEAD;
	c->head_started = false;
	c->kept = NULL;
	body_over(c);
	arena_release(&c->arena); /* an idle connection holds no memory but its own */
}

/* How long a peer may take to read what is queued. */
static uint64_t reading_ms(const struct http_conn *c)
{
	return http_slowest_ms(stream_backlog(&c->stream), c->srv->settings.body_bytes_rate);
}

static void set_output_deadline(struct http_conn *c)
{
	stream_set_deadline(&c->stream, now_ms(c) + (int64_t)(c->srv->settings.head_ms + reading_ms(c)));
}

/* Between requests: a connection is idle once its answers have been read. */
static void set_idle_deadline(struct http_conn *c)
{
	stream_set_deadline(&c->stream, now_ms(c) + (int64_t)(c->srv->settings.idle_ms + reading_ms(c)));
}

static void conn_end(struct http_conn *c)
{
	c->state = CONN_ENDING;
	set_output_deadline(c);
	stream_close(&c->stream);
}

/* A large answer has left, or never will. */
static void large_over(struct http_conn *c)
{
	c->srv->large_bytes -= c->large_bytes;
	c->large_bytes = 0;
	c->backlog_bytes_max = BACKLOG_BYTES_MAX;
}

static void conn_free(struct http_conn *c)
{
	struct http_server *srv = c->srv;
	large_over(c);
	if (c->counted)
		peers_leave(srv->peers, &c->stream.peer);
	request_reset(c);
	pool_put(&srv->conns, c);
}

/* Replies */

static unsigned reply_flags(const struct http_conn *c)
{
	unsigned flags = 0;
	if (c->method == HTTP_HEAD)
		flags |= HTTP_OUT_HEAD_ONLY;
	if (!c->keep_alive)
		flags |= HTTP_OUT_CLOSE;
	else if (c->minor_version == 0)
		flags |= HTTP_OUT_KEEP_10;
	return flags;
}

static void count_reply(struct http_conn *c, int status)
{
	struct metrics *m = c->srv->metrics;
	metric_add(&m->http_requests, 1);
	if (status < 300)
		metric_add(&m->http_2xx, 1);
	else if (status < 400)
		metric_add(&m->http_3xx, 1);
	else if (status < 500)
		metric_add(&m->http_4xx, 1);
	else
		metric_add(&m->http_5xx, 1);
}

/* True when there is somebody to reply to; what is left of a promise to a peer that has gone ends here. */
static bool reply_begin(struct http_conn *c)
{
	ASSERT(!c->replied);
	c->replied = true;
	if (c->gone) {
		conn_free(c);
		return false;
	}
	if (c->srv->draining)
		c->keep_alive = false;
	return stream_is_open(&c->stream);
}

/* A request that was waited for is answered: the next one may come, or none. */
static void waited_over(struct http_conn *c)
{
	if (!c->keep_alive) {
		body_over(c);
		conn_end(c);
		return;
	}
	request_reset(c);
	set_idle_deadline(c);
	stream_resume(&c->stream);
}

static void reply_end(struct http_conn *c)
{
	stream_written(&c->stream);
	if (!c->in_handler && stream_is_open(&c->stream))
		waited_over(c);
	/* Otherwise whoever called the handler goes on; a closed stream ends in conn_closed. */
}

/* A handler put a forbidden byte in a field: our bug, but not the peer's problem. */
static void reply_failed(struct http_conn *c)
{
	static const struct http_response failed = {.status = 500};
	c->keep_alive = false;
	http_response_write(stream_out_begin(&c->stream), &failed, reply_flags(c),
	                    loop_http_date(c->srv->loop));
}

/* Takes a large answer into the budget. One alone always fits: or it could never be had. */
static bool large_begin(struct http_conn *c, size_t bytes)
{
	struct http_server *srv = c->srv;
	ASSERT(c->large_bytes == 0);
	if (c->method == HTTP_HEAD)
		return true; /* the body does not go out */
	if (srv->large_bytes > 0 && srv->large_bytes + bytes > LARGE_ANSWERS_BYTES_MAX)
		return false;
	srv->large_bytes += bytes;
	c->large_bytes = bytes;
	c->backlog_bytes_max = 0;
	stream_ask_drained(&c->stream);
	return true;
}

/* In the form of the handler's own refusals. */
static const struct http_field busy_fields[] = {{STR("Retry-After"), STR("1")},
                                                {STR("Cache-Control"), STR("private, no-store")}};
#define BUSY(sentence)                                                                                     \
	{                                                                                                  \
		.status = 503, .content_type = STR("application/problem+json"),                            \
		.body = STR(                                                                               \
		    "{\"type\":\"urn:curt:unavailable\",\"title\":\"Service Unavailable\",\"status\":503," \
		    "\"detail\":\"" sentence "\"}\n"),                                                     \
		.fields = busy_fields, .field_count = ARRAY_LEN(busy_fields),                              \
	}
static const struct http_response large_refused = BUSY(
    "Too many large answers wait for their clients to read them. Try again.");
static const struct http_response body_refused = BUSY(
    "Too many large request bodies are on their way to this server. Try again.");

void http_reply(struct http_conn *c, const struct http_response *r)
{
	if (!reply_begin(c))
		return;
	if (UNLIKELY(r->body.len > HTTP_LARGE_BYTES) && !large_begin(c, r->body.len))
		r = &large_refused;
	count_reply(c, r->status);
	int e = http_response_write(stream_out_begin(&c->stream), r, reply_flags(c),
	                            loop_http_date(c->srv->loop));
	if (e == ERR_INVALID) {
		reply_failed(c);
	} else if (e < 0) {
		stream_abort(&c->stream);
		return;
	}
	reply_end(c);
}

void http_reply_ready(struct http_conn *c, const char *bytes, const struct http_ready *ready)
{
	if (!reply_begin(c))
		return;
	struct metrics *m = c->srv->metrics;
	metric_add(&m->http_requests, 1);
	metric_add(&m->http_3xx, 1);
	struct buf *out = stream_out_begin(&c->stream);
	char *to = buf_reserve(out, ready->len + HTTP_READY_EXTRA);
	if (LIKELY(to))
		out->len += http_ready_write(to, bytes, ready, reply_flags(c), loop_http_date(c->srv->loop));
	reply_end(c);
}

void http_conn_defer(struct http_conn *c)
{
	if (!c->in_handler && c->state == CONN_WAITING)
		return; /* one step of the answer has led to another */
	ASSERT(c->in_handler && !c->replied);
	c->state = CONN_WAITING;
	stream_pause(&c->stream);
	stream_set_deadline(&c->stream, 0);
}

/* Answers without an end */

static uint64_t endless_sent(const struct http_conn *c)
{
	return c->queued_bytes - stream_backlog(&c->stream);
}

/* What is queued by now must have left in time. What is added later does not move that time: it is for the
 * next one, or a peer that reads nothing could be told a little now and then for ever. */
static void endless_owe(struct http_conn *c)
{
	c->unsent_bytes = c->queued_bytes;
	set_output_deadline(c);
	stream_ask_drained(&c->stream);
}

static void endless_over(struct http_conn *c)
{
	struct http_stream_owner *owner = steal(c->owner);
	conn_end(c);
	owner->closed(owner);
}

/* False when there will be no answer but a failure; its owner hears of it when the connection has ended. */
static bool endless_head(struct http_conn *c, const struct http_response *head)
{
	int e = http_response_write(stream_out_begin(&c->stream), head, HTTP_OUT_CLOSE | HTTP_OUT_ENDLESS,
	                            loop_http_date(c->srv->loop));
	if (e == ERR_INVALID)
		reply_failed(c);
	stream_written(&c->stream);
	if (e == ERR_INVALID)
		conn_end(c);
	else if (e < 0)
		stream_abort(&c->stream);
	return e == 0 && stream_is_open(&c->stream);
}

void http_stream_begin(struct http_conn *c, const struct http_response *head, struct http_stream_owner *owner)
{
	ASSERT(!c->replied && c->method != HTTP_HEAD);
	if (c->gone) {
		owner->closed(owner);
		c->replied = true;
		conn_free(c);
		return;
	}
	bool waited = c->state == CONN_WAITING;
	c->replied = true;
	c->keep_alive = false;
	c->state = CONN_ENDLESS;
	c->owner = owner;
	c->stream.ops = &endless_stream_ops;
	if (!stream_is_open(&c->stream))
		return; /* it went in this very turn: endless_closed follows */
	count_reply(c, head->status);
	bool begun = endless_head(c, head);
	if (waited)
		body_over(c);
	if (!begun)
		return;
	c->queued_bytes = stream_backlog(&c->stream);
	endless_owe(c);
	if (c->srv->draining)
		endless_over(c);
	else if (waited)
		stream_resume(&c->stream);
}

bool http_stream_write(struct http_conn *c, struct str bytes)
{
	ASSERT(c->owner);
	if (!stream_is_open(&c->stream) || stream_backlog(&c->stream) + bytes.len > HTTP_STREAM_BACKLOG_MAX)
		return false;
	if (bytes.len == 0)
		return true;
	bool owes_nothing = endless_sent(c) >= c->unsent_bytes;
	stream_write(&c->stream, bytes.ptr, bytes.len);
	c->queued_bytes += bytes.len;
	if (owes_nothing)
		endless_owe(c);
	return stream_is_open(&c->stream);
}

void http_stream_end(struct http_conn *c)
{
	ASSERT(c->owner);
	c->owner = NULL;
	if (stream_is_open(&c->stream))
		conn_end(c);
}

static size_t endless_bytes(struct stream *s, const char *data, size_t len)
{
	(void)s;
	(void)data;
	return len;
}

static void endless_eof(struct stream *s)
{
	endless_over(conn_of(s));
}

static void endless_drained(struct stream *s)
{
	stream_set_deadline(s, 0);
}

static void endless_deadline(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	if (endless_sent(c) < c->unsent_bytes)
		stream_abort(s);
	else
		endless_owe(c); /* for what was added since */
}

static void endless_closed(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	struct http_stream_owner *owner = steal(c->owner);
	if (owner)
		owner->closed(owner);
	conn_free(c);
}

static const struct stream_ops endless_stream_ops = {
    .bytes = endless_bytes,
    .eof = endless_eof,
    .drained = endless_drained,
    .deadline = endless_deadline,
    .closed = endless_closed,
};

/* Requests that cannot be read */

static void refusal_begin(struct http_conn *c)
{
	body_over(c);
	c->keep_alive = false;
	c->replied = false;
	c->in_handler = true;
}

static void refusal_end(struct http_conn *c)
{
	c->in_handler = false;
	ASSERT(c->replied);
	if (stream_is_open(&c->stream))
		conn_end(c);
}

static void refuse(struct http_conn *c, int status, const char *reason)
{
	refusal_begin(c);
	c->srv->handler.refuse(c->srv->handler.ctx, c, status, reason);
	refusal_end(c);
}

static void refuse_body(struct http_conn *c)
{
	refusal_begin(c);
	metric_add(&c->srv->metrics->bodies_refused, 1);
	http_reply(c, &body_refused);
	refusal_end(c);
}

/* Requests */

static void take_request(struct http_conn *c, const struct http_request *req)
{
	c->method = req->method;
	c->minor_version = req->minor_version;
	c->keep_alive = req->keep_alive;
}

/* True when the next request may be looked at. */
static bool handle(struct http_conn *c, const struct http_request *req)
{
	c->replied = false;
	c->in_handler = true;
	c->srv->handler.handle(c->srv->handler.ctx, c, req);
	c->in_handler = false;
	if (c->replied)
		body_over(c);
	if (!stream_is_open(&c->stream))
		return false;
	if (!c->replied) {
		ASSERT(c->state == CONN_WAITING);
		return false;
	}
	if (!c->keep_alive) {
		if (c->state != CONN_ENDLESS)
			conn_end(c);
		return false;
	}
	request_reset(c);
	return true;
}

void http_conn_again(struct http_conn *c, http_handle_fn *again, void *ctx, const struct http_request *req)
{
	ASSERT(c->state == CONN_WAITING && !c->replied);
	if (c->gone) {
		conn_free(c);
		return;
	}
	c->in_handler = true;
	again(ctx, c, req);
	c->in_handler = false;
	if (!c->replied)
		return;
	body_over(c);
	if (stream_is_open(&c->stream) && c->state != CONN_ENDLESS)
		waited_over(c);
}

static void set_body_deadline(struct http_conn *c)
{
	const struct http_settings *s = &c->srv->settings;
	stream_set_deadline(&c->stream, http_body_deadline_ms(&c->body, s->head_ms, s->body_bytes_rate));
}

/* The head is whole, the body is not: keep the head and gather. False when the request was refused. */
static bool body_begin(struct http_conn *c, const char *head, size_t head_len)
{
	struct http_server *srv = c->srv;
	const char *reason;
	struct str copy = arena_str(&c->arena, str_n(head, head_len));
	c->kept = arena_alloc(&c->arena, sizeof(*c->kept));
	if (!copy.ptr || !c->kept) {
		refuse(c, 503, "The server is short of memory; try again.");
		return false;
	}
	int again = http_parse_head(copy.ptr, copy.len, &srv->settings.limits, c->kept, &reason);
	ASSERT(again == (int)head_len);
	c->state = CONN_BODY;
	http_body_begin(&c->body, c->kept, now_ms(c));
	if (c->kept->expect_continue && c->minor_version >= 1) {
		static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
		stream_write(&c->stream, go_on, sizeof(go_on) - 1);
	}
	set_body_deadline(c);
	return stream_is_open(&c->stream);
}

/* Takes what belongs to the body. Sets *ret_go_on when the request was handled and the next may come. */
static size_t body_bytes(struct http_conn *c, const char *data, size_t len, bool *ret_go_on)
{
	struct http_server *srv = c->srv;
	const char *reason;
	*ret_go_on = false;
	ssize_t used = http_body_feed(&c->body, &srv->bodies, data, len, srv->settings.limits.body_bytes_max,
	                              &reason);
	if (used < 0) {
		if (used == HTTP_BODY_NO_ROOM)
			refuse_body(c);
		else
			refuse(c, (int)-used, reason);
		return len;
	}
	if (!c->body.is_whole) {
		set_body_deadline(c);
		return (size_t)used;
	}
	c->kept->body = buf_view(&c->body.bytes);
	c->kept->body_stays = true;
	*ret_go_on = handle(c, c->kept);
	return (size_t)used;
}

/* One request, or a part of one, from the front of `data`. Sets *ret_go_on when there may be another behind
 * it. */
static size_t head_bytes(struct http_conn *c, const char *data, size_t len, bool *ret_go_on)
{
	struct http_server *srv = c->srv;
	struct http_request *req = &srv->request;
	const char *reason;
	*ret_go_on = false;

	int n = http_parse_head(data, len, &srv->settings.limits, req, &reason);
	if (n == HTTP_PARSE_MORE) {
		if (!c->head_started) {
			c->head_started = true;
			stream_set_deadline(&c->stream, now_ms(c) + (int64_t)srv->settings.head_ms);
		}
		return 0;
	}
	if (n < 0) {
		c->method = HTTP_GET;
		c->minor_version = 1;
		refuse(c, -n, reason);
		return len;
	}
	size_t head_len = (size_t)n;
	take_request(c, req);
	if (LIKELY(!req->has_body)) {
		req->body = STR_NULL;
		*ret_go_on = handle(c, req);
		return head_len;
	}
	if (req->content_length > srv->settings.limits.body_bytes_max) {
		refuse(c, 413, "The request body is larger than this server takes (limits.body_bytes).");
		return len;
	}
	if (!req->chunked && len - head_len >= req->content_length) {
		req->body = str_n(data + head_len, req->content_length);
		size_t whole = head_len + req->content_length;
		*ret_go_on = handle(c, req);
		return whole;
	}
	*ret_go_on = body_begin(c, data, head_len);
	return head_len;
}

static size_t conn_bytes(struct stream *s, const char *data, size_t len)
{
	struct http_conn *c = conn_of(s);
	size_t used = 0;
	bool go_on = true;
	while (go_on && used < len) {
		if (UNLIKELY(stream_backlog(s) > c->backlog_bytes_max)) {
			c->parked = true;
			stream_pause(s);
			stream_ask_drained(s);
			set_output_deadline(c);
			return used;
		}
		size_t n = c->state == CONN_BODY ? body_bytes(c, data + used, len - used, &go_on)
		                                 : head_bytes(c, data + used, len - used, &go_on);
		used += n;
	}
	if (LIKELY(c->state == CONN_HEAD)) {
		if (!c->head_started && stream_is_open(s))
			set_idle_deadline(c);
	} else if (c->state == CONN_ENDLESS) {
		used = len; /* nobody will look at what is behind the request */
	}
	return used;
}

static void conn_eof(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	ASSERT(c->state != CONN_WAITING); /* which is paused, and hears of nothing */
	body_over(c);
	c->state = CONN_ENDING;
	stream_close(s);
}

static void conn_drained(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	c->parked = false;
	large_over(c);
	set_idle_deadline(c);
	stream_resume(s); /* if it was parked */
}

static void conn_deadline(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	bool mid_request = c->state == CONN_BODY || (c->state == CONN_HEAD && c->head_started);
	if (!mid_request || stream_backlog(s) > 0) {
		stream_abort(s);
		return;
	}
	if (c->state == CONN_HEAD) {
		c->method = HTTP_GET;
		c->minor_version = 1;
	}
	refuse(c, 408, "The request did not arrive in time.");
}

static void conn_closed(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	if (c->state == CONN_WAITING && !c->replied)
		c->gone = true; /* freed by the reply */
	else
		conn_free(c);
}

static const struct stream_ops conn_stream_ops = {
    .bytes = conn_bytes,
    .eof = conn_eof,
    .drained = conn_drained,
    .deadline = conn_deadline,
    .closed = conn_closed,
};

static struct stream *conn_open(void *ctx, const struct net_addr *peer)
{
	struct http_server *srv = ctx;
	bool counted = !net_addr_is_loopback(peer);
	if (counted && !peers_enter(srv->peers, peer, srv->settings.connections_per_address_max))
		return NULL;
	struct http_conn *c = pool_get(&srv->conns);
	if (!c) {
		if (counted)
			peers_leave(srv->peers, peer);
		return NULL;
	}
	*c = (struct http_conn){
	    .srv = srv, .counted = counted, .state = CONN_HEAD, .backlog_bytes_max = BACKLOG_BYTES_MAX};
	c->stream.ops = &conn_stream_ops;
	c->stream.deadline_ms = now_ms(c) + (int64_t)srv->settings.head_ms;
	return &c->stream;
}

/* The server */

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
	pool_init(&srv->conns, sizeof(struct http_conn), s->connections_max);
	*ret = srv;
	return 0;
}

void http_server_free(struct http_server *srv)
{
	if (!srv)
		return;
	ASSERT(srv->large_bytes == 0 && srv->bodies.taken_bytes == 0);
	pool_release(&srv->conns, NULL);
	peers_free(srv->peers);
	free(srv);
}

int http_server_listen(struct http_server *srv, int fd, struct err *e)
{
	return loop_listen(srv->loop, fd, conn_open, srv, e);
}

static void drain_one(struct stream *s, void *ctx)
{
	(void)ctx;
	struct http_conn *c = conn_of(s);
	if (c->state == CONN_HEAD && !c->head_started && !c->parked)
		stream_close(s);
	else if (c->state == CONN_ENDLESS && c->owner && stream_is_open(s))
		endless_over(c);
}

void http_server_drain(struct http_server *srv)
{
	srv->draining = true;
	loop_unlisten(srv->loop);
	loop_each_stream(srv->loop, drain_one, NULL);
}

bool http_server_is_idle(const struct http_server *srv)
{
	return srv->conns.live == 0;
}

struct arena *http_conn_arena(struct http_conn *c)
{
	return &c->arena;
}

struct loop *http_conn_loop(struct http_conn *c)
{
	return c->srv->loop;
}

const struct net_addr *http_conn_peer(const struct http_conn *c)
{
	return &c->stream.peer;
}
