/* What a SQLite store is made of. For its own files: store_sqlite.c has its life and the role `store`,
 * sqlite_registry.c the role `registry`, sqlite_links.c what changes do to links. */
#pragma once

#include "client/sqlite_file.h"
#include "store/decide.h"
#include "store/rules.h"
#include "store/sqlite_layout.h"
#include "store/sqlite_rows.h"

struct store_sqlite {
	struct store base;
	struct registry registry;
	struct store_rules rules;
	struct sqlite_file *file;
};

extern const struct registry_ops sqlite_registry_ops;

/* Lends a reader until the end of the block. */
#define SQLITE_READER(s, read) \
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_read_begin((s)->file)

/*
 * Over the writing connection and inside the caller's transaction; what is decided by decide.h is fetched and
 * written here. These return SQLite's code (SQLITE_OK or an error).
 */
int sqlite_fetch_links(struct sqlite_conn *c, struct view *v);
/* *ret_lost: an id was taken, and all must be done again in another transaction. */
int sqlite_write_links(struct sqlite_conn *c, struct view *v, bool *ret_lost);

/* A statement with two numbers. */
int sqlite_numbers_run(struct sqlite_conn *c, unsigned sql, int64_t a, int64_t b);

/* Removes a bounded number of what has died. */
static inline int sqlite_purge(struct sqlite_conn *c, unsigned sql, const struct purge *p)
{
	return p->max > 0 ? sqlite_numbers_run(c, sql, p->until_ms, p->max) : SQLITE_OK;
}

/* SQLite's code for one of ours. */
static inline int sqlite_of_error(int r)
{
	return r == 0 || r == ERR_NOT_FOUND ? SQLITE_OK : r == ERR_NOMEM ? SQLITE_NOMEM : SQLITE_CORRUPT;
}

/* --- feeds, by the first of their statements --- */

/* Appends a row, unless there is nothing to say. */
int sqlite_feed_add(struct sqlite_conn *c, unsigned feed, int64_t now_ms, struct str entries);
int sqlite_feed_read(struct sqlite_file *f, unsigned feed, struct feed_page *page);
int sqlite_feed_prune(struct sqlite_file *f, unsigned feed, int64_t until_ms, size_t *ret);
