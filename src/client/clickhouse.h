/*
 * A ClickHouse server over HTTP: a few keep-alive connections, each used by one call at a time. Any thread
 * may call.
 *
 *	clickhouse://[USER[:PASSWORD]@]HOST[:8123][/DATABASE][?secure=1][&compress=0]
 *
 * Failures are detected wherever the server reports them. It holds a response back until the query has
 * ended (wait_end_of_query), so a failed query is no 200. In addition, an INSERT has no response body, and
 * every row of a SELECT ends with a zero byte, which no exception text does: any other body is a failure.
 *
 *	ERR_LIMIT         too many parts: insert less often
 *	ERR_BUSY          a query with this id still runs
 *	ERR_NOT_FOUND     no such table or database
 *	ERR_INVALID       wrong credentials, or missing privileges
 *	ERR_NOMEM
 *	ERR_UNAVAILABLE   all else; whether an INSERT was applied is unknown
 *
 * The reason is logged, at most once a second.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum {
	CLICKHOUSE_PORT = 8123,
	CLICKHOUSE_CONNECT_TIMEOUT_MS = 3000,
	CLICKHOUSE_CALLS_MAX = 8, /* concurrent calls; others wait */
	CLICKHOUSE_NAME_BYTES_MAX = 64,
	CLICKHOUSE_ANSWER_BYTES_MAX = 256 << 20,
};

struct clickhouse;

struct clickhouse_call {
	struct str sql;
	const struct buf *rows; /* of an INSERT, from clickhouse_rows_end; NULL: none */
	const char *settings;   /* "name=value&name=value"; NULL: none */
	const char *query_id;   /* NULL: the server assigns one */
	int64_t timeout_ms;
	bool without_database; /* do not select the database, which may not exist */
	bool is_quiet;         /* do not log a failure: the caller does */
};

/* Only parses the URL. ERR_INVALID with a sentence that repeats nothing of it. */
int clickhouse_new(struct str url, struct clickhouse **ret, struct err *e);

/* Running calls end within about a second, later ones at once: ERR_UNAVAILABLE. Any thread. */
void clickhouse_let_go(struct clickhouse *c);

/* Waits for running calls; none may begin. Takes NULL. */
void clickhouse_free(struct clickhouse *c);

const char *clickhouse_address(const struct clickhouse *c); /* HOST:PORT, for messages */
const char *clickhouse_database(const struct clickhouse *c);

/* Appends the response to *ret_answer (may be NULL if there is none). `e` may be NULL. */
int clickhouse_run(struct clickhouse *c, const struct clickhouse_call *call, struct buf *ret_answer,
                   struct err *e);

/* Builds the rows of an INSERT: RowBinary, compressed in ClickHouse's LZ4 frames unless disabled. The same
 * rows give the same bytes. */
struct clickhouse_rows {
	struct buf raw;  /* rows are written here, and compressed when there is enough */
	struct buf done; /* to be sent */
	bool is_packed;
};

void clickhouse_rows_begin(const struct clickhouse *c, struct clickhouse_rows *r);
void clickhouse_rows_pack(struct clickhouse_rows *r); /* for clickhouse_rows_step */
int clickhouse_rows_end(struct clickhouse_rows *r);   /* 0 or ERR_NOMEM */
void clickhouse_rows_release(struct clickhouse_rows *r);

enum { CLICKHOUSE_PIECE_BYTES = 1 << 20 };

/* Call after each row, or every few rows. */
static inline void clickhouse_rows_step(struct clickhouse_rows *r)
{
	if (UNLIKELY(r->is_packed && r->raw.len >= CLICKHOUSE_PIECE_BYTES))
		clickhouse_rows_pack(r);
}
