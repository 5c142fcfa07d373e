/*
 * Lends connections to threads. What a connection is says a driver: client/postgres.c, client/redis.c and
 * client/clickhouse.c each are one.
 *
 * Threads. Any thread may take, return, log and look. A lent connection belongs to the thread that took it.
 * One thread frees the pool, when no other takes from it any more.
 *
 * Blocking. A taker gets an idle connection, the one used last; or makes one while there are fewer than the
 * most; or waits, no longer than it says, for one to come back. Connecting takes as long as the driver lets
 * it. Returning waits for what the driver's `reset` asks of the server, nothing else blocks.
 *
 * Who closes. The pool closes every connection it was given by the driver, and nobody else does: at its
 * return when the driver says so, when it lay idle for too long or is found dead, and when the pool is freed.
 * conn_pool_free waits for those that are lent or being made.
 *
 * What a taker sees of the server:
 * - It does not accept connections. The taker that tried gets the reason. From then on one connect at a time
 *   is tried, after a pause that doubles from CONN_RETRY_MIN_MS to CONN_RETRY_MAX_MS: by the pool's own
 *   thread (the reconnector) if the driver has one, otherwise by a taker. Idle connections go on being lent.
 *   When there is none to wait for either, the pool is *sick*: all other takers get the reason at once.
 * - It hangs: an answer is late (CONN_LATE). Nobody knows yet whether the connection hangs or the server. The
 *   pool is sick, takers wait, and the reconnector connects at once. If that works, the idle connections
 *   are as good as before. Otherwise they are closed, and the server does not accept connections.
 * - It fails (CONN_FAILED), for drivers whose connections share their fate: the idle connections are closed,
 *   lent ones are closed when they return, and the pool is sick until a new connection works. However many of
 *   them report the same failure, it counts once.
 * - It is back: the first connect that works ends all that.
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
	uint64_t era; /* of the pool, when it was made */
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

	/* Is an idle one still of use, as far as can be told without asking? Does not block. NULL: always. */
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

/* Who can go elsewhere need not wait for this server. */
bool conn_pool_is_sick(const struct conn_pool *p);

/* From now on nothing is lent, and nobody waits any more. */
void conn_pool_stop(struct conn_pool *p);
bool conn_pool_is_stopped(const struct conn_pool *p);

/* A warning in the log, at most once a second. */
void conn_pool_log(struct conn_pool *p, const char *text);
