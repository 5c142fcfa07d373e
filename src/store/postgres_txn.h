/*
 * Transactions of a PostgreSQL store, pipelined.
 *
 * txn_put adds a statement to the pipeline without waiting. The server executes in order, so later
 * statements see its effects. txn_ask sends all pending statements and waits for one result: one round
 * trip. So a batch costs one round trip per question, and one to commit.
 *
 * Functions return 0, or an error that ends the transaction. ERR_BUSY: a conflict with another transaction;
 * retry all of it.
 */
#pragma once

#include "client/postgres.h"
#include "store/store.h"

struct postgres_txn {
	struct pg_conn *conn;
	bool is_distributed;      /* by Citus, which cannot lock rows of several keys at once */
	bool is_postgres;         /* not CockroachDB */
	bool accounts_are_locked; /* account_version is locked */
	size_t put_count;         /* statements put since the last round trip */
	bool is_asking;           /* some results have not been read yet */
	struct pg_result *kept;   /* receives the result */
	size_t kept_at;           /* of this statement; see txn_put_kept */
	struct arena scratch;     /* lives until the transaction ends */
	int error;                /* the first error */
	struct err *e;            /* receives its message; may be NULL */
};

static inline struct pg_query txn_query(struct postgres_txn *t, const struct pg_statement *statement)
{
	return pg_query(t->conn, statement);
}

/* Independent of the database's default: after waiting for a lock, a statement must see what its holder
 * committed. */
#define TXN_BEGIN "BEGIN ISOLATION LEVEL READ COMMITTED"

/* Adds a statement whose result matters only if it fails. */
void txn_put(struct postgres_txn *t, struct pg_query *q);

/* Likewise, but keeps its rows: they arrive with the next round trip or the COMMIT. One at a time; the
 * caller ends *ret. */
void txn_put_kept(struct postgres_txn *t, struct pg_query *q, struct pg_result *ret);

/* Sends all pending statements and the question. */
int txn_ask(struct postgres_txn *t, struct pg_query *q, struct pg_result *ret);

/* Several questions in one round trip: TXN_ASK_ADD each, send all, read the results in order (the reader ends
 * each, also after a failure), end. */
int txn_ask_send(struct postgres_txn *t);
int txn_ask_next(struct postgres_txn *t, struct pg_result *ret);
int txn_ask_end(struct postgres_txn *t);

/* The same with a statement and its values: TXN_PUT(t, &user_lock, PG_INT(id)). */
#define TXN_PUT(t, statement, ...)      txn_put_values(t, statement, PG_VALUES(__VA_ARGS__))
#define TXN_ASK(t, statement, ret, ...) txn_ask_values(t, statement, ret, PG_VALUES(__VA_ARGS__))
#define TXN_ASK_ADD(t, statement, ...)  txn_ask_add_values(t, statement, PG_VALUES(__VA_ARGS__))
void txn_put_values(struct postgres_txn *t, const struct pg_statement *statement,
                    const struct pg_value *values, size_t n);
int txn_ask_values(struct postgres_txn *t, const struct pg_statement *statement, struct pg_result *ret,
                   const struct pg_value *values, size_t n);
void txn_ask_add_values(struct postgres_txn *t, const struct pg_statement *statement,
                        const struct pg_value *values, size_t n);

/* Records that memory ran out. */
void txn_no_memory_note(struct postgres_txn *t);
static inline int txn_no_memory(struct postgres_txn *t)
{
	txn_no_memory_note(t);
	return ERR_NOMEM;
}

/*
 * Runs `work` in a transaction on a connection of the pool, and commits. Retries after ERR_BUSY. Batches
 * with common keys in different orders may deadlock: the database aborts one, which is retried alone, under
 * an exclusive advisory lock, if the others finish soon.
 *
 * With a mark, a COMMIT whose answer was lost is resolved: 0 if it was applied, a retry if it was not,
 * ERR_UNCERTAIN if that cannot be found out in time. Without a mark it is ERR_UNCERTAIN.
 *
 * ERR_UNAVAILABLE: nothing was applied. ERR_BUSY: likewise, because a lock timed out. ERR_CONFLICT and
 * ERR_NOT_FOUND from the work are returned as they are, with nothing applied.
 */
enum { TXN_BRIEF_MS = 250 };

struct postgres_mark;
struct postgres_work {
	int (*run)(struct postgres_txn *t, void *ctx);
	void *ctx;
	bool is_distributed;
	bool is_postgres;
	bool can_serialize; /* it may be retried alone: the server has advisory locks */
	bool is_brief;      /* lock timeout TXN_BRIEF_MS instead of the connection's */
};
int postgres_txn_run(struct pg_pool *pool, struct postgres_mark *mark, const struct postgres_work *work,
                     struct err *e);

/* Marks tell whether a transaction was committed. Each writer has its own row, and sets it to the
 * transaction's number. A new connection that updates the row waits until the old transaction has ended,
 * and then reads the number that it left. */
struct postgres_marks;
/* count: most concurrent writers; NULL: out of memory */
struct postgres_marks *postgres_marks_new(size_t count);
void postgres_marks_free(struct postgres_marks *m);
struct postgres_mark *postgres_mark_take(struct postgres_marks *m); /* waits for a free one */
void postgres_mark_return(struct postgres_marks *m, struct postgres_mark *mark);
