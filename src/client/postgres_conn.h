/* One connection to PostgreSQL, as the pool sees it. For src/client/postgres*.c only. */
#pragma once

#include "client/postgres.h"

enum { PG_STATEMENTS_MAX = 256 }; /* of one program on one connection; a power of two */

enum pg_readiness { PG_UNKNOWN, PG_ASKED, PG_READY };

struct pg_prepared {
	const struct pg_statement *statement;
	enum pg_readiness readiness;
};

/* What was sent and is not answered yet. */
enum pg_pending_kind { PG_PENDING_PREPARE, PG_PENDING_RUN, PG_PENDING_SYNC };

struct pg_pending {
	enum pg_pending_kind kind;
	const struct pg_statement *statement;
};

struct pg_conn {
	struct pg_pool *pool;
	PGconn *vendor;
	bool failed;
	bool late; /* failed because no answer came in time */
	bool waited_in_vain, was_deadlocked;
	struct err trouble; /* what a person should hear of, since it was taken; empty: nothing */
	int64_t timeout_ms;
	int64_t deadline_ms; /* of the answers to what was flushed last */

	struct pg_prepared prepared[PG_STATEMENTS_MAX]; /* hashed by address */
	struct pg_pending *pending;                     /* a queue: from `pending_first` on */
	size_t pending_first, pending_count, pending_cap;

	int error; /* the first since the last sync; 0: none */
	struct err error_text;
};

/* The keywords and values are libpq's; `address` is for sentences. */
int pg_conn_open(const char *const *keywords, const char *const *values, const char *address,
                 int64_t timeout_ms, struct pg_conn **ret, struct err *e);
void pg_conn_close(struct pg_conn *c);

/* Is an idle one still of use, as far as can be told without asking? */
bool pg_conn_is_alive(const struct pg_conn *c);

/* Neither in a transaction nor with answers to come. */
bool pg_conn_is_idle(const struct pg_conn *c);
