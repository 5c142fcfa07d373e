/*
 * HTTP/1.1 connections of one worker: bytes in, whole requests to the handler, responses out in order.
 * Pipelined requests are handled in place from one buffer; while one waits for a deferred answer, the next is
 * not parsed.
 *
 * Slow clients: the head has one absolute deadline from its first byte, a body must keep a minimum rate,
 * output must be read at a minimum rate, and one address may hold only so many connections. Large answers
 * that wait to be read share a budget; one that does not fit becomes a 503, and the connection goes on. Large
 * bodies on their way share another; one that does not fit gets a 503, and the connection closes.
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
 * Called for each whole request. The handler replies before it returns, or defers. `req` and its strings
 * are valid until it returns; the body too, unless `body_stays`. What was taken from the connection's arena
 * stays until the reply.
 */
struct http_handler {
	void (*handle)(void *ctx, struct http_conn *c, const struct http_request *req);

	/* Replies to a request that could not be read: `status` and a sentence. The connection closes after
	 * it. */
	void (*refuse)(void *ctx, struct http_conn *c, int status, const char *reason);
	void *ctx;
};

/* Add the loop's other turn hooks before: a request's duration ends after them. */
int http_server_new(struct loop *l, const struct http_settings *s, const struct http_handler *h,
                    struct metrics *m, struct http_server **ret, struct err *e);
void http_server_free(struct http_server *srv); /* all connections must be gone */
int http_server_listen(struct http_server *srv, int fd, struct err *e);

/* No new connections; idle ones and endless answers end now, the others after the answer under way. */
void http_server_drain(struct http_server *srv);
bool http_server_is_idle(
    const struct http_server *srv); /* no connection, and no promise to one that has gone */

/* Replies; from the handler, or later on the loop's thread after http_conn_defer. Exactly once a request. */
void http_reply(struct http_conn *c, const struct http_response *r);
void http_reply_ready(struct http_conn *c, const char *bytes, const struct http_ready *ready);

/* Promises a later reply. Whoever holds the promise must keep it even if the peer has gone by then; it may be
 * made again until then. */
void http_conn_defer(struct http_conn *c);

/* Calls `again` for a request that was deferred, as if it had just come: it may reply and go on to use the
 * arena, or defer again. Not at all when the peer has gone: then the promise ends here. */
typedef void http_handle_fn(void *ctx, struct http_conn *c, const struct http_request *req);
void http_conn_again(struct http_conn *c, http_handle_fn *again, void *ctx, const struct http_request *req);

/*
 * An answer that goes on until one side ends it (server-sent events). It takes the place of http_reply, in
 * the handler or after http_conn_defer, but not for HEAD, which is answered as usual. The head says no length
 * and `Connection: close`: the answer ends with the connection, which HTTP/1.0 understands as well; its body
 * is the first of the bytes.
 *
 * What the peer sends from now on is read and thrown away, requests too; when it sends no more, it has gone.
 * There may be nothing to read for ever; what there is, it must read at the minimum rate, or is cut off.
 */
struct http_stream_owner {
	/* The peer has gone, or the server drains: write no more. Called once, on the loop's thread, unless
	 * the owner ended the stream itself; perhaps before http_stream_begin returns. The connection's arena
	 * lives at least until then. */
	void (*closed)(struct http_stream_owner *);
};

enum { HTTP_STREAM_BACKLOG_MAX = 256 * 1024 };

void http_stream_begin(struct http_conn *c, const struct http_response *head,
                       struct http_stream_owner *owner);

/* False when the bytes were not taken: more than HTTP_STREAM_BACKLOG_MAX would wait for the peer to read, or
 * `closed` is about to be called. */
bool http_stream_write(struct http_conn *c, struct str bytes);
void http_stream_end(struct http_conn *c); /* the peer may still read what was written */

/* Under which number the duration of this request is counted (METRICS_ROUTES_MAX); 0 unless it is set. */
void http_conn_set_route(struct http_conn *c, size_t route);

/* Memory that lives until the reply; that of an endless answer until its end. */
struct arena *http_conn_arena(struct http_conn *c);
struct loop *http_conn_loop(struct http_conn *c);
const struct net_addr *http_conn_peer(const struct http_conn *c);
