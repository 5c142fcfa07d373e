/*
 * What reads and changes do to a link file, over one connection and inside the caller's transaction. For
 * store_sqlite.c only. Functions return SQLite's code (SQLITE_OK or an error); what became of the single
 * read or change stands in its result.
 */
#pragma once

#include "store/sqlite_layout.h"
#include "store/store.h"

/* What a change will say once it is committed. */
struct sqlite_outcome {
	int result;
	bool replayed;
	enum { BACK_NOTHING, BACK_LINK, BACK_KEY } back;
	union {
		struct link_record link;
		struct key_record key;
	};
};

/* Strings go to the arena. 0, ERR_CORRUPT or ERR_NOMEM. */
int sqlite_row_link(sqlite3_stmt *row, struct arena *arena, struct link_record *ret);
int sqlite_row_key(sqlite3_stmt *row, struct arena *arena, struct key_record *ret);

int sqlite_link_find(struct sqlite_conn *c, struct link_ref ref, struct arena *arena, int *ret_result,
                     struct link_record *ret);

/* Looks before it writes: when out->result is an error, nothing was touched. */
int sqlite_change(struct sqlite_conn *c, const struct store_write *w, struct sqlite_outcome *out);

/* Forgets a bounded number of dead idempotency keys, after a batch that may have added some. */
int sqlite_replays_purge(struct sqlite_conn *c, const struct store_write *writes, size_t n);
