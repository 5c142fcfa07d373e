/*
 * Connections to a Redis or Valkey server, or to whichever server Sentinel says is the primary now.
 *
 * A `struct redis` is one such server with a few connections, lent to one thread at a time (client/pool.h).
 * When one of them fails, the server has failed, and callers get NULL at once until one of them, after a
 * pause, could connect again. Connecting and every command end within REDIS_TIMEOUT_MS. Names are resolved
 * with the connection, so calls block: never on an event loop.
 *
 * With Sentinel every new connection asks the sentinels first and checks that the server calls itself a
 * primary (ROLE): the answer may be old. READONLY from a server that was demoted is a failure like others.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum { REDIS_TIMEOUT_MS = 500 };

/* REDIS_TIMEOUT_MS, unless a test needs answers of a server that the machine is too busy for. */
extern _Atomic int64_t redis_timeout_ms;

struct redis;
struct redis_conn;

/*
 * redis://[[user:]password@]host[:port][/db]
 * redis+sentinel://[[user:]password@]host[:port],host[:port],.../primary-name[/db]
 * Only parses: ERR_INVALID with a sentence that never repeats the password.
 */
int redis_new(struct str url, struct redis **ret, struct err *e);
void redis_free(struct redis *r); /* waits for connections that are lent */

/* Cuts a list of URLs at its commas, but not at those between the sentinels of one of them: a new URL begins
 * with a scheme. ERR_INVALID when it is empty. */
int redis_urls_cut(struct str urls, struct arena *arena, struct str **ret, size_t *ret_count, struct err *e);

/* What stands for the server on a ring: "host:port/db", or "primary@host:port/db" with that of the
 * sentinels that comes first by name. */
struct str redis_name(const struct redis *r);

/* A connection; NULL: the server is away, or too many are lent; `e` says why (may be NULL). */
struct redis_conn *redis_take(struct redis *r, struct err *e);
void redis_return(struct redis_conn *c); /* closed when it failed, kept otherwise */

/* Any thread: conn_pool_is_failing. */
bool redis_is_failing(const struct redis *r);

/* --- commands; replies come in the order of the commands --- */

enum redis_type { REDIS_NIL, REDIS_INT, REDIS_STR, REDIS_STATUS, REDIS_ARRAY, REDIS_ERROR };

/* Good until the next redis_read on the connection. */
struct redis_reply {
	enum redis_type type;
	int64_t number;
	struct str text;    /* STR, STATUS, ERROR */
	const void *vendor; /* for redis_reply_at */
	size_t count;       /* ARRAY */
};

/* Queues a command, each argument as it is (bytes). Sends nothing yet. */
void redis_write(struct redis_conn *c, const struct str *args, size_t n);

/* Sends what is queued and waits for nothing, so that several servers can work at the same time. 0 or
 * ERR_UNAVAILABLE. */
int redis_send(struct redis_conn *c);

/* Sends what is queued and reads the next reply: 0, also when the server answered with an error
 * (REDIS_ERROR); ERR_UNAVAILABLE when the connection failed, then for all that follow too. A reply of
 * READONLY, LOADING, MASTERDOWN, NOREPLICAS or NOAUTH fails the connection: the next one asks anew where to
 * go. */
int redis_read(struct redis_conn *c, struct redis_reply *ret);

/* Did it fail by such a reply? Then the server has said for certain that it did not do it. */
bool redis_was_refused(const struct redis_conn *c);
const char *redis_why(const struct redis_conn *c); /* it failed, for people; "" before that */
/* Can something be read within `ms`? Also true when the connection has failed. After redis_send. */
bool redis_is_ready(const struct redis_conn *c, uint64_t ms);
struct redis_reply redis_reply_at(const struct redis_reply *array, size_t i);

/* One command, one reply. */
int redis_ask(struct redis_conn *c, const struct str *args, size_t n, struct redis_reply *ret);

/* For a listener: sends what is queued and waits up to `ms` for whatever comes. 0; ERR_BUSY when nothing
 * came; ERR_UNAVAILABLE. The connection is closed when it is returned. */
int redis_wait(struct redis_conn *c, uint64_t ms, struct redis_reply *ret);

#define REDIS_ARGS(...) \
	(const struct str[]){__VA_ARGS__}, sizeof((const struct str[]){__VA_ARGS__}) / sizeof(struct str)
