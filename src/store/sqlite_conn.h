/*
 * One connection to a link file: how it is opened, the layout of the file, and every SQL statement,
 * prepared once per connection. For store_sqlite.c only. A connection is used by one thread at a time.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <sqlite3.h>

enum { SQLITE_BUSY_TIMEOUT_MS = 5000 };

enum sqlite_sql {
	SQL_BEGIN_READ,
	SQL_BEGIN_WRITE,
	SQL_COMMIT,
	SQL_ROLLBACK,
	SQL_LINK_BY_ID,
	SQL_LINK_INSERT,
	SQL_LINK_UPDATE,
	SQL_LINK_DELETE,
	SQL_LINKS_OF_ALL,
	SQL_LINKS_OF_OWNER,
	SQL_ALIAS_BY_NAME,
	SQL_ALIAS_INSERT,
	SQL_ALIAS_DELETE,
	SQL_REPLAY_GET,
	SQL_REPLAY_PUT,
	SQL_REPLAY_PURGE,
	SQL_KEY_BY_ID,
	SQL_KEY_BY_DIGEST,
	SQL_KEY_INSERT,
	SQL_KEY_REVOKE,
	SQL_ADMINS_IN_FORCE,
	SQL_KEYS,
	SQL_COUNTER_GET,
	SQL_COUNTER_SET,
	SQL_SEAL,
	SQL_CONSTANT_GET,
	SQL_CONSTANT_PUT,
	SQL_COUNT,
};

/* Closed when `db` is NULL; zero-initialised is closed. */
struct sqlite_conn {
	sqlite3 *db;
	sqlite3_stmt *stmts[SQL_COUNT];
};

/* Makes an empty file when there is none: a database without a layout yet. */
void sqlite_file_create(const char *path);

/* The one connection that writes and checkpoints. Brings an older file up to date, never makes a new one: one
 * that vanished under us must not come back empty. */
int sqlite_conn_open_writer(struct sqlite_conn *c, const char *path, struct err *e);
int sqlite_conn_open_reader(struct sqlite_conn *c, const char *path, struct err *e);
void sqlite_conn_close(struct sqlite_conn *c);

/* Our error for SQLite's code, and the sentence for what failed last. */
int sqlite_error(int rc);
int sqlite_conn_fail(const struct sqlite_conn *c, int rc, const char *what, struct err *e);

/*
 * One run of a statement. Parameters are given in order and borrowed until query_end. SQLite's codes pass
 * through: the first that is not SQLITE_OK sticks, later calls do nothing, and query_step returns it.
 *
 *	CLEANUP(query_end) struct query q = query_begin(c, SQL_ALIAS_BY_NAME);
 *	query_str(&q, name);
 *	int rc = query_step(&q);          SQLITE_ROW, SQLITE_DONE or an error
 */
struct query {
	sqlite3_stmt *stmt;
	int rc;
	int bound;
};

struct query query_begin(struct sqlite_conn *c, enum sqlite_sql sql);
void query_int(struct query *q, int64_t value);
void query_str(struct query *q, struct str value); /* STR_NULL is NULL */
void query_blob(struct query *q, const void *data, size_t len);
int query_step(struct query *q);
int query_find(struct query *q, bool *ret_found); /* the first row, for what gives at most one */
int query_run(struct query *q);                   /* for what gives no rows: SQLITE_OK or an error */
void query_end(struct query *q);

/* A statement without parameters and rows. */
int sqlite_conn_run(struct sqlite_conn *c, enum sqlite_sql sql);
