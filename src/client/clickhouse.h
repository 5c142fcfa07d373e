/*
 * A ClickHouse server over HTTP: a few keep-alive connections, each lent to one call at a time. Any thread
 * may call.
 *
 *     clickhouse://[USER[:PASSWORD]@]HOST[:8123][/DATABASE][?secure=1][&compress=0]
 *
 * A failure is noticed wherever the server puts it. It is asked to hold an answer back until the query has
 * ended (wait_end_of_query), so a query that fails is no 200. Still, an INSERT has no answer, and every row
 * of a SELECT ends with a zero byte, which no exception's text does: an answer that ends otherwise is a
 * failure.
 *
 * ERR_LIMIT: too many parts; it wants to be given less often. ERR_BUSY: a query of this id still runs.
 * ERR_NOT_FOUND: no such table or database. ERR_INVALID: the user is not let in, or may not do that.
 * ERR_NOMEM. ERR_UNAVAILABLE: all else; for an INSERT nobody can tell whether it happened. The log is told
 * why, at most once a second.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum {
	CLICKHOUSE_PORT = 8123,
	CLICKHOUSE_CONNECT_TIMEOUT_MS = 3000,
	CLICKHOUSE_CALLS_MAX = 8, /* at the same time; others wait */
	CLICKHOUSE_NAME_BYTES_MAX = 64,
	CLICKHOUSE_ANSWER_BYTES_MAX = 256 << 20,
};

struct clickhouse;

struct clickhouse_call {
	struct str sql;
	const struct buf *rows; /* of an INSERT, as clickhouse_rows_end left them; NULL: none */
	const char *settings;   /* "name=value&name=value", NULL: none */
	const char *query_id;   /* NULL: the server makes one */
	int64_t timeout_ms;
	bool is_outside; /* of the database, which may not be there */
	bool is_quiet;   /* the log is not told why it failed: somebody else is */
};

/* Only parses. ERR_INVALID with a sentence that repeats nothing of the URL. */
int clickhouse_new(struct str url, struct clickhouse **ret, struct err *e);

/* Calls that are under way end within a second or so, and later ones at once: ERR_UNAVAILABLE. Any thread. */
void clickhouse_let_go(struct clickhouse *c);

/* Waits for calls that are under way; none may begin. NULL is fine. */
void clickhouse_free(struct clickhouse *c);

const char *clickhouse_address(const struct clickhouse *c); /* HOST:PORT, for people */
const char *clickhouse_database(const struct clickhouse *c);

/* Adds to *ret_answer (may be NULL when there is none). `e` may be NULL. */
int clickhouse_run(struct clickhouse *c, const struct clickhouse_call *call, struct buf *ret_answer,
                   struct err *e);

/*
 * Rows of an INSERT while they are made: RowBinary, packed piece by piece in ClickHouse's own frames (LZ4)
 * unless that is not wanted. The same rows come to the same bytes.
 */
struct clickhouse_rows {
	struct buf raw;  /* where rows are written; taken from when there is enough */
	struct buf done; /* what is sent */
	bool is_packed;
};

void clickhouse_rows_begin(const struct clickhouse *c, struct clickhouse_rows *r);
void clickhouse_rows_pack(struct clickhouse_rows *r); /* of clickhouse_rows_step */
int clickhouse_rows_end(struct clickhouse_rows *r);   /* 0 or ERR_NOMEM */
void clickhouse_rows_release(struct clickhouse_rows *r);

enum { CLICKHOUSE_PIECE_BYTES = 1 << 20 };

/* After each row, or some of them. */
static inline void clickhouse_rows_step(struct clickhouse_rows *r)
{
	if (UNLIKELY(r->is_packed && r->raw.len >= CLICKHOUSE_PIECE_BYTES))
		clickhouse_rows_pack(r);
}
