/* One connection with the Redis protocol, for client/redis.c only. It never blocks beyond its deadline,
 * however slowly data arrives: sockets are non-blocking, and each wait uses only the remaining time. */
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
	struct arena replies; /* the last reply, or the start of the next one */
	bool reply_whole;     /* it is the complete last reply */
	struct buf out;
	size_t out_sent;
	size_t replies_pending; /* replies of queued commands */
	int64_t deadline_ms;    /* for the replies */
	bool failed;
	bool refused;       /* because of the server's reply */
	bool is_single_use; /* usable, but closed on return */
	struct err why;
};

/* Connects to the server of the URL, or to the primary that the sentinels name, and checks that it answers.
 * Within REDIS_TIMEOUT_MS; NULL with a sentence. `sentinel` is the one that answered last: it is asked
 * first. */
struct redis_conn *redis_connect(const struct redis_url *u, _Atomic size_t *sentinel, struct err *e);

/* Connects until `deadline_ms`; NULL with a sentence. Sends nothing. */
struct redis_conn *wire_open(const struct redis_host *host, int64_t deadline_ms, struct err *e);

/* Takes over a connected non-blocking socket, also on failure. */
struct redis_conn *wire_new(int fd, struct err *e);
void wire_close(void *conn); /* takes NULL */

/* Frees the buffers, but for a small rest. */
void wire_rest(struct redis_conn *c);

/* False: the peer closed it, or sent unexpected data, while idle. */
bool wire_is_quiet(const void *conn);

/* Sends queued commands; replies are due by the deadline. */
int wire_send(struct redis_conn *c, int64_t deadline_ms);

/* The next reply: 0, ERR_BUSY: none in time, ERR_UNAVAILABLE: the connection failed. */
int wire_read(struct redis_conn *c, int64_t deadline_ms, struct redis_reply *ret);

int wire_fail(struct redis_conn *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
