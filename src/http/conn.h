/*
 * HTTP/1.1 connections of one worker: bytes in, whole requests to the handler, responses out in order.
 * Pipelined requests are handled in place from one buffer. While one is deferred, the next is not parsed.
 *
 * Slow clients cannot hold resources for long:
 *
 *   - A head has one absolute deadline from its first byte.
 *   - A body must arrive, and output must be read, at a minimum rate.
 *   - One address holds a limited number of connections.
 *   - Large responses that wait to be read share a budget. One that does not fit becomes a 503, and the
 *     connection stays open.
 *   - Large bodies that arrive share another. One that does not fit gets a 503, and the connection closes.
 */
#pragma once

#include "base/arena.h"
#include "config/config.h"
#include "http/request.h"
#include "http/response.h"
#include "loop/loop.h"

struct http_conn;
struct http_server;

struct http_settings {
	struct http_limits limits;
	uint64_t head_ms;         /* from a head's first byte to its last */
	uint64_t idle_ms;         /* between requests */
	uint64_t body_bytes_rate; /* per second, after the first head_ms; both directions */
	uint64_t connections_max; /* per worker */
	uint64_t connections_per_address_max;
};

extern const struct conf_row http_rows[];
extern const size_t http_row_count;

/*
 * Called for each whole request. The handler replies before it returns, or defers. `req` and its strings are
 * valid until it returns; the body too, unless `body_stays`. Memory of the connection's arena lives until the
 * reply.
 */
struct http_handler {
	void (*handle)(void *ctx, struct http_conn *c, const struct http_request *req);

	/* Replies to a request that could not be read: `status` and a sentence. Then the connection closes. */
	void (*refuse)(void *ctx, struct http_conn *c, int status, const char *reason);
	void *ctx;
};

/* Add the loop's other turn hooks first: a request's duration includes them. */
int http_server_new(struct loop *l, const struct http_settings *s, const struct http_handler *h,
                    struct metrics *m, struct http_server **ret, struct err *e);
void http_server_free(struct http_server *srv); /* all connections must be gone */
int http_server_listen(struct http_server *srv, int fd, struct err *e);

/*
 * Begins to stop. No new connection begins. Those that the system has are accepted and answered; a new one has
 * `new_ms` for the first byte of its request. Idle connections and streaming responses end, the others after
 * their response. Call http_server_drained about every 20 ms until it is true: no connection, no deferred
 * request, and no listener. `is_last`: the listener closes now.
 */
void http_server_drain(struct http_server *srv, uint64_t new_ms);
bool http_server_drained(struct http_server *srv, bool is_last);
bool http_server_is_idle(const struct http_server *srv); /* no connection, and no deferred request */

/* Replies, exactly once a request: from the handler, or after http_conn_defer on the loop's thread. */
void http_reply(struct http_conn *c, const struct http_response *r);
void http_reply_ready(struct http_conn *c, const char *bytes, const struct http_ready *ready);

/* The reply comes later. It must come even if the peer has gone meanwhile. May be called again before it. */
void http_conn_defer(struct http_conn *c);

/* Calls `again` for a deferred request, as if it had just arrived: it may reply and still use the arena, or
 * defer again. When the peer has gone, `again` is not called and no reply is due. */
typedef void http_handle_fn(void *ctx, struct http_conn *c, const struct http_request *req);
void http_conn_again(struct http_conn *c, http_handle_fn *again, void *ctx, const struct http_request *req);

/*
 * A streaming response goes on until one side ends it (server-sent events). It takes the place of http_reply,
 * in the handler or after http_conn_defer; HEAD is replied to as usual. The head has no length and says
 * `Connection: close`: the response ends with the connection, which HTTP/1.0 understands too. The body of
 * `head` is the first of the bytes.
 *
 * What the peer sends from now on is thrown away, requests too. When it sends no more, it has gone. A stream
 * may be silent for ever, but what it sends must be read at the minimum rate.
 */
struct http_stream_owner {
	/* The peer has gone, or the server drains: write no more. Called once, on the loop's thread, perhaps
	 * before http_stream_begin returns; never when the owner ended the stream itself. The connection's
	 * arena lives at least until then. */
	void (*closed)(struct http_stream_owner *);
};

enum { HTTP_STREAM_BACKLOG_MAX = 256 * 1024 };

void http_stream_begin(struct http_conn *c, const struct http_response *head,
                       struct http_stream_owner *owner);

/* False when the bytes were not taken: more than HTTP_STREAM_BACKLOG_MAX would wait to be read, or `closed`
 * is about to be called. */
bool http_stream_write(struct http_conn *c, struct str bytes);
void http_stream_end(struct http_conn *c); /* the peer may still read what was written */

/* The route under which the request's duration is counted, below METRICS_ROUTES_MAX; 0 unless it is set. */
void http_conn_set_route(struct http_conn *c, size_t route);

/* Memory that lives until the reply, or until the end of a streaming response. */
struct arena *http_conn_arena(struct http_conn *c);
struct loop *http_conn_loop(struct http_conn *c);
const struct net_addr *http_conn_peer(const struct http_conn *c);
