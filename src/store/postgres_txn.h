/*
 * A transaction of a PostgreSQL store. For the files of the PostgreSQL store only.
 *
 * Statements are put and asked. What is put goes into the pipeline, and nobody waits for it: the server works
 * in order, so whatever is asked later sees it. What is asked travels with all that was put before it, and
 * costs a round trip. So a batch costs as many round trips as it has questions, and one to commit.
 *
 * Functions return 0 or an error that ends the transaction. ERR_BUSY: somebody else was in the way, do it all
 * again.
 */
#pragma once

#include "client/postgres.h"
#include "store/store.h"

struct postgres_txn {
	struct pg_conn *conn;
	bool is_distributed;      /* by Citus: rows of several keys cannot be locked at once */
	bool is_postgres;         /* itself, not CockroachDB */
	bool accounts_are_locked; /* against other changes of them */
	size_t put_count;         /* put since the last answer */
	bool is_asking;           /* questions were added whose answers were not read to the end */
	struct pg_result *kept;   /* where the answer to one of them goes, */
	size_t kept_at;           /* to this one; see txn_put_kept */
	struct arena scratch;     /* until the transaction ends */
	int error;                /* the first failure */
	struct err *e;            /* its sentence; may be NULL */
};

static inline struct pg_query txn_query(struct postgres_txn *t, const struct pg_statement *statement)
{
	return pg_query(t->conn, statement);
}

/* Each statement sees what was committed before it began, whatever the database's own default is: who waited
 * for a lock must see what its holder did. */
#define TXN_BEGIN "BEGIN ISOLATION LEVEL READ COMMITTED"

/* Adds a statement whose answer nobody needs, unless it fails. */
void txn_put(struct postgres_txn *t, struct pg_query *q);

/* Likewise, but its rows come with the next answer or the COMMIT. One at a time; the caller ends *ret. */
void txn_put_kept(struct postgres_txn *t, struct pg_query *q, struct pg_result *ret);

/* Sends all that was put, and the question. */
int txn_ask(struct postgres_txn *t, struct pg_query *q, struct pg_result *ret);

/* Several questions at a time: add each, send all, read the answers in order (each ended by its reader, also
 * after a failure), end. */
void txn_ask_add(struct postgres_txn *t, struct pg_query *q);
int txn_ask_send(struct postgres_txn *t);
int txn_ask_next(struct postgres_txn *t, struct pg_result *ret);
int txn_ask_end(struct postgres_txn *t);

/* Memory ran out. */
void txn_no_memory_note(struct postgres_txn *t);
static inline int txn_no_memory(struct postgres_txn *t)
{
	txn_no_memory_note(t);
	return ERR_NOMEM;
}

/*
 * Runs `work` in a transaction on a connection of the pool, again when it was ERR_BUSY, and commits. Batches
 * that name the same things in different orders may wait for each other in a circle; the database ends one of
 * them, and that one is done again while no other runs, if those soon come to an end.
 *
 * With a mark, a COMMIT whose answer got lost is resolved: 0 when it happened, and all is done again when it
 * did not. ERR_UNCERTAIN when that could not be found out in time. Without one it is ERR_UNCERTAIN at once.
 *
 * ERR_UNAVAILABLE: nothing happened. ERR_BUSY: nor did it, as somebody holds for long what it wants.
 * ERR_CONFLICT is the work's own and comes back as it is, with nothing done.
 */
enum { TXN_BRIEF_MS = 250 };

struct postgres_mark;
struct postgres_work {
	int (*run)(struct postgres_txn *t, void *ctx);
	void *ctx;
	bool is_distributed;
	bool is_postgres;
	bool gives_way; /* there are advisory locks: it can be done alone */
	bool is_brief;  /* waits TXN_BRIEF_MS for a lock at most, not the connection's usual time */
};
int postgres_txn_run(struct pg_pool *pool, struct postgres_mark *mark, const struct postgres_work *work,
                     struct err *e);

/*
 * Marks tell whether a transaction was committed: each writer has a row of its own, and sets it to the
 * transaction's number. A new connection that touches the row waits until the old transaction has ended, and
 * then sees which number it left.
 */
struct postgres_marks;
struct postgres_marks *postgres_marks_new(size_t count); /* how many may write at once; NULL: no memory */
void postgres_marks_free(struct postgres_marks *m);
struct postgres_mark *postgres_mark_take(struct postgres_marks *m); /* waits for one */
void postgres_mark_return(struct postgres_marks *m, struct postgres_mark *mark);
