/* The stats file: its tables, and every statement. For the files of this backend only. */
#pragma once

#include "client/sqlite.h"
#include "sink/ads.h"
#include "sink/calendar.h"

enum {
	SQL_BOOK_GET = SQL_OWN,
	SQL_BOOK_ADD,
	SQL_BOOK_DIGEST,
	SQL_BOOK_KEPT,
	SQL_BOOK_RETIRE,
	SQL_BOOK_ADS_GONE,
	SQL_BOOK_KEY,
	SQL_BOOK_KEY_SET,
	SQL_POSITIONS,
	SQL_POSITION_PUT,
	SQL_POSITION_DELETE,
	SQL_SHAPE_BY_HASH,
	SQL_SHAPE_BY_ID,
	SQL_SHAPE_INSERT,
	SQL_SHAPE_LAST,
	SQL_TEXT_BY_HASH,
	SQL_TEXT_BY_ID,
	SQL_TEXT_INSERT,
	SQL_TEXT_TOUCH,
	SQL_TEXT_SWEEP,
	SQL_TEXT_AFTER,
	SQL_FRESH_INSERT,
	SQL_FRESH_ALL,
	SQL_FRESH_KEYS,
	SQL_FRESH_SUMS,
	SQL_FRESH_LAST,
	SQL_FRESH_DELETE,
	SQL_VISIT_INSERT,
	SQL_VISIT_KEYS,
	SQL_VISIT_AT,
	SQL_VISIT_FIRST,
	SQL_VISIT_PAST,
	SQL_VISIT_DELETE,
	SQL_VISIT_COUNT,
	SQL_CELL_GET,
	SQL_CELL_RANGE,
	SQL_CELL_PUT,
	SQL_CELL_OLDEST,
	SQL_CELL_NEWEST,
	SQL_CELL_DELETE,
	SQL_CELL_SUMS,
	SQL_DAY_LINK_GET,
	SQL_DAY_LINK_PUT,
	SQL_DAY_LINK_COUNT,
	SQL_DAY_LINK_RANGE,
	SQL_DAY_LINK_FROM,
	SQL_DAY_LINK_UP_TO,
	SQL_DAY_LINK_DELETE,
	SQL_TOTAL_ADD,
	SQL_TOTAL_GET,
	SQL_TOTALS_UNFLUSHED,
	SQL_TOTAL_FLUSHED,
	SQL_AD_BY_NAME,
	SQL_AD_BY_ID,
	SQL_AD_INSERT,
	SQL_AD_TOUCH,
	SQL_AD_SWEEP,
	SQL_AD_AFTER,
	SQL_AD_CELL_GET,
	SQL_AD_CELL_PUT,
	SQL_AD_CELL_RANGE,
	SQL_AD_CELL_DELETE,
	SQL_AD_CELL_OLDEST,
	SQL_AD_CELL_SUM,
	SQL_IMPRESSION_LAST,
	SQL_IMPRESSION_INSERT,
	SQL_IMPRESSION_RANGE,
	SQL_IMPRESSION_DELETE,
	SQL_IMPRESSION_COUNT,
	SQL_SEEN_BATCH_INSERT,
	SQL_SEEN_BATCHES,
	SQL_SEEN_BATCH_DELETE,
	SQL_SEEN_RUN_INSERT,
	SQL_SEEN_RUNS,
	SQL_SEEN_RUN_DELETE,
	SQL_SEEN_CHUNK_INSERT,
	SQL_SEEN_CHUNK_AT,
	SQL_SEEN_CHUNK_DELETE,
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

struct book {
	struct sink_tally tally;
	uint64_t duplicates; /* found by the sink */
	int64_t serial;      /* of the last commit */
	int64_t next_visit;
	struct digesting digesting;
	int64_t kept_ms;                                               /* whole hours; see layout.c */
	uint64_t retired_clicks, retired_orphans, retired_impressions; /* whose last rollup is gone */
	int64_t new_day;                                               /* the day of the next three */
	int64_t new_shapes, new_ads, new_texts;
	int64_t received_ms;          /* the newest impression's */
	int64_t now_ms;               /* of the last commit */
	int64_t ads;                  /* that have a name */
	int64_t last_ad;              /* the largest number ever given */
	uint64_t retired_link_clicks; /* as retired_clicks, of the cells of single links */
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
