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

/* The same names, asked for afterwards. */
int postgres_made_get(struct pg_conn *c, const struct view *v, struct pg_result *ret_made);

/* Marks the rows whose insert was lost, and says how many. */
size_t postgres_lost_mark(struct view *v, const struct pg_result *made);
