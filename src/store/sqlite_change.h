/*
 * What changes do to a link file, over the writing connection and inside the caller's transaction: rows are
 * fetched and written here, and judged by decide.h. For the files of the SQLite store only. Functions return
 * SQLite's code (SQLITE_OK or an error).
 */
#pragma once

#include "store/decide.h"
#include "store/sqlite_layout.h"

int sqlite_fetch_links(struct sqlite_conn *c, struct view *v);
/* *ret_lost: an id was taken, and all must be done again in another transaction. */
int sqlite_write_links(struct sqlite_conn *c, struct view *v, bool *ret_lost);

/* Of a user, a session or an API key; what comes of it stands in its outcome, and is added to the feed. */
int sqlite_change_account(struct sqlite_conn *c, const struct store_write *w, struct store_outcome *out,
                          struct buf *feed);

/* Appends a row to a feed, unless there is nothing to say. */
int sqlite_feed_add(struct sqlite_conn *c, unsigned sql, int64_t now_ms, struct str entries);

/* Removes a bounded number of what has died. */
int sqlite_purge(struct sqlite_conn *c, unsigned sql, const struct purge *p);

/* SQLite's code for one of ours. */
static inline int sqlite_of_error(int r)
{
	return r == 0 || r == ERR_NOT_FOUND ? SQLITE_OK : r == ERR_NOMEM ? SQLITE_NOMEM : SQLITE_CORRUPT;
}
