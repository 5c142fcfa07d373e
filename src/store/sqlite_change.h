/*
 * What changes do to a link file, over the writing connection and inside the caller's transaction. For the
 * files of the SQLite store only. Functions return SQLite's code (SQLITE_OK or an error); what became of the
 * single change stands in its outcome.
 *
 * A change looks before it writes: when its result is an error, nothing was touched.
 */
#pragma once

#include "store/outcome.h"
#include "store/sqlite_layout.h"

int sqlite_change(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out);

/* The same by subject: sqlite_links.c has the links and their lists, sqlite_accounts.c the rest. */
int sqlite_change_link(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out);
int sqlite_change_account(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out);

/* Forgets a bounded number of what has died, after a batch that may have added some. */
int sqlite_purge(struct sqlite_conn *c, const struct store_write *writes, size_t n);
