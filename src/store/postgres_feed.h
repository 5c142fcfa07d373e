/*
 * The feeds of a PostgreSQL store (store/feed.h): tables with a row for each transaction. For the files of
 * the PostgreSQL store only.
 *
 * A row is known by its transaction's number, which the database gave out before the row was written. Rows
 * become visible in the order of commits, which is another one: so behind a row whose transaction is younger
 * than the oldest that is still open, others may appear before it. Readers are told of such rows at once, and
 * again until that is over: their cursor stays before them.
 */
#pragma once

#include "store/postgres_txn.h"

/* The number of the transaction under way. CockroachDB has none to show: there rows are known by their
 * sequence, and count as settled after FEED_SETTLE_MS. */
#define FEED_TRANSACTION "txid_current()"

/* Appends a row, unless there is nothing to say. */
void postgres_feed_put(struct postgres_txn *t, bool accounts, int64_t now_ms, struct str entries);

int postgres_feed_read(struct pg_conn *c, bool is_postgres, bool accounts, struct feed_page *page);
int postgres_feed_prune(struct pg_conn *c, bool accounts, int64_t until_ms, size_t *ret);
