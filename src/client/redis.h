/*
 * Connections to a Redis or Valkey server, or to the current primary according to Sentinel.
 *
 * A `struct redis` is one server with a few connections, each used by one thread at a time (client/pool.h).
 * If one fails, the server counts as failed, and callers get NULL at once until a connect succeeds after a
 * pause. Connecting and every command end within REDIS_TIMEOUT_MS. Names are resolved on connect, so calls
 * block: never on an event loop.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum { REDIS_TIMEOUT_MS = 500 };

/* REDIS_TIMEOUT_MS; tests on a busy machine may raise it. */
extern _Atomic int64_t redis_timeout_ms;

struct redis;
struct redis_conn;

/*
 * redis://[[user:]password@]host[:port][/db]
 * redis+sentinel://[[user:]password@]host[:port],host[:port],.../primary-name[/db]
 * Only parses: ERR_INVALID with a sentence that never repeats the password.
 */
int redis_new(struct str url, struct redis **ret, struct err *e);
void redis_free(struct redis *r); /* waits for connections in use */

/* Splits a list of URLs at commas, but not between the sentinels of one URL: a new URL begins with a
 * scheme. ERR_INVALID: empty. */
int redis_urls_cut(struct str urls, struct arena *arena, struct str **ret, size_t *ret_count, struct err *e);

/* The server's name on a ring: "host:port/db", or "primary@host:port/db" with the first sentinel by name. */
struct str redis_name(const struct redis *r);

/* A connection; NULL: the server is down, or too many are in use; `e` says why (may be NULL). */
struct redis_conn *redis_take(struct redis *r, struct err *e);
void redis_return(struct redis_conn *c); /* closes it if it failed */

/* Any thread: conn_pool_is_failing. */
bool redis_is_failing(const struct redis *r);

/* --- commands; replies come in the order of the commands --- */

enum redis_type { REDIS_NIL, REDIS_INT, REDIS_STR, REDIS_STATUS, REDIS_ARRAY, REDIS_ERROR };

/* Valid until the next redis_read on the connection. */
struct redis_reply {
	enum redis_type type;
	int64_t number;
	struct str text;    /* STR, STATUS, ERROR */
	const void *vendor; /* for redis_reply_at */
	size_t count;       /* ARRAY */
};

/* Queues a command; arguments are bytes. Sends nothing yet. */
void redis_write(struct redis_conn *c, const struct str *args, size_t n);

/* Sends queued commands without waiting, so that several servers can work in parallel. 0 or
 * ERR_UNAVAILABLE. */
int redis_send(struct redis_conn *c);

/* Sends queued commands, and reads the next reply: 0, also for an error reply (REDIS_ERROR).
 * ERR_UNAVAILABLE: the connection failed, and so do all later calls. READONLY, LOADING, MASTERDOWN,
 * NOREPLICAS and NOAUTH fail the connection: the next one looks for the primary again. */
int redis_read(struct redis_conn *c, struct redis_reply *ret);

/* Did it fail by such a reply? Then the server certainly did not execute the command. */
bool redis_was_refused(const struct redis_conn *c);
const char *redis_why(const struct redis_conn *c); /* why it failed, for messages; "" if it did not */
/* Can something be read within `ms`? Also true if the connection has failed. After redis_send. */
bool redis_is_ready(const struct redis_conn *c, uint64_t ms);
struct redis_reply redis_reply_at(const struct redis_reply *array, size_t i);

/* One command, one reply. */
int redis_ask(struct redis_conn *c, const struct str *args, size_t n, struct redis_reply *ret);

/* For a listener: sends queued commands, and waits up to `ms` for any message. 0, ERR_BUSY: none came, or
 * ERR_UNAVAILABLE. The connection is closed when returned. */
int redis_wait(struct redis_conn *c, uint64_t ms, struct redis_reply *ret);

#define REDIS_ARGS(...) \
	(const struct str[]){__VA_ARGS__}, sizeof((const struct str[]){__VA_ARGS__}) / sizeof(struct str)
