#include "client/sqlite.h"

#include <stdio.h>

static const char *const common_sql[SQL_OWN] = {
    [SQL_BEGIN_READ] = "BEGIN",  [SQL_BEGIN_WRITE] = "BEGIN IMMEDIATE", [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK", [SQL_PING] = "PRAGMA user_version",
};

int sqlite_error(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK: return 0;
	case SQLITE_NOMEM: return ERR_NOMEM;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_MISMATCH:
	case SQLITE_CONSTRAINT: /* we look before we write, so table and index disagree */ return ERR_CORRUPT;
	default: return ERR_UNAVAILABLE;
	}
}

int sqlite_conn_fail(const struct sqlite_conn *c, int rc, const char *what, struct err *e)
{
	int system = c->db ? sqlite3_system_errno(c->db) : 0;
	if ((rc & 0xff) == SQLITE_CANTOPEN && system)
		return err_set(e, sqlite_error(rc), "%s: %s (%s)", what, sqlite3_errstr(rc),
		               strerror(system));
	return err_set(e, sqlite_error(rc), "%s: %s (SQLite's code %d)", what, sqlite3_errstr(rc), rc);
}

struct query query_begin(struct sqlite_conn *c, unsigned sql)
{
	struct query q = {.stmt = c->stmts[sql]};
	if (UNLIKELY(!q.stmt)) {
		const char *text = sql < SQL_OWN ? common_sql[sql] : c->layout->sql[sql - SQL_OWN];
		q.rc = sqlite3_prepare_v3(c->db, text, -1, SQLITE_PREPARE_PERSISTENT, &q.stmt, NULL);
		c->stmts[sql] = q.stmt;
	}
	return q;
}

void query_int(struct query *q, int64_t value)
{
	if (q->rc == SQLITE_OK)
		q->rc = sqlite3_bind_int64(q->stmt, ++q->bound, value);
}

void query_str(struct query *q, struct str value)
{
	if (q->rc == SQLITE_OK)
		q->rc = sqlite3_bind_text64(q->stmt, ++q->bound, value.ptr, value.len, SQLITE_STATIC,
		                            SQLITE_UTF8);
}

void query_blob(struct query *q, const void *data, size_t len)
{
	if (q->rc == SQLITE_OK)
		q->rc = sqlite3_bind_blob64(q->stmt, ++q->bound, data, len, SQLITE_STATIC);
}

int query_step(struct query *q)
{
	if (q->rc == SQLITE_OK || q->rc == SQLITE_ROW)
		q->rc = sqlite3_step(q->stmt);
	return q->rc;
}

int query_find(struct query *q, bool *ret_found)
{
	int rc = query_step(q);
	*ret_found = rc == SQLITE_ROW;
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int query_run(struct query *q)
{
	int rc = query_step(q);
	ASSERT(rc != SQLITE_ROW);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

void query_end(struct query *q)
{
	sqlite3_reset(q->stmt); /* repeats the code of the last step, which the caller has seen */
}

struct query query_values(struct sqlite_conn *c, unsigned sql, const struct query_value *values, size_t n)
{
	struct query q = query_begin(c, sql);
	for (const struct query_value *v = values; v < values + n; v++) {
		switch (v->kind) {
		case QUERY_INT: query_int(&q, v->number); break;
		case QUERY_STR: query_str(&q, v->bytes); break;
		case QUERY_BLOB: query_blob(&q, v->bytes.ptr, v->bytes.len); break;
		}
	}
	return q;
}

int query_run_values(struct sqlite_conn *c, unsigned sql, const struct query_value *values, size_t n)
{
	CLEANUP(query_end) struct query q = query_values(c, sql, values, n);
	return query_run(&q);
}

int query_find_values(struct sqlite_conn *c, unsigned sql, bool *ret_found, int64_t *ret, int columns,
                      const struct query_value *values, size_t n)
{
	CLEANUP(query_end) struct query q = query_values(c, sql, values, n);
	int rc = query_find(&q, ret_found);
	for (int i = 0; *ret_found && i < columns; i++)
		ret[i] = sqlite3_column_int64(q.stmt, i);
	return rc;
}

int sqlite_conn_run(struct sqlite_conn *c, unsigned sql)
{
	return query_run_values(c, sql, NULL, 0);
}

static int exec(struct sqlite_conn *c, const char *sql)
{
	return sqlite3_exec(c->db, sql, NULL, NULL, NULL);
}

/* The first column of the first row, as a number. */
static int exec_int(struct sqlite_conn *c, const char *sql, int64_t *ret)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(c->db, sql, -1, &stmt, NULL);
	if (rc != SQLITE_OK)
		return rc;
	if (sqlite3_step(stmt) == SQLITE_ROW)
		*ret = sqlite3_column_int64(stmt, 0);
	return sqlite3_finalize(stmt);
}

int sqlite_conn_identify(struct sqlite_conn *c, const char *path, int64_t *ret_version, struct err *e)
{
	int64_t application = 0, objects = 0;
	int rc = exec_int(c, "PRAGMA application_id", &application)
	         ?: exec_int(c, "PRAGMA user_version", ret_version)
	         ?: exec_int(c, "SELECT count(*) FROM sqlite_schema", &objects);
	if ((rc & 0xff) == SQLITE_NOTADB)
		return err_set(e, ERR_INVALID, "%s is not a SQLite database: give another path", path);
	if (rc != SQLITE_OK)
		return sqlite_conn_fail(c, rc, path, e);
	if (application == 0 && *ret_version == 0 && objects == 0)
		return 0;
	if (application != c->layout->application_id)
		return err_set(e, ERR_INVALID, "%s is a database of another program: give another path",
		               path);
	if (*ret_version < 0 || *ret_version > (int64_t)c->layout->migration_count)
		return err_set(e, ERR_INVALID,
		               "%s was written by a newer version of curt (layout %lld, this one knows %zu): "
		               "use that version",
		               path, (long long)*ret_version, c->layout->migration_count);
	return 0;
}

static int migrate_in_transaction(struct sqlite_conn *c)
{
	int64_t version = 0;
	int rc = exec_int(c, "PRAGMA user_version", &version); /* again: now nobody else can change it */
	for (int64_t i = version; rc == SQLITE_OK && i < (int64_t)c->layout->migration_count; i++)
		rc = exec(c, c->layout->migrations[i]);
	if (rc != SQLITE_OK)
		return rc;
	char text[96];
	snprintf(text, sizeof(text), "PRAGMA application_id = %d; PRAGMA user_version = %zu; COMMIT",
	         c->layout->application_id, c->layout->migration_count);
	return exec(c, text);
}

static int migrate(struct sqlite_conn *c)
{
	int rc = exec(c, "BEGIN IMMEDIATE");
	return rc == SQLITE_OK ? migrate_in_transaction(c) : rc; /* closing rolls back */
}

/* Without a write-ahead log a reader would block the writer; some network file systems cannot have one. */
static int enter_wal(struct sqlite_conn *c, const char *path, struct err *e)
{
	sqlite3_stmt *stmt;
	bool wal = false;
	int rc = sqlite3_prepare_v2(c->db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);
	if (rc == SQLITE_OK) {
		if (sqlite3_step(stmt) == SQLITE_ROW)
			wal = str_eq(str_of((const char *)sqlite3_column_text(stmt, 0)), STR("wal"));
		rc = sqlite3_finalize(stmt);
	}
	if (rc != SQLITE_OK)
		return sqlite_conn_fail(c, rc, path, e);
	if (!wal)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s: this file system cannot share memory between connections: use a local disk", path);
	return 0;
}

static int open_handle(struct sqlite_conn *c, const struct sqlite_layout *layout, const char *path, int flags,
                       struct err *e)
{
	ASSERT(layout->sql_count <= SQLITE_STATEMENTS_MAX);
	*c = (struct sqlite_conn){.layout = layout};
	int rc = sqlite3_open_v2(path, &c->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL)
	             ?: sqlite3_busy_timeout(c->db, SQLITE_BUSY_TIMEOUT_MS);
	/* Now, because a transaction must be able to end when memory has run out. */
	for (unsigned sql = 0; rc == SQLITE_OK && sql < SQL_OWN; sql++)
		rc = query_begin(c, sql).rc;
	return rc == SQLITE_OK ? 0 : sqlite_conn_fail(c, rc, path, e);
}

static int open_writer(struct sqlite_conn *c, const struct sqlite_layout *layout, const char *path,
                       struct err *e)
{
	int64_t version = 0;
	int r = open_handle(c, layout, path, SQLITE_OPEN_READWRITE, e);
	if (r == 0 && sqlite3_db_readonly(c->db, "main"))
		r = err_set(e, ERR_UNAVAILABLE, "%s cannot be written: check its owner and mode", path);
	if (r == 0)
		r = sqlite_conn_identify(c, path, &version, e);
	if (r != 0)
		return r;
	/* The page size takes effect in a new file only. Checkpoints are ours to run: their errors count. */
	int rc = exec(c,
	              "PRAGMA page_size = 4096; PRAGMA cell_size_check = ON; PRAGMA wal_autocheckpoint = 0");
	if (rc == SQLITE_OK)
		rc = exec(c, layout->writer_pragmas);
	if (rc != SQLITE_OK)
		return sqlite_conn_fail(c, rc, path, e);
	r = enter_wal(c, path, e);
	if (r == 0 && version < (int64_t)c->layout->migration_count) {
		rc = migrate(c);
		r = rc == SQLITE_OK ? 0 : sqlite_conn_fail(c, rc, path, e);
	}
	return r;
}

static int open_reader(struct sqlite_conn *c, const struct sqlite_layout *layout, const char *path,
                       struct err *e)
{
	int r = open_handle(c, layout, path, SQLITE_OPEN_READONLY, e);
	if (r != 0)
		return r;
	int rc = exec(c, "PRAGMA query_only = ON; PRAGMA cache_size = -1000; PRAGMA cell_size_check = ON")
	             ?: sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	return rc == SQLITE_OK ? 0 : sqlite_conn_fail(c, rc, path, e);
}

int sqlite_conn_open_writer(struct sqlite_conn *c, const struct sqlite_layout *layout, const char *path,
                            struct err *e)
{
	int r = open_writer(c, layout, path, e);
	if (r != 0)
		sqlite_conn_close(c);
	return r;
}

int sqlite_conn_open_reader(struct sqlite_conn *c, const struct sqlite_layout *layout, const char *path,
                            struct err *e)
{
	int r = open_reader(c, layout, path, e);
	if (r != 0)
		sqlite_conn_close(c);
	return r;
}

void sqlite_conn_close(struct sqlite_conn *c)
{
	for (size_t i = 0; i < SQLITE_STATEMENTS_MAX; i++)
		sqlite3_finalize(c->stmts[i]);
	int rc = sqlite3_close(c->db);
	ASSERT(rc == SQLITE_OK); /* otherwise a statement is still in use */
	*c = (struct sqlite_conn){0};
}
