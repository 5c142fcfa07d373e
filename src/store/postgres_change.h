/*
 * What changes do to a PostgreSQL store, inside a transaction. For the files of the PostgreSQL store only.
 *
 * A batch is cut into runs: changes of one kind that follow each other and name different things. Within a
 * run no change sees another one's effect, so a run is asked for and written as a whole.
 *
 * A change looks before it writes: when its result is an error, nothing was touched. Functions return 0 or
 * what ended the transaction; what became of the single change stands in its outcome.
 */
#pragma once

#include "store/outcome.h"
#include "store/postgres_txn.h"

/* Does n changes, and forgets some of what has died. */
int postgres_change(struct postgres_txn *t, const struct store_write *writes, size_t n,
                    struct store_outcome *outcomes);

/* A run of creates whose names, ids and idempotency keys all differ. */
int postgres_create_run(struct postgres_txn *t, const struct store_write *writes, size_t n,
                        struct store_outcome *outcomes);

/* A run of changes of links that are there: all with a key or all without, and all different. */
int postgres_target_run(struct postgres_txn *t, const struct store_write *writes, size_t n,
                        struct store_outcome *outcomes);

/* A run of PERMIT and FORBID that differ in link or user. */
int postgres_list_run(struct postgres_txn *t, const struct store_write *writes, size_t n,
                      struct store_outcome *outcomes);

/* A change of users, sessions or API keys. */
int postgres_account_change(struct postgres_txn *t, const struct store_write *w, struct store_outcome *out);
