/*
 * What changes do to a PostgreSQL store, inside a transaction: rows are fetched and written here, and judged
 * by decide.h. For the files of the PostgreSQL store only. Functions return 0 or what ended the transaction.
 */
#pragma once

#include "store/decide.h"
#include "store/postgres_txn.h"

/* One round trip; one more if idempotency keys were used before. With `all` also the links of names that are
 * only to be generated. */
int postgres_fetch_links(struct postgres_txn *t, struct view *v, bool all);

/* Puts what was decided. The names of the links that were made are in *ret_made when the transaction has
 * ended; the caller ends it. */
int postgres_write_links(struct postgres_txn *t, struct view *v, struct pg_result *ret_made);

/* Marks the rows whose insert was lost, and says how many. */
size_t postgres_lost_mark(struct view *v, const struct pg_result *made);

/* The same when the answer to the COMMIT got lost, with what is there now. A name that another link has was
 * lost. One that nobody has may be a link that was made, and then removed by somebody: that is unknown. */
int postgres_lost_find(struct pg_conn *c, struct view *v, size_t *ret_lost);
