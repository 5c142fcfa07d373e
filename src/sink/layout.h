/* The stats file: its tables, and every statement. For the files of this backend only. */
#pragma once

#include "client/sqlite.h"
#include "sink/ads.h"
#include "sink/calendar.h"

enum {
	SQL_BEFORE = SQL_OWN - 1,
#define STATEMENT(name, text) name,
#include "sink/statements.h"
#undef STATEMENT
	SQL_COUNT,
};

extern const struct sqlite_layout stats_file_layout;

/* --- cells --- */

enum { CELL_TOGETHER = 8 };

/* As the table has it: what is not of one link lies apart, where it can be read in one go. */
static inline int64_t cell_level_key(enum cell_level level, int64_t link)
{
	return link > 0 ? level : CELL_TOGETHER + (int64_t)level;
}

/* --- impressions --- */

static inline int64_t ad_cell_key(enum ad_level level, int64_t start_ms)
{
	return (int64_t)level << 56 | start_ms;
}

enum { IMPRESSION_PART_BITS = 24, IMPRESSION_PARTS = 1 << IMPRESSION_PART_BITS };

static inline int64_t impression_key(int64_t time_ms, int64_t part)
{
	return time_ms / SECOND_MS << IMPRESSION_PART_BITS | part;
}

/* --- the book --- */

/* A digest under way: of the fresh rows up to `row`, what is of links below `link` is digested. */
struct digesting {
	int64_t row; /* 0: none is under way */
	int64_t link;
	uint64_t visits, orphans; /* digested, but still in these rows; both together, and orphans */
};

/* All of them numbers of 64 bits, in the order of SQL_BOOK_GET. */
struct book {
	struct sink_tally tally;
	uint64_t duplicates; /* found by the sink */
	int64_t serial;      /* of the last commit */
	int64_t next_visit;
	int64_t kept_ms;                                               /* whole hours; see layout.c */
	uint64_t retired_clicks, retired_orphans, retired_impressions; /* whose last rollup is gone */
	int64_t new_day;                                               /* the day of new_* */
	int64_t new_shapes, new_ads;
	int64_t received_ms; /* the newest impression's */
	int64_t now_ms;      /* of the last commit */
	int64_t new_texts;
	int64_t ads;                  /* that have a name */
	int64_t last_ad;              /* the largest number ever given */
	uint64_t retired_link_clicks; /* as retired_clicks, of the cells of single links */
	struct digesting digesting;
};

/* --- statements --- */

/* A statement whose first parameters are these integers: QUERY(c, SQL_CELL_GET, level, start_ms, link). */
struct query layout_query(struct sqlite_conn *c, unsigned sql, const int64_t *args, size_t count);
#define LAYOUT_ARGS(...) \
	(const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)
#define QUERY(c, sql, ...) layout_query(c, sql, LAYOUT_ARGS(__VA_ARGS__))

/* One that gives no rows, and has no other parameters. */
int layout_run(struct sqlite_conn *c, unsigned sql, const int64_t *args, size_t count);
#define RUN(c, sql, ...) layout_run(c, sql, LAYOUT_ARGS(__VA_ARGS__))

/* The first integers of its first row; without a row they stay as they are. NULL is 0. */
int layout_find(struct sqlite_conn *c, unsigned sql, int64_t *ret, int ret_count, const int64_t *args,
                size_t count);
#define FIND(c, sql, ret, ret_count, ...) layout_find(c, sql, ret, ret_count, LAYOUT_ARGS(__VA_ARGS__))

/* What a loop over rows that ended with `rc` comes to. */
static inline int layout_done(int rc)
{
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* SQLite's codes, as everywhere in this backend below the ops. */
int layout_book_get(struct sqlite_conn *c, struct book *ret);

/* The largest number in a dictionary (SQL_SHAPE_LAST): what is beyond it was never written. */
int layout_last_get(struct sqlite_conn *c, unsigned sql, uint64_t *ret);

/* For blobs that are there: SQLITE_OK, SQLITE_NOMEM, SQLITE_CORRUPT. */
int layout_sql_code(int r);

/* A column's blob, valid until the next step. */
static inline struct str column_blob(const struct query *q, int column)
{
	const char *data = sqlite3_column_blob(q->stmt, column);
	return str_n(data, (size_t)sqlite3_column_bytes(q->stmt, column));
}

/* A column's text in the arena; STR_NULL stays so. False when memory ran out. */
bool layout_column_str(const struct query *q, int column, struct arena *arena, struct str *ret);
