/*
 * The feeds of a PostgreSQL store (feed.h): tables with one row per transaction.
 *
 * A row has its transaction's number, which the server assigned before the row was written. Rows become
 * visible in the order of commits, which may differ. So a row with a smaller number may appear later, as
 * long as a transaction that is older than the row is open. Until then the row is not settled: readers get
 * it at once, and again with every read, because their cursor stays before it.
 */
#pragma once

#include "store/postgres_txn.h"

/* The current transaction's number. CockroachDB has none: there a row has only its sequence, and counts as
 * settled after 10 seconds. */
#define FEED_TRANSACTION "txid_current()"

/* Appends a row, unless `entries` is empty. */
void postgres_feed_put(struct postgres_txn *t, bool accounts, int64_t now_ms, struct str entries);

int postgres_feed_read(struct pg_conn *c, bool is_postgres, bool accounts, struct feed_page *page);
int postgres_feed_prune(struct pg_conn *c, bool accounts, int64_t until_ms, size_t *ret);
