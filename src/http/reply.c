/*
 * Responses: ready ones, deferred ones and those that stream.
 *
 * Large responses could fill the memory when clients do not read them, so those of a worker share a budget.
 * A connection holds one at most: its next request waits until that one has left. So a client that asks for
 * more gains nothing.
 */
#include "http/conn_private.h"
#include "os/clock.h"

enum { LARGE_RESPONSES_BYTES_MAX = 64 * 1024 * 1024 }; /* of one worker */

static const struct stream_ops streaming_ops;

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

/* What was not deferred is timed at the end of the turn (server.c), so that the hot path reads no clock. */
static inline void count_reply(struct http_conn *c, int status)
{
	struct http_server *srv = c->srv;
	struct metrics *m = srv->metrics;
	if (LIKELY(c->state != CONN_WAITING)) {
		srv->turn_routes |= (uint64_t)1 << c->route;
		srv->turn_replies[c->route]++;
	} else {
		histogram_add(&m->http_request_duration[c->route], (uint64_t)(clock_mono_ns() - c->begun_ns),
		              1);
	}
	metric_add(&m->http_requests, 1);
	if (status < 300)
		metric_add(&m->http_2xx, 1);
	else if (status < 400)
		metric_add(&m->http_3xx, 1);
	else if (status < 500 || status == 501 || status == 505) /* the last two: what the client sent */
		metric_add(&m->http_4xx, 1);
	else
		metric_add(&m->http_5xx, 1);
}

/* True when somebody is there to read the reply. A connection whose peer has gone ends here. */
static bool reply_begin(struct http_conn *c)
{
	ASSERT(!c->replied);
	c->replied = c->had_request = true;
	if (c->gone) {
		conn_free(c);
		return false;
	}
	if (c->srv->draining)
		c->keep_alive = false;
	return stream_is_open(&c->stream);
}

/* In the handler, its caller goes on; a closed stream ends in `closed`. */
static void reply_end(struct http_conn *c)
{
	stream_written(&c->stream);
	if (!c->in_handler && stream_is_open(&c->stream))
		conn_next_request(c);
}

/* A handler put a forbidden byte in a field: our bug, but not the peer's problem. */
static void reply_failed(struct http_conn *c)
{
	static const struct http_response failed = {.status = 500};
	c->keep_alive = false;
	http_response_write(stream_out_begin(&c->stream), &failed, reply_flags(c),
	                    loop_http_date(c->srv->loop));
}

/* Takes a large response into the budget. One alone always fits: otherwise nobody could ever get it. */
static bool large_begin(struct http_conn *c, size_t bytes)
{
	struct http_server *srv = c->srv;
	ASSERT(c->large_bytes == 0);
	if (c->method == HTTP_HEAD)
		return true; /* the body does not go out */
	if (srv->large_bytes > 0 && srv->large_bytes + bytes > LARGE_RESPONSES_BYTES_MAX)
		return false;
	srv->large_bytes += bytes;
	c->large_bytes = bytes;
	c->backlog_bytes_max = 0;
	stream_ask_drained(&c->stream);
	return true;
}

void reply_release_large(struct http_conn *c)
{
	c->srv->large_bytes -= c->large_bytes;
	c->large_bytes = 0;
	c->backlog_bytes_max = BACKLOG_BYTES_MAX;
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
    "Too many large responses wait for their clients to read them. Try again.");
const struct http_response reply_body_refused = BUSY(
    "Too many large request bodies are arriving at this server. Try again.");

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
	count_reply(c, 302);
	struct buf *out = stream_out_begin(&c->stream);
	char *to = buf_reserve(out, ready->len + HTTP_READY_EXTRA);
	if (LIKELY(to))
		out->len += http_ready_write(to, bytes, ready, reply_flags(c), loop_http_date(c->srv->loop));
	reply_end(c);
}

void http_conn_defer(struct http_conn *c)
{
	if (!c->in_handler && c->state == CONN_WAITING)
		return; /* one step of the response has led to another */
	ASSERT(c->in_handler && !c->replied);
	if (c->state != CONN_WAITING)
		c->begun_ns = loop_mono_ns(c->srv->loop);
	c->state = CONN_WAITING;
	stream_pause(&c->stream);
	stream_set_deadline(&c->stream, 0);
}

/* Streaming responses */

static uint64_t sent_bytes(const struct http_conn *c)
{
	return c->queued_bytes - stream_backlog(&c->stream);
}

/* All that is queued now must leave by one deadline. What is added later does not move it: otherwise a peer
 * that reads nothing could be kept alive by a little output now and then. */
static void set_due(struct http_conn *c)
{
	c->due_bytes = c->queued_bytes;
	conn_set_output_deadline(c);
	stream_ask_drained(&c->stream);
}

void streaming_end(struct http_conn *c)
{
	struct http_stream_owner *owner = steal(c->owner);
	conn_end(c);
	owner->closed(owner);
}

/* False when only a failure could be sent; the owner knows when the connection has ended. */
static bool streaming_head(struct http_conn *c, const struct http_response *head)
{
	int e = http_response_write(stream_out_begin(&c->stream), head, HTTP_OUT_CLOSE | HTTP_OUT_STREAMING,
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
	c->replied = true;
	if (c->gone) {
		owner->closed(owner);
		conn_free(c);
		return;
	}
	bool waited = c->state == CONN_WAITING;
	if (stream_is_open(&c->stream))
		count_reply(c, head->status);
	c->keep_alive = false;
	c->state = CONN_STREAMING;
	c->owner = owner;
	c->stream.ops = &streaming_ops;
	if (!stream_is_open(&c->stream))
		return; /* it closed in this very turn: streaming_closed follows */
	bool begun = streaming_head(c, head);
	if (waited)
		conn_drop_body(c);
	if (!begun)
		return;
	c->queued_bytes = stream_backlog(&c->stream);
	set_due(c);
	if (c->srv->draining)
		streaming_end(c);
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
	bool nothing_due = sent_bytes(c) >= c->due_bytes;
	stream_write(&c->stream, bytes.ptr, bytes.len);
	c->queued_bytes += bytes.len;
	if (nothing_due)
		set_due(c);
	return stream_is_open(&c->stream);
}

void http_stream_end(struct http_conn *c)
{
	ASSERT(c->owner);
	c->owner = NULL;
	if (stream_is_open(&c->stream))
		conn_end(c);
}

static size_t streaming_bytes(struct stream *s, const char *data, size_t len)
{
	(void)s;
	(void)data;
	return len;
}

static void streaming_eof(struct stream *s)
{
	streaming_end(conn_of(s));
}

static void streaming_drained(struct stream *s)
{
	stream_set_deadline(s, 0);
}

static void streaming_deadline(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	if (sent_bytes(c) < c->due_bytes)
		stream_abort(s);
	else
		set_due(c); /* for what was added since */
}

static void streaming_closed(struct stream *s)
{
	struct http_conn *c = conn_of(s);
	struct http_stream_owner *owner = steal(c->owner);
	if (owner)
		owner->closed(owner);
	conn_free(c);
}

static const struct stream_ops streaming_ops = {
    .bytes = streaming_bytes,
    .eof = streaming_eof,
    .drained = streaming_drained,
    .deadline = streaming_deadline,
    .closed = streaming_closed,
};
