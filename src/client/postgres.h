/*
 * Connections to a PostgreSQL database: a few, each used by one thread at a time (client/pool.h), in
 * pipeline mode with prepared statements and binary values.
 *
 * A pipeline is a list of statements that are sent together. Results are read in order. If one fails, the
 * server skips the following ones up to the next sync, and pg_sync returns the error.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <libpq-fe.h>

enum {
	PG_CONNECT_TIMEOUT_MS = 3000,
	PG_ANSWER_TIMEOUT_MS = 10000,
	PG_LOCK_SHARE = 4,      /* a lock may use 1/4 of the answer timeout, a statement 3/4 */
	PG_IDLE_TXN_MS = 15000, /* the server aborts a transaction that is idle for so long */
};
enum { PG_PARAMS_MAX = 40 };

struct pg_pool;
struct pg_conn;

/* Prepared on each connection at its first use; `name` is unique in the program. */
struct pg_statement {
	const char *name;
	const char *sql;
};

/* postgres:// or postgresql:// as libpq reads it. Only parses. ERR_INVALID with a sentence that never
 * repeats the password. `setup` (may be NULL) runs once on each new connection; if it fails, the connection
 * is closed. */
int pg_pool_new(struct str url, size_t connections_max,
                int (*setup)(struct pg_conn *, void *ctx, struct err *e), void *ctx, struct pg_pool **ret,
                struct err *e);
int pg_url_check(struct str url, struct err *e);     /* the same without a pool */
void pg_pool_free(struct pg_pool *p);                /* waits for connections in use */
struct str pg_pool_address(const struct pg_pool *p); /* host:port/database, for messages and names */

/* Logs a warning, at most once a second. The pool itself logs failed statements and connections, with the
 * server's message. */
void pg_pool_log(struct pg_pool *p, const char *why);

/* The timeout of answers and of waiting for a free connection, instead of PG_ANSWER_TIMEOUT_MS. Call before
 * the first connection. */
void pg_pool_timeout(struct pg_pool *p, int64_t timeout_ms);

/* NULL: the server is down, or all connections are in use for too long; `e` says why (may be NULL). */
struct pg_conn *pg_take(struct pg_pool *p, struct err *e);
void pg_return(struct pg_conn *c); /* closes it if it failed or is in a transaction; takes NULL */

/* True: callers should use another server if they can (conn_pool_is_failing). */
bool pg_is_failing(const struct pg_pool *p);

/* The server is a standby: it takes no writes. Known for PostgreSQL 14 and later. */
bool pg_is_standby(const struct pg_conn *c);

/* The answer timeout from now on, on both sides, until the connection is returned. */
int pg_timeout(struct pg_conn *c, uint64_t timeout_ms, struct err *e);

/* --- asking --- */

/* A statement and its values. It must not move until pg_send: values may point into it. */
struct pg_query {
	struct pg_conn *conn;
	const struct pg_statement *statement;
	struct arena arena; /* for arrays */
	int count;
	const char *values[PG_PARAMS_MAX];
	int lengths[PG_PARAMS_MAX];
	uint64_t numbers[PG_PARAMS_MAX]; /* in network byte order */
	bool failed;                     /* out of memory: pg_send reports it */
};

struct pg_query pg_query(struct pg_conn *c, const struct pg_statement *statement);
void pg_int(struct pg_query *q, int64_t v); /* bigint */
void pg_bool(struct pg_query *q, bool v);
void pg_text(struct pg_query *q, struct str v);                   /* STR_NULL: NULL */
void pg_bytes(struct pg_query *q, const void *v, size_t n);       /* NULL: NULL */
void pg_ints(struct pg_query *q, const int64_t *v, size_t n);     /* bigint[] */
void pg_texts(struct pg_query *q, const struct str *v, size_t n); /* text[]; STR_NULL: NULL */
void pg_blobs(struct pg_query *q, const struct str *v, size_t n); /* bytea[]; STR_NULL: NULL */

/* Likewise, of a field of each of n structs of `size` bytes at `offset`: PG_FIELDS(&q, pg_ints, totals, n,
 * clicks). */
void pg_ints_of(struct pg_query *q, const void *items, size_t size, size_t offset, size_t n);
void pg_blobs_of(struct pg_query *q, const void *items, size_t size, size_t offset, size_t n);
#define PG_FIELDS(q, add, items, n, field) \
	add##_of(q, items, sizeof(*(items)), offsetof(__typeof__(*(items)), field), n)

/* Adds the statement to the pipeline, and ends the query. Strings are borrowed until here. Failures show
 * when results are read. */
void pg_send(struct pg_query *q);

/* Sends the pipeline, followed by a sync. */
void pg_flush(struct pg_conn *c);

struct pg_result {
	PGresult *vendor; /* NULL: none */
	int rows;
};

/*
 * Reads the rows of the next statement: 0, or
 *
 *	ERR_CONFLICT      unique violation
 *	ERR_NOT_FOUND     division by 0: how a statement reports that its condition is false
 *	ERR_BUSY          lock timeout, deadlock or serialization failure: retry the transaction
 *	ERR_LIMIT         out of disk or memory
 *	ERR_INVALID       any other error of the statement
 *	ERR_UNAVAILABLE   the connection failed, or the statement was skipped after an earlier error
 */
int pg_next(struct pg_conn *c, struct pg_result *ret, struct err *e);
void pg_result_end(struct pg_result *r);

/* Reads up to the sync: 0, or the first error. */
int pg_sync(struct pg_conn *c, struct err *e);

/* One statement in an empty pipeline: sends, flushes, reads, syncs. */
int pg_ask(struct pg_query *q, struct pg_result *ret, struct err *e);

/*
 * The same with a statement and its values: PG_ASK(c, &links_by_key, &rows, PG_BLOBS(keys, n)). Strings and
 * arrays are borrowed until the call returns. PG_ASK_INT reads one number, which is unchanged if there is no
 * row; PG_EXEC ignores rows.
 */
struct pg_value {
	enum { PG_VALUE_INT, PG_VALUE_TEXT, PG_VALUE_INTS, PG_VALUE_BLOBS } kind;
	int64_t number;
	struct str text;
	const int64_t *ints;
	const struct str *strs;
	size_t n;
};

#define PG_INT(v)          ((struct pg_value){.kind = PG_VALUE_INT, .number = (int64_t)(v)})
#define PG_TEXT(v)         ((struct pg_value){.kind = PG_VALUE_TEXT, .text = (v)})
#define PG_BYTES(v, size)  PG_TEXT(str_n((const char *)(v), size))
#define PG_INTS(v, count)  ((struct pg_value){.kind = PG_VALUE_INTS, .ints = (v), .n = (count)})
#define PG_BLOBS(v, count) ((struct pg_value){.kind = PG_VALUE_BLOBS, .strs = (v), .n = (count)})

/* The two last arguments of a function that takes values. */
#define PG_VALUES(...)                          \
	(const struct pg_value[]){__VA_ARGS__}, \
	    sizeof((const struct pg_value[]){__VA_ARGS__}) / sizeof(struct pg_value)

#define PG_SEND(c, statement, ...)         pg_send_values(c, statement, PG_VALUES(__VA_ARGS__))
#define PG_ASK(c, statement, ret, ...)     pg_ask_values(c, statement, ret, PG_VALUES(__VA_ARGS__))
#define PG_ASK_INT(c, statement, ret, ...) pg_ask_int(c, statement, ret, PG_VALUES(__VA_ARGS__))
#define PG_EXEC(c, statement, ...)         pg_exec(c, statement, PG_VALUES(__VA_ARGS__))

void pg_bind(struct pg_query *q, const struct pg_value *values, size_t n);
void pg_send_values(struct pg_conn *c, const struct pg_statement *statement, const struct pg_value *values,
                    size_t n);
int pg_ask_values(struct pg_conn *c, const struct pg_statement *statement, struct pg_result *ret,
                  const struct pg_value *values, size_t n);
int pg_ask_int(struct pg_conn *c, const struct pg_statement *statement, int64_t *ret,
               const struct pg_value *values, size_t n);
int pg_exec(struct pg_conn *c, const struct pg_statement *statement, const struct pg_value *values, size_t n);

/* the connection is lost; the outcome of the last request is unknown */
bool pg_conn_failed(const struct pg_conn *c);

/* Was there a lock timeout since pg_take? A retry would only wait again. */
bool pg_lock_timed_out(const struct pg_conn *c);

/* Was there a deadlock since pg_take? */
bool pg_was_deadlocked(const struct pg_conn *c);

/* A cell, by column. */
bool pg_is_null(const struct pg_result *r, int row, int col);
int64_t pg_get_int(const struct pg_result *r, int row, int col); /* int2, int4, int8, bool */
struct str pg_get_text(const struct pg_result *r, int row,
                       int col); /* text and bytea; valid until pg_result_end */

/* Runs SQL text outside a pipeline: migrations, LISTEN. Several statements are one transaction. */
int pg_run(struct pg_conn *c, const char *sql, struct err *e);

/* --- many rows at once --- */

/* Bulk insert by binary COPY: begin; for each row pg_copy_row and its values in the order of columns; end.
 * Outside a pipeline, inside or outside a transaction. Failures show at the end, at the latest. Nothing
 * else may use the connection in between. */
struct pg_copy {
	struct pg_conn *conn;
	struct buf out;
	bool is_open;
};

/* `sql` is COPY table (columns) FROM STDIN (FORMAT binary). pg_copy_end must follow, also after a failure. */
int pg_copy_begin(struct pg_copy *copy, struct pg_conn *c, const char *sql, struct err *e);
void pg_copy_row(struct pg_copy *copy, int columns);
void pg_copy_int(struct pg_copy *copy, int64_t v);                 /* bigint */
void pg_copy_int32(struct pg_copy *copy, int32_t v);               /* int */
void pg_copy_bytes(struct pg_copy *copy, const void *v, size_t n); /* bytea, text; NULL: NULL */
int pg_copy_end(struct pg_copy *copy, struct err *e);
