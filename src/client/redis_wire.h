/*
 * One connection to a server that speaks Redis' protocol: for client/redis.c only. It never blocks beyond its
 * deadline, however slowly the other side drips: sockets do not block, and each wait is for what is left.
 */
#pragma once

#include "client/pool.h"
#include "client/redis.h"
#include "client/redis_url.h"

enum { REDIS_REPLY_BYTES_MAX = 64 << 20, REDIS_REPLY_COUNT_MAX = 1 << 20 };

struct redisReader;

struct redis_conn {
	struct pool_conn base;
	struct redis *owner; /* NULL for a sentinel */
	int fd;
	struct redisReader *reader;
	struct arena replies; /* the reply that was read last, or what has come of the next */
	bool reply_whole;     /* the former */
	struct buf out;
	size_t out_sent;
	size_t awaited;      /* replies of commands that were queued */
	int64_t deadline_ms; /* for what was sent */
	bool failed;
	bool refused; /* ... since the server answered so */
	bool spent;   /* works, but must not be lent again */
	struct err why;
};

/* A new connection to the server that the URL means, which has answered: the server itself, or the one that
 * the sentinels name and that calls itself a primary. Within REDIS_TIMEOUT_MS; NULL with a sentence.
 * `sentinel` is which of them answered last: it is asked first. */
struct redis_conn *redis_connect(const struct redis_url *u, _Atomic size_t *sentinel, struct err *e);

/* Connects until `deadline_ms`; NULL with a sentence. Sends nothing. */
struct redis_conn *wire_open(const struct redis_host *host, int64_t deadline_ms, struct err *e);

/* Over a socket that is connected and does not block, which it owns from now on, also when it fails. */
struct redis_conn *wire_new(int fd, struct err *e);
void wire_close(void *conn); /* NULL is fine */

/* Gives back the memory of what was sent and read, but for a little. */
void wire_rest(struct redis_conn *c);

/* False: the other side has closed it, or said what nobody asked for, while it lay idle. */
bool wire_is_quiet(const void *conn);

/* Sends what is queued; the replies are due by then. */
int wire_send(struct redis_conn *c, int64_t deadline_ms);

/* The next reply: 0, ERR_BUSY when there is none by then, ERR_UNAVAILABLE when the connection failed. */
int wire_read(struct redis_conn *c, int64_t deadline_ms, struct redis_reply *ret);

int wire_fail(struct redis_conn *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
