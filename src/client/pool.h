/*
 * A pool lends connections to threads. A driver says what a connection is: client/postgres.c, client/redis.c
 * and client/clickhouse.c each have one.
 *
 * Threads. Any thread may call any function, except that one thread frees the pool when no other can take
 * from it any more. A lent connection belongs to the thread that took it.
 *
 * Blocking. conn_pool_take returns an idle connection, the one used last. If there is none, it connects, as
 * long as fewer than the maximum are open. Otherwise it waits until a connection comes back, at most for the
 * given time. The driver bounds the time for connecting, and for what `reset` asks of the server.
 *
 * Closing. Only the pool closes connections: at their return if the driver says so, when they were idle for
 * too long, when they are found dead, and when the pool is freed. conn_pool_free waits for connections that
 * are lent or being made.
 *
 * What callers of conn_pool_take see when the server:
 *
 * - refuses connections. The caller that tried gets the reason. From then on, one connect at a time is tried,
 *   after a pause that doubles from CONN_RETRY_MIN_MS to CONN_RETRY_MAX_MS: by the pool's own task, the
 *   reconnector, or by a caller if the driver has no reconnector. Open connections are lent as before. When
 *   none is open, the pool is sick, and callers get the reason at once.
 * - hangs: a connection is returned as CONN_LATE. Either this connection hangs or the server. The pool is
 *   sick, callers wait, and the reconnector connects at once. If that works, the idle connections are lent
 *   again. If not, they are closed, and the server counts as refusing connections.
 * - fails: a connection is returned as CONN_FAILED, by a driver whose connections share their fate. The idle
 *   connections are closed, the lent ones are closed at their return, and the pool is sick until a connect
 *   works. The failure counts once, however many connections report it.
 * - is back. The first connect that works makes the pool well.
 */
#pragma once

#include "base/err.h"
#include "base/list.h"

enum { CONN_RETRY_MIN_MS = 50, CONN_RETRY_MAX_MS = 2000 };

struct conn_pool;

/* The pool's part of a connection. Whatever a driver calls a connection begins with it. */
struct pool_conn {
	struct list link; /* while it is idle */
	struct conn_pool *pool;
	uint64_t generation; /* pool.generation when it was created */
	int64_t idle_since_ms;
};

enum conn_verdict {
	CONN_KEEP,
	CONN_CLOSE,  /* says nothing about the server */
	CONN_LATE,   /* an answer did not come in time; only with a reconnector */
	CONN_FAILED, /* the server failed */
};

struct conn_driver {
	const char *reconnector; /* name of its thread; NULL: takers reconnect */
	bool shares_fate;        /* what one connection says about the server holds for all */
	bool logs_failure;       /* the log gets the reason when connecting begins to fail */
	size_t idle_max;         /* 0: as many as there are */
	int64_t idle_ms_max;     /* 0: for good */

	/* Blocks within a time limit of its own. `ctx` is the pool's. Any thread, several at a time. */
	int (*connect)(void *ctx, void **ret_conn, struct err *e);

	/* Does not block. */
	void (*close)(void *conn);

	/* Is an idle one still of use, as far as is known without asking? Does not block. NULL: always. */
	bool (*is_alive)(const void *conn);

	/* When it is returned, on the thread that had it: makes it as good as new if it can. Says `why` with
	 * CONN_LATE and CONN_FAILED. NULL: it is kept. */
	enum conn_verdict (*reset)(void *conn, struct err *why);
};

/* `address` is for people, and borrowed. Connects to nothing yet. */
int conn_pool_new(const struct conn_driver *driver, void *ctx, const char *address, size_t max,
                  struct conn_pool **ret, struct err *e);
void conn_pool_free(struct conn_pool *p); /* NULL is fine */

/* NULL: ERR_UNAVAILABLE, and `e` says why (may be NULL). */
void *conn_pool_take(struct conn_pool *p, int64_t timeout_ms, struct err *e);
void conn_pool_return(void *conn); /* NULL is fine */

/* Callers that can use another server should: a take would fail or wait. */
bool conn_pool_is_failing(const struct conn_pool *p);

/* Takes fail from now on, also those that wait. */
void conn_pool_stop(struct conn_pool *p);
bool conn_pool_is_stopped(const struct conn_pool *p);

/* A warning in the log, at most once a second. */
void conn_pool_log(struct conn_pool *p, const char *text);
