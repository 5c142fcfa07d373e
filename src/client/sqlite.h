/*
 * Connections to a SQLite file: opening, migrating, querying. The owner describes the file in a `struct
 * sqlite_layout`. One thread uses a connection at a time. sqlite_file.h says which connections a file has.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <sqlite3.h>

enum { SQLITE_BUSY_TIMEOUT_MS = 5000, SQLITE_STATEMENTS_MAX = 96 };

/* The first statements of every layout. */
enum { SQL_BEGIN_READ, SQL_BEGIN_WRITE, SQL_COMMIT, SQL_ROLLBACK, SQL_PING, SQL_OWN };

/* A file's tables and statements. */
struct sqlite_layout {
	int application_id;            /* identifies the file, also for file(1) */
	const char *const *migrations; /* entry i migrates from version i to i + 1; only ever append */
	size_t migration_count;
	const char *const *sql;     /* from SQL_OWN on; prepared at first use, per connection */
	size_t sql_count;           /* including the common ones */
	const char *writer_pragmas; /* in addition to the common ones */
};

/* Closed when `db` is NULL; zero-initialised is closed. */
struct sqlite_conn {
	sqlite3 *db;
	const struct sqlite_layout *layout;
	sqlite3_stmt *stmts[SQLITE_STATEMENTS_MAX];
};

/* The only connection that writes and checkpoints. It migrates an older file, but never creates one: a file
 * that vanished must not come back empty. */
int sqlite_conn_open_writer(struct sqlite_conn *c, const struct sqlite_layout *layout, const char *path,
                            struct err *e);
int sqlite_conn_open_reader(struct sqlite_conn *c, const struct sqlite_layout *layout, const char *path,
                            struct err *e);
void sqlite_conn_close(struct sqlite_conn *c);

/* The version of the file's layout; ERR_INVALID: it is not ours, or of a newer version. Opening a writer calls
 * it before a single byte is changed. */
int sqlite_conn_identify(struct sqlite_conn *c, const char *path, int64_t *ret_version, struct err *e);

/* Our error for SQLite's code, and an error message for the last failure. */
int sqlite_error(int rc);
int sqlite_conn_fail(const struct sqlite_conn *c, int rc, const char *what, struct err *e);

/*
 * One execution of a statement. Parameters are bound in order, and borrowed until query_end. The first
 * SQLite error sticks: later calls do nothing, and query_step returns it.
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

struct query query_begin(struct sqlite_conn *c, unsigned sql);
void query_int(struct query *q, int64_t value);
void query_str(struct query *q, struct str value); /* STR_NULL is NULL */
void query_blob(struct query *q, const void *data, size_t len);
int query_step(struct query *q);
int query_find(struct query *q, bool *ret_found); /* the first row of a statement with at most one */
int query_run(struct query *q);                   /* for statements without rows: SQLITE_OK or an error */
void query_end(struct query *q);

/*
 * A statement together with its values:
 *
 *	struct query q = QUERY_VALUES(c, SQL_TAGGED, Q_STR(tag), Q_INT(max));
 *	int rc = QUERY_RUN(c, SQL_ALIAS_INSERT, Q_STR(name), Q_INT(id));
 *	int rc = QUERY_FIND(c, SQL_ALIAS_BY_NAME, &found, &id, 1, Q_STR(name));
 *
 * QUERY_RUN is for statements without rows. QUERY_FIND reads the first integers of the first row (NULL reads
 * as 0); without a row they are unchanged. Both return SQLITE_OK or an error.
 */
#define QUERY_ARGS(...)                            \
	(const struct query_value[]){__VA_ARGS__}, \
	    sizeof((const struct query_value[]){__VA_ARGS__}) / sizeof(struct query_value)
#define QUERY_VALUES(c, sql, ...) query_values(c, sql, QUERY_ARGS(__VA_ARGS__))
#define QUERY_RUN(c, sql, ...)    query_run_values(c, sql, QUERY_ARGS(__VA_ARGS__))
#define QUERY_FIND(c, sql, ret_found, ret, columns, ...) \
	query_find_values(c, sql, ret_found, ret, columns, QUERY_ARGS(__VA_ARGS__))
#define Q_INT(v)        ((struct query_value){.kind = QUERY_INT, .number = (int64_t)(v)})
#define Q_STR(v)        ((struct query_value){.kind = QUERY_STR, .bytes = (v)})
#define Q_BLOB(v, size) ((struct query_value){.kind = QUERY_BLOB, .bytes = str_n((const char *)(v), size)})

struct query_value {
	enum { QUERY_INT, QUERY_STR, QUERY_BLOB } kind;
	int64_t number;
	struct str bytes;
};

struct query query_values(struct sqlite_conn *c, unsigned sql, const struct query_value *values, size_t n);
int query_run_values(struct sqlite_conn *c, unsigned sql, const struct query_value *values, size_t n);
int query_find_values(struct sqlite_conn *c, unsigned sql, bool *ret_found, int64_t *ret, int columns,
                      const struct query_value *values, size_t n);

/* A statement without parameters and rows. */
int sqlite_conn_run(struct sqlite_conn *c, unsigned sql);
