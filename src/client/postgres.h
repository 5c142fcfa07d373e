/*
 * Connections to a PostgreSQL database: a few, lent to one thread at a time (client/pool.h), asked in
 * pipeline mode with prepared statements and binary values.
 *
 * A pipeline is a list of statements that travel together. What they come to is read in their order. When one
 * fails, those behind it up to the next sync are skipped by the server, and pg_sync tells that.
 */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <libpq-fe.h>

enum {
	PG_CONNECT_TIMEOUT_MS = 3000,
	PG_ANSWER_TIMEOUT_MS = 10000,
	PG_LOCK_SHARE = 4,      /* of the time for an answer, one part may be spent waiting for one lock, and
	                         * all but one on one statement */
	PG_IDLE_TXN_MS = 15000, /* the server ends a transaction whose owner says nothing for so long */
};
enum { PG_PARAMS_MAX = 40 };

struct pg_pool;
struct pg_conn;

/* Prepared on each connection when it is first used there; `name` is unique within the program. */
struct pg_statement {
	const char *name;
	const char *sql;
};

/* postgres:// or postgresql:// as libpq reads it. Only parses. ERR_INVALID with a sentence that never repeats
 * the password. `setup` runs once on each new connection (may be NULL): its failure closes it. */
int pg_pool_new(struct str url, size_t connections_max,
                int (*setup)(struct pg_conn *, void *ctx, struct err *e), void *ctx, struct pg_pool **ret,
                struct err *e);
void pg_pool_free(struct pg_pool *p);                /* waits for lent ones and for one being made */
struct str pg_pool_address(const struct pg_pool *p); /* host:port/database, for people and for names */

/* A warning in the log, at most once a second. The pool logs by itself when a statement or a connection
 * fails, with the database's own sentence. */
void pg_pool_log(struct pg_pool *p, const char *why);

/* How long an answer and a wait for a free connection may take, instead of PG_ANSWER_TIMEOUT_MS. Before the
 * first connection. */
void pg_pool_timeout(struct pg_pool *p, int64_t timeout_ms);

/* NULL: the server is away, or all are lent and none came back in time; `e` says why (may be NULL). */
struct pg_conn *pg_take(struct pg_pool *p, struct err *e);
void pg_return(struct pg_conn *c); /* closed when it failed or is inside a transaction; may be NULL */

/* Callers that can use another server should: conn_pool_is_failing. */
bool pg_is_failing(const struct pg_pool *p);

/* The server only follows another one: it takes no writes. Known for PostgreSQL 14 and later. */
bool pg_is_standby(const struct pg_conn *c);

/* How long an answer may take from now on, on both sides, until the connection is returned; otherwise
 * the pool's. */
int pg_timeout(struct pg_conn *c, uint64_t timeout_ms, struct err *e);

/* --- asking --- */

/* A statement's values as they are gathered. It stays where it is until pg_send: values may lie inside it. */
struct pg_query {
	struct pg_conn *conn;
	const struct pg_statement *statement;
	struct arena arena; /* for arrays */
	int count;
	const char *values[PG_PARAMS_MAX];
	int lengths[PG_PARAMS_MAX];
	uint64_t numbers[PG_PARAMS_MAX]; /* as they travel */
	bool failed;                     /* memory ran out: pg_send says so */
};

struct pg_query pg_query(struct pg_conn *c, const struct pg_statement *statement);
void pg_int(struct pg_query *q, int64_t v); /* bigint */
void pg_bool(struct pg_query *q, bool v);
void pg_text(struct pg_query *q, struct str v);                   /* STR_NULL: NULL */
void pg_bytes(struct pg_query *q, const void *v, size_t n);       /* NULL: NULL */
void pg_ints(struct pg_query *q, const int64_t *v, size_t n);     /* bigint[] */
void pg_texts(struct pg_query *q, const struct str *v, size_t n); /* text[]; STR_NULL: NULL */
void pg_blobs(struct pg_query *q, const struct str *v, size_t n); /* bytea[]; STR_NULL: NULL */

/* Likewise, of a field that each of n structs of `size` bytes has at `offset`:
 * PG_FIELDS(&q, pg_ints, totals, n, clicks). */
void pg_ints_of(struct pg_query *q, const void *items, size_t size, size_t offset, size_t n);
void pg_blobs_of(struct pg_query *q, const void *items, size_t size, size_t offset, size_t n);
#define PG_FIELDS(q, add, items, n, field) \
	add##_of(q, items, sizeof(*(items)), offsetof(__typeof__(*(items)), field), n)

/* Adds the statement to the pipeline and ends the query. Strings were only borrowed until here. A failure
 * shows when results are read. */
void pg_send(struct pg_query *q);

/* Sends what is gathered, with a sync behind it. */
void pg_flush(struct pg_conn *c);

struct pg_result {
	PGresult *vendor; /* NULL: there is none */
	int rows;
};

/*
 * The next statement's rows: 0; a statement's own error: ERR_CONFLICT (unique violation), ERR_NOT_FOUND (a
 * division by 0: how a statement says that what it demands is not so), ERR_INVALID, ERR_BUSY (a lock or
 * serialization failure: try the transaction again), ERR_LIMIT (out of room), and so on;
 * ERR_UNAVAILABLE when the connection failed or the statement was skipped for an earlier one's error.
 */
int pg_next(struct pg_conn *c, struct pg_result *ret, struct err *e);
void pg_result_end(struct pg_result *r);

/* Reads up to the sync; 0 when everything before it went well, otherwise what went wrong first. */
int pg_sync(struct pg_conn *c, struct err *e);

/* One statement, one answer, with nothing else in the pipeline: sends, flushes, reads, syncs. */
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

bool pg_conn_failed(const struct pg_conn *c); /* the connection is gone; what was asked last is unknown */

/* One of the errors since it was taken was a lock that somebody held for too long: asking again at once would
 * only wait again. */
bool pg_lock_timed_out(const struct pg_conn *c);

/* One of them was a circle of those who waited for each other. */
bool pg_was_deadlocked(const struct pg_conn *c);

/* A cell, by column number. */
bool pg_is_null(const struct pg_result *r, int row, int col);
int64_t pg_get_int(const struct pg_result *r, int row, int col); /* int2, int4, int8, bool */
struct str pg_get_text(const struct pg_result *r, int row,
                       int col); /* text and bytea; good until pg_result_end */

/* Text without values, outside of a pipeline: migrations, LISTEN. Several statements are one transaction. */
int pg_run(struct pg_conn *c, const char *sql, struct err *e);

/* --- many rows at once --- */

/*
 * Rows into a table, by binary COPY: begin; for each row pg_copy_row and its values in the columns' order;
 * end. Outside of a pipeline, within a transaction or not. A failure shows at the end, at the latest. It is
 * of its own connection: nothing else may be asked there in between.
 */
struct pg_copy {
	struct pg_conn *conn;
	struct buf out;
	bool is_open;
};

/* `sql` is COPY table (columns) FROM STDIN (FORMAT binary). Whatever it says, pg_copy_end ends it. */
int pg_copy_begin(struct pg_copy *copy, struct pg_conn *c, const char *sql, struct err *e);
void pg_copy_row(struct pg_copy *copy, int columns);
void pg_copy_int(struct pg_copy *copy, int64_t v);                 /* bigint */
void pg_copy_int32(struct pg_copy *copy, int32_t v);               /* int */
void pg_copy_bytes(struct pg_copy *copy, const void *v, size_t n); /* bytea, text; NULL: NULL */
int pg_copy_end(struct pg_copy *copy, struct err *e);
