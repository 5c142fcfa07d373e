/*
 * Requests: bytes in, whole requests to the handler, in order.
 *
 * A request whose body is not all there yet is copied into the arena and parsed again from the copy: the
 * parser is pure, so this gives the same request, and the common case (all bytes at hand) copies nothing.
 *
 * Bodies share a budget (http/body.h). A body and its share are released as soon as nobody can look at it:
 *
 *   - when the handler returns with a reply,
 *   - with the reply to a deferred request,
 *   - with any refusal,
 *   - when the peer sends no more, or has gone.
 *
 * So a peer that does not read its response, or that watches a streaming one, holds no body.
 */
#include "http/conn_private.h"
#include "http/peers.h"

static int64_t now_ms(const struct http_conn *c)
{
	return loop_mono_ms(c->srv->loop);
}

/* Ends of requests and connections */

void conn_drop_body(struct http_conn *c)
{
	if (UNLIKELY(c->body.bytes.data))
		http_body_release(&c->body, &c->srv->bodies);
}

static void request_reset(struct http_conn *c)
{
	c->state = CONN_HEAD;
	c->head_started = false;
	c->kept = NULL;
	conn_drop_body(c);
	arena_release(&c->arena); /* an idle connection holds no memory but its own */
}

/* How long a peer may take to read what is queued. */
static uint64_t reading_ms(const struct http_conn *c)
{
	return http_slowest_ms(stream_backlog(&c->stream), c->srv->settings.body_bytes_rate);
}

void conn_set_output_deadline(struct http_conn *c)
{
	stream_set_deadline(&c->stream, now_ms(c) + (int64_t)(c->srv->settings.head_ms + reading_ms(c)));
}

/* Between requests: a connection is idle once its responses have been read. */
static void set_idle_deadline(struct http_conn *c)
{
	stream_set_deadline(&c->stream, now_ms(c) + (int64_t)(c->srv->settings.idle_ms + reading_ms(c)));
}

void conn_end(struct http_conn *c)
{
	c->state = CONN_ENDING;
	conn_set_output_deadline(c);
	stream_close(&c->stream);
}

void conn_free(struct http_conn *c)
{
	struct http_server *srv = c->srv;
	reply_release_large(c);
	if (c->counted)
		peers_leave(srv->peers, &c->stream.peer);
	request_reset(c);
	object_pool_put(&srv->conns, c);
}

void conn_next_request(struct http_conn *c)
{
	if (!c->keep_alive) {
		conn_drop_body(c);
		conn_end(c);
		return;
	}
	request_reset(c);
	set_idle_deadline(c);
	stream_resume(&c->stream);
}

/* Requests that cannot be read */

/* Without a reason: the budget of bodies is used up. */
static void refuse(struct http_conn *c, int status, const char *reason)
{
	conn_drop_body(c);
	c->route = 0;
	c->keep_alive = false;
	c->replied = false;
	c->in_handler = true;
	if (reason) {
		c->srv->handler.refuse(c->srv->handler.ctx, c, status, reason);
	} else {
		metric_add(&c->srv->metrics->http_bodies_refused, 1);
		http_reply(c, &reply_body_refused);
	}
	c->in_handler = false;
	ASSERT(c->replied);
	if (stream_is_open(&c->stream))
		conn_end(c);
}

/* Requests */

/* True when the next request may be looked at. */
static bool handle(struct http_conn *c, const struct http_request *req)
{
	c->route = 0;
	c->replied = false;
	c->in_handler = true;
	c->srv->handler.handle(c->srv->handler.ctx, c, req);
	c->in_handler = false;
	if (c->replied)
		conn_drop_body(c);
	if (!stream_is_open(&c->stream))
		return false;
	if (!c->replied) {
		ASSERT(c->state == CONN_WAITING);
		return false;
	}
	if (!c->keep_alive) {
		if (c->state != CONN_STREAMING)
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
	conn_drop_body(c);
	if (stream_is_open(&c->stream) && c->state != CONN_STREAMING)
		conn_next_request(c);
}

static void set_body_deadline(struct http_conn *c)
{
	const struct http_settings *s = &c->srv->settings;
	stream_set_deadline(&c->stream, http_body_deadline_ms(&c->body, s->head_ms, s->body_bytes_rate));
}

/* The head is whole, the body is not: keeps the head and gathers. False when the request was refused. */
static bool body_begin(struct http_conn *c, const char *head, size_t head_len)
{
	struct http_server *srv = c->srv;
	const char *reason;
	struct str copy = arena_str(&c->arena, str_n(head, head_len));
	c->kept = arena_alloc(&c->arena, sizeof(*c->kept));
	if (!copy.ptr || !c->kept) {
		refuse(c, 503, "The server is out of memory. Try again.");
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
		refuse(c, (int)-used, used == HTTP_BODY_NO_ROOM ? NULL : reason);
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

/* Takes one request, or a part of one, from the front of `data`. Sets *ret_go_on when another may follow. */
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
	c->method = req->method;
	c->minor_version = req->minor_version;
	c->keep_alive = req->keep_alive;
	if (LIKELY(!req->has_body)) {
		req->body = STR_NULL;
		*ret_go_on = handle(c, req);
		return head_len;
	}
	if (req->content_length > srv->settings.limits.body_bytes_max) {
		refuse(c, 413, "The request body is larger than limits.body_bytes.");
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
			conn_set_output_deadline(c);
			return used;
		}
		size_t n = c->state == CONN_BODY ? body_bytes(c, data + used, len - used, &go_on)
		                                 : head_bytes(c, data + used, len - used, &go_on);
		used += n;
	}
	if (LIKELY(c->state == CONN_HEAD)) {
		if (!c->head_started && stream_is_open(s))
			set_idle_deadline(c);
	} else if (c->state == CONN_STREAMING) {
		used = len; /* nobody will look at what is behind the request */
	}
	return used;
}

static void conn_eof(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	ASSERT(c->state != CONN_WAITING); /* which is paused: nothing is delivered */
	conn_drop_body(c);
	c->state = CONN_ENDING;
	stream_close(s);
}

static void conn_drained(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	c->parked = false;
	reply_release_large(c);
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
	refuse(c, 408, "The request did not arrive in time (limits.head_time, limits.byte_rate).");
}

static void conn_closed(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	if (c->state == CONN_WAITING && !c->replied)
		c->gone = true; /* freed by the reply */
	else
		conn_free(c);
}

const struct stream_ops conn_stream_ops = {
    .bytes = conn_bytes,
    .eof = conn_eof,
    .drained = conn_drained,
    .deadline = conn_deadline,
    .closed = conn_closed,
};

void http_conn_set_route(struct http_conn *c, size_t route)
{
	ASSERT(route < METRICS_ROUTES_MAX);
	c->route = (uint8_t)route;
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
