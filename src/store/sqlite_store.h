/*
 * Internals of the SQLite store. Functions that take a connection return SQLite's code.
 *
 *	store_sqlite.c      opening, the store interface, the feeds
 *	sqlite_layout.c     tables, migrations and statements (sqlite_statements.h)
 *	sqlite_rows.c       single rows
 *	sqlite_links.c      fetching and writing links for the rules (decide.h)
 *	sqlite_registry.c   the registry interface
 */
#pragma once

#include "client/sqlite_file.h"
#include "store/decide.h"
#include "store/rules.h"

struct store_sqlite {
	struct store base;
	struct registry registry;
	struct store_rules rules;
	struct sqlite_file *file;
};

extern const struct registry_ops sqlite_registry_ops;
extern const struct sqlite_layout link_file_layout;

enum {
	SQL_BEFORE = SQL_OWN - 1,
#define STATEMENT(name, text) name,
#include "store/sqlite_statements.h"
#undef STATEMENT
	SQL_COUNT,
};

/* Borrows a read connection until the end of the block. */
#define SQLITE_READER(s, read) \
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_read_begin((s)->file)

/* --- rows; strings go to the arena --- */

/* Binds the stored fields in the order of their rows, as in the column lists of sqlite_layout.c. An id of 0
 * becomes NULL: SQLite assigns one. Strings are borrowed until query_end. */
void sqlite_bind_record(struct query *q, const struct fields *s, enum fields_which which, const void *record);

/* 0, ERR_CORRUPT or ERR_NOMEM; then the record may be half filled. */
int sqlite_row_link(sqlite3_stmt *row, struct arena *arena, struct link_record *ret);
int sqlite_row_read(sqlite3_stmt *row, const struct fields *s, struct arena *arena, void *record,
                    size_t size);

/* *ret_result: 0, ERR_NOT_FOUND, ERR_CORRUPT or ERR_NOMEM. */
int sqlite_link_by_id(struct sqlite_conn *c, uint64_t id, struct arena *arena, int *ret_result,
                      struct link_record *ret);
int sqlite_link_find(struct sqlite_conn *c, struct link_ref ref, struct arena *arena, int *ret_result,
                     struct link_record *ret);
int sqlite_permission_find(struct sqlite_conn *c, uint64_t link, uint64_t user, bool *ret);

/* --- changes; over the write connection, in the caller's transaction --- */

int sqlite_fetch_links(struct sqlite_conn *c, struct view *v);
/* *ret_lost: an id was taken; roll back and decide again. */
int sqlite_write_links(struct sqlite_conn *c, struct view *v, bool *ret_lost);

static inline int sqlite_purge(struct sqlite_conn *c, unsigned sql, const struct purge *p)
{
	return p->max > 0 ? QUERY_RUN(c, sql, Q_INT(p->until_ms), Q_INT(p->max)) : SQLITE_OK;
}

/* SQLite's code for one of ours. */
static inline int sqlite_of_error(int r)
{
	return r == 0 || r == ERR_NOT_FOUND ? SQLITE_OK : r == ERR_NOMEM ? SQLITE_NOMEM : SQLITE_CORRUPT;
}

/* --- feeds; `feed` is SQL_LINK_FEED or SQL_ACCOUNT_FEED, the first of its four statements --- */

enum { FEED_READ, FEED_ADD, FEED_ENDS, FEED_PRUNE };

/* Appends a row, unless `entries` is empty. */
int sqlite_feed_add(struct sqlite_conn *c, unsigned feed, int64_t now_ms, struct str entries);
int sqlite_feed_read(struct sqlite_file *f, unsigned feed, struct feed_page *page);
int sqlite_feed_prune(struct sqlite_file *f, unsigned feed, int64_t until_ms, size_t *ret);
