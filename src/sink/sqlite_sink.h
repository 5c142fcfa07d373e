/*
 * The parts of the SQLite sink, for its own files only. They return SQLite's codes. sqlite_tables.c describes
 * the tables.
 */
#pragma once

#include "base/buf.h"
#include "client/sqlite.h"
#include "sink/ads.h"
#include "sink/calendar.h"
#include "sink/keyed.h"
#include "sink/page.h"
#include "sink/settings.h"
#include "sink/sqlite_codec.h"

enum {
	SQL_BEFORE = SQL_OWN - 1,
#define STATEMENT(name, text) name,
#include "sink/sqlite_statements.h"
#undef STATEMENT
	SQL_COUNT,
};

extern const struct sqlite_layout stats_file_layout;

/* --- keys of rows --- */

enum { CELL_TOGETHER = 8 };

/* cell.level: cells of all links together are stored apart, so that a range of them is contiguous. */
static inline int64_t cell_level_key(enum cell_level level, int64_t link)
{
	return link > 0 ? level : CELL_TOGETHER + (int64_t)level;
}

/* ad_cell.at */
static inline int64_t ad_cell_key(enum ad_level level, int64_t start_ms)
{
	return (int64_t)level << 56 | start_ms;
}

enum { IMPRESSION_PART_BITS = 24, IMPRESSION_PARTS = 1 << IMPRESSION_PART_BITS };

/* impression.at */
static inline int64_t impression_key(int64_t time_ms, int64_t part)
{
	return time_ms / SECOND_MS << IMPRESSION_PART_BITS | part;
}

/* --- the row of the table `book` --- */

/* A compaction under way covers the buffer's rows up to `row`; its visits of links below `link` are done. */
struct compaction_progress {
	int64_t row; /* 0: no compaction is under way */
	int64_t link;
	uint64_t visits, orphans; /* done, but still in these rows; orphans are included in visits */
};

/* The tallies for reconciliation, and the state of the file. All fields are 64-bit numbers, in the order of
 * SQL_BOOK_GET. */
struct book_row {
	struct sink_tally tally;
	uint64_t duplicates; /* found by the sink */
	int64_t serial;      /* of the last commit */
	int64_t next_visit;
	int64_t kept_ms; /* a full hour: see ad_cell in sqlite_tables.c */
	uint64_t retired_clicks, retired_orphans, retired_impressions; /* whose last rollup was dropped */
	int64_t new_day;                                               /* the day that new_* count */
	int64_t new_sets, new_ads;
	int64_t received_ms; /* of the newest impression */
	int64_t now_ms;      /* of the last commit */
	int64_t new_texts;
	int64_t ads;                  /* that have a name */
	int64_t last_ad;              /* the largest id ever assigned */
	uint64_t retired_link_clicks; /* like retired_clicks, for cells of single links */
	struct compaction_progress compaction;
};

int book_get(struct sqlite_conn *c, struct book_row *ret);

/* --- statements --- */

/* A statement with these integers as its first parameters: QUERY(c, SQL_CELL_GET, level, start_ms, link). */
struct query db_query(struct sqlite_conn *c, unsigned sql, const int64_t *args, size_t count);
#define DB_ARGS(...) (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

#define QUERY(c, sql, ...) db_query(c, sql, DB_ARGS(__VA_ARGS__))

/* Runs a statement that returns no rows and has no other parameters. */
int db_run(struct sqlite_conn *c, unsigned sql, const int64_t *args, size_t count);
#define RUN(c, sql, ...) db_run(c, sql, DB_ARGS(__VA_ARGS__))

/* The first integers of the first row (NULL reads as 0). Without a row, `ret` is unchanged. */
int db_find(struct sqlite_conn *c, unsigned sql, int64_t *ret, int ret_count, const int64_t *args,
            size_t count);
#define FIND(c, sql, ret, ret_count, ...) db_find(c, sql, ret, ret_count, DB_ARGS(__VA_ARGS__))

/* Rows of two integers, at most `max`, which is the statement's parameter. *ret_pairs is set to an array of
 * structs of two 64-bit integers. */
int db_pairs(struct sqlite_conn *c, unsigned sql, int64_t max, struct arena *arena, void *ret_pairs,
             size_t *ret_count);

/* The result of a loop over rows that ended with `rc`. */
static inline int db_done(int rc)
{
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* The largest id of a table, by a statement such as SQL_SET_LAST. Larger ids in blobs are corrupt. */
int db_last_id(struct sqlite_conn *c, unsigned sql, uint64_t *ret);

/* Translates 0, ERR_NOMEM and ERR_CORRUPT into SQLite's codes. */
int db_code(int r);

/* Valid until the next step. */
static inline struct str column_blob(const struct query *q, int column)
{
	const char *data = sqlite3_column_blob(q->stmt, column);
	return str_n(data, (size_t)sqlite3_column_bytes(q->stmt, column));
}

/* A column's text, copied to the arena; NULL reads as STR_NULL. False when memory ran out. */
bool db_column_str(const struct query *q, int column, struct arena *arena, struct str *ret);

/* --- intake: a batch on its way into the file --- */

struct seen_index;
struct seen_entry;

struct intake {
	struct sqlite_conn *c;
	const uint8_t *key; /* the file's secret, SINK_KEY_BYTES */
	struct seen_index *seen;
	const struct sink_batch *batch;

	uint64_t duplicates; /* out */

	struct book_row book; /* as it will be */
	uint32_t *sets;       /* ids in the file */
	bool *clicks;         /* whether the set is of a click */
	uint64_t set_last;    /* the largest id in the file */
	int64_t *texts;       /* ids in the file; 0: not looked up yet; -1: not stored */
	struct seen_entry *entries;
	struct buf scratch;
};

/* Writes the whole batch, in the transaction that the caller has begun. The caller must tell the seen index
 * how the transaction ended before it releases the intake. */
int intake_run(struct intake *in);
void intake_release(struct intake *in);

/* --- buffered visits, and their compaction into blocks, cells and totals --- */

/* Which dimension sets are of bots, by id, as far as compaction has looked them up. */
struct bot_sets {
	uint8_t *items;
	size_t cap;
};

/* One step, in the transaction that the caller has begun: about `visits_max` visits, or all of one link if it
 * has more. Continues the compaction under way, or starts one of the whole buffer. */
int compaction_step(struct sqlite_conn *c, struct bot_sets *known, size_t visits_max);

/* Adds to the cell (level, start, link), using the caller's scratch buffer. */
int compaction_cell_add(struct sqlite_conn *c, int64_t level_key, int64_t start_ms, int64_t link,
                        struct counts *sets, struct runs *runs, uint64_t first_visit, struct buf *scratch);

struct buffered {
	uint64_t ordinal; /* the visit's position in the buffer */
	struct visit_key key;
	uint32_t visitor;
};

/* Calls `each` for every visit that is not compacted yet, until it returns a code other than SQLITE_OK. */
typedef int buffer_each_fn(void *arg, const struct buffered *v);
int buffer_each(struct sqlite_conn *c, buffer_each_fn *each, void *arg);

/* --- impressions --- */

/* Writes at least one impression that counts. Registers new ads in `book`, whose kept_ms says which
 * impressions get no rows. */
int impressions_write(struct sqlite_conn *c, struct book_row *book,
                      const struct sink_impression *const *impressions, size_t count);

int impressions_window(struct sqlite_conn *c, struct window_query *q);

/* --- queries, in one snapshot that the caller has begun --- */

/* The caller has called tallies_check. */
int sqlite_stats_get(struct sqlite_conn *c, struct stats_query *q);

/* A cursor's rank is the number of visits recorded before in the same minute for the same link. */
int sqlite_visits_get(struct sqlite_conn *c, struct visits_query *q, const uint8_t *key,
                      const struct page_cursor *from);

int sqlite_top_links_get(struct sqlite_conn *c, struct top_links_query *q);
int sqlite_clicks_get(struct sqlite_conn *c, struct sink_total *links, size_t n);

int sqlite_reconciliation_get(struct sqlite_conn *c, bool deep, struct reconciliation *ret);

/* A dimension set by its id, strings in the arena. */
int sqlite_set_get(struct sqlite_conn *c, uint64_t id, struct arena *arena, struct dimension_set *ret);

/* From a row of SQL_DAY_LINK_GET. */
struct day_sketches;
int sqlite_day_sketches_get(const struct query *q, struct day_sketches *ret);

/* The range of starts of each level's cells: cells outside need not be looked up. */
struct cell_spans {
	int64_t first_ms[CELL_LEVELS], last_ms[CELL_LEVELS]; /* first > last: there are none */
};
int sqlite_spans_get(struct sqlite_conn *c, int64_t link, struct cell_spans *ret);

static inline bool sqlite_cell_may_be(const struct cell_spans *s, enum cell_level level, int64_t start_ms)
{
	return start_ms >= s->first_ms[level] && start_ms <= s->last_ms[level];
}

/* --- retention: folds old rollups and deletes expired data --- */

/* A sweep over a dictionary, once a day, in steps. */
struct dictionary_sweep {
	int64_t day;  /* the last day on which a sweep was completed */
	int64_t upto; /* the last id examined */
};

/* State between steps. Losing it only costs time. */
struct retention {
	size_t next; /* the kind of step to try first, so that all kinds take turns */
	struct dictionary_sweep texts, ads;
};

/* One step, in the transaction that the caller has begun. *ret_more: it did something. `now_ms` is capped at
 * one hour after the last commit. */
int retention_step(struct retention *t, struct sqlite_conn *c, const struct sink_settings *s, int64_t now_ms,
                   bool *ret_more);
