/* One connection to PostgreSQL, as the pool sees it. For src/client/postgres*.c only. */
#pragma once

#include "client/pool.h"
#include "client/postgres.h"

enum { PG_STATEMENTS_MAX = 256 }; /* per connection; a power of two */

struct pg_prepared {
	const struct pg_statement *statement;
	bool is_sent; /* sent, and has not failed */
};

/* Sent, but not answered yet. */
enum pg_pending_kind { PG_PENDING_PREPARE, PG_PENDING_RUN, PG_PENDING_SYNC };

struct pg_pending {
	enum pg_pending_kind kind;
	const struct pg_statement *statement;
};

struct pg_conn {
	struct pool_conn base;
	struct pg_pool *pool;
	PGconn *vendor;
	bool failed;
	bool late; /* failed by a timeout */
	bool lock_timed_out, was_deadlocked;
	struct err trouble; /* to be logged, since pg_take; empty: nothing */
	int64_t timeout_ms;
	int64_t deadline_ms; /* of the replies to the last flush */

	struct pg_prepared prepared[PG_STATEMENTS_MAX]; /* hashed by address */
	struct pg_pending *pending;                     /* a queue: from `pending_first` on */
	size_t pending_first, pending_count, pending_cap;

	int error; /* first error since the last sync; 0: none */
	struct err error_text;
};

/* `address` is for messages. */
int pg_conn_open(const char *url, const char *address, int64_t timeout_ms, struct pg_conn **ret,
                 struct err *e);
void pg_conn_close(void *conn); /* NULL is fine */

/* Is an idle connection still usable, as far as known without asking? */
bool pg_conn_is_alive(const void *conn);

/* Neither in a transaction nor waiting for replies. */
bool pg_conn_is_idle(const struct pg_conn *c);

/* --- for what is not a pipeline --- */

/* Marks the connection as failed; ERR_UNAVAILABLE. */
int pg_conn_fail(struct pg_conn *c, const char *text);
void pg_conn_check(struct pg_conn *c, bool done); /* libpq did it, or the connection has failed */

void pg_conn_start(struct pg_conn *c, const char *sql); /* leaves pipeline mode, and sends */
void pg_conn_deadline_set(struct pg_conn *c);           /* from now on */
int pg_conn_drain(struct pg_conn *c);                   /* until all is sent */
int pg_conn_read(struct pg_conn *c, PGresult **ret);    /* the next piece of the answer, which may be NULL */
int pg_conn_judge(struct pg_conn *c, const PGresult *); /* 0, or the error, which is noted */
int pg_conn_finish(struct pg_conn *c);                  /* reads and judges the answers up to the end */

/* Back to pipeline mode; the first error that was noted, 0: none. */
int pg_conn_outcome(struct pg_conn *c, struct err *e);
