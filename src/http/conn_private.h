/*
 * The insides of a connection, for conn.c (requests), reply.c (responses) and server.c (their server).
 *
 * One connection is in one of five states:
 *
 *   HEAD       waiting for a request's head, or for the rest of it
 *   BODY       the head is kept in the arena, the body gathers behind it
 *   WAITING    the handler deferred; input is paused until the reply
 *   STREAMING  the response belongs to an owner who writes on; input is thrown away
 *   ENDING     the last response is queued; later bytes are not looked at
 */
#pragma once

#include "base/object_pool.h"
#include "http/body.h"
#include "http/conn.h"

enum { BACKLOG_BYTES_MAX = 256 * 1024 }; /* queued output beyond which no further request is parsed */

enum conn_state { CONN_HEAD, CONN_BODY, CONN_WAITING, CONN_STREAMING, CONN_ENDING };

struct http_conn {
	struct stream stream;
	struct http_server *srv;
	enum conn_state state;
	bool in_handler;
	bool replied;
	bool counted; /* by address */
	bool gone;    /* the peer left while the request was deferred */
	bool head_started;
	bool had_request;         /* at least one */
	bool parked;              /* paused because the peer does not read its responses */
	size_t backlog_bytes_max; /* beyond this the connection parks; 0 while a large response waits */
	size_t large_bytes;       /* of the server's budget, while a large response waits */

	/* of the request at hand */
	int64_t begun_ns; /* monotonic; set when it is deferred */
	uint8_t route;
	enum http_method method;
	uint8_t minor_version;
	bool keep_alive;
	struct http_body body;
	struct http_request *kept; /* in the arena, while a body gathers */
	struct arena arena;

	/* of a streaming response */
	struct http_stream_owner *owner; /* until it knows of the end */
	uint64_t queued_bytes;           /* in all */
	uint64_t due_bytes;              /* of which this many must have left by the deadline */
};

struct http_server {
	struct loop *loop;
	struct http_settings settings;
	struct http_handler handler;
	struct metrics *metrics;
	struct object_pool conns;
	struct peers *peers;
	bool draining;
	int64_t drain_new_until_ms; /* connections without a request are kept until then */
	size_t large_bytes;         /* of all connections */
	struct http_bodies bodies;
	struct http_request request; /* the one at hand: parsed in place, handled before the next */
	/* Requests that this turn both received and answered. */
	uint64_t turn_routes;                      /* bits 1 << route: those with a count below */
	uint64_t turn_replies[METRICS_ROUTES_MAX]; /* by route */
};

_Static_assert(METRICS_ROUTES_MAX <= 64, "turn_routes has a bit for each");

static inline struct http_conn *conn_of(struct stream *s)
{
	return container_of(s, struct http_conn, stream);
}

/* conn.c */
extern const struct stream_ops conn_stream_ops;
void conn_free(struct http_conn *c);
void conn_end(struct http_conn *c);                 /* after what is queued */
void conn_next_request(struct http_conn *c);        /* after the reply to a deferred one */
void conn_drop_body(struct http_conn *c);           /* and its share of the budget */
void conn_set_output_deadline(struct http_conn *c); /* for the peer to read what is queued */

/* reply.c */
extern const struct http_response reply_body_refused;
void reply_release_large(struct http_conn *c); /* a large response has left, or never will */
void streaming_end(struct http_conn *c);       /* tells the owner */
