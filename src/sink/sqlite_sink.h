/*
 * The parts of the SQLite sink. For the files of this backend only. They speak SQLite's codes.
 *
 * layout.c says what is in the file.
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
	int64_t new_sets, new_ads;
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

/* Both integers of its first `max` rows, which is its parameter: *ret_pairs, a pointer, is to an array of
 * structs of two 64-bit integers. */
int layout_rows(struct sqlite_conn *c, unsigned sql, int64_t max, struct arena *arena, void *ret_pairs,
                size_t *ret_count);

/* What a loop over rows that ended with `rc` comes to. */
static inline int layout_done(int rc)
{
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int layout_book_get(struct sqlite_conn *c, struct book *ret);

/* The largest number in a dictionary (SQL_SET_LAST): what is beyond it was never written. */
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

/* --- a batch on its way into the file --- */

struct seen;
struct seen_entry;

struct intake {
	struct sqlite_conn *c;
	const uint8_t *key; /* the file's secret, SINK_KEY_BYTES */
	struct seen *seen;
	const struct sink_batch *batch;

	uint64_t duplicates; /* out */

	struct book book;  /* as it will be */
	uint32_t *sets;    /* numbers in the file */
	bool *clicks;      /* whether the shape is one */
	uint64_t set_last; /* the largest number in the file */
	int64_t *texts;    /* numbers in the file; 0: not looked up yet; -1: not kept */
	struct seen_entry *entries;
	struct buf scratch;
};

/* Everything of the batch, in the transaction that the caller has begun. The seen set must be told how that
 * ended before the intake is released. */
int intake_run(struct intake *in);
void intake_release(struct intake *in);

/* --- fresh visits become blocks, cells and totals --- */

/* The next piece of what is fresh, in the transaction that the caller has begun: about `visits_max` visits,
 * or all of one link, if it has more. Goes on with the digest under way, or begins one of all that is fresh.
 */
int compaction_step(struct sqlite_conn *c, size_t visits_max);

/* Adds to the cell (level, start, link); the scratch buffer is the caller's. */
int compaction_cell_add(struct sqlite_conn *c, int64_t level_key, int64_t start_ms, int64_t link,
                        struct counts *sets, struct runs *runs, uint64_t first_visit, struct buf *scratch);

/* Hands every visit that is not digested yet to `each`, which says 0 or a code that ends it. Its ordinal is
 * its place among all in the fresh rows. */
typedef int buffer_each_fn(void *arg, uint64_t ordinal, const struct visit_key *key, uint32_t visitor);
int buffer_each(struct sqlite_conn *c, buffer_each_fn *each, void *arg);

/* --- impressions: written by commits, added up by windows --- */

/* Those that count, at least one. Counts new ads in the book, whose kept_ms says which need no rows. */
int impressions_write(struct sqlite_conn *c, struct book *book,
                      const struct sink_impression *const *impressions, size_t count);

int impressions_window(struct sqlite_conn *c, struct window_query *q);

/* --- questions about visits, answered in one snapshot that the caller has begun --- */

/* The query was checked (tallies.h). */
int sqlite_stats_get(struct sqlite_conn *c, struct stats_query *q);

/* `key` is the file's secret; where to go on is what page_check says. A rank is how many visits of that link
 * and minute were recorded before. */
int sqlite_visits_get(struct sqlite_conn *c, struct visits_query *q, const uint8_t *key,
                      const struct page_from *from);

int sqlite_top_links_get(struct sqlite_conn *c, struct top_links_query *q);
int sqlite_clicks_get(struct sqlite_conn *c, struct sink_total *links, size_t n);

int sqlite_reconciliation_get(struct sqlite_conn *c, bool deep, struct reconciliation *ret);

/* A shape by its number, strings in the arena. */
int sqlite_set_get(struct sqlite_conn *c, uint64_t id, struct arena *arena, struct dimension_set *ret);

/* Which levels may have cells where, so that nobody looks for those that cannot be. */
struct cell_spans {
	int64_t first_ms[CELL_LEVELS], last_ms[CELL_LEVELS]; /* starts; first > last: none at all */
};
int sqlite_spans_get(struct sqlite_conn *c, int64_t link, struct cell_spans *ret);

static inline bool sqlite_cell_may_be(const struct cell_spans *s, enum cell_level level, int64_t start_ms)
{
	return start_ms >= s->first_ms[level] && start_ms <= s->last_ms[level];
}

/* --- folding old rollups and dropping what is past its time --- */

/* Of a dictionary, once a day, some at a time. */
struct sweep {
	int64_t day;  /* all have been swept on it */
	int64_t upto; /* the last one looked at */
};

/* What it remembers between steps; losing it costs time only. */
struct retention {
	size_t next; /* the kind of step to begin with, so that each has its turn */
	struct sweep texts, ads;
};

/* One step, in the transaction that the caller has begun: *ret_more says whether it did anything. A clock
 * that runs ahead of the commits is not believed: nothing goes that an hour after the last commit would not.
 */
int retention_step(struct retention *t, struct sqlite_conn *c, const struct sink_settings *s, int64_t now_ms,
                   bool *ret_more);
