/* The parts of the ClickHouse sink, for its own files only. clickhouse_tables.c describes the tables. */
#pragma once

#include "client/clickhouse.h"
#include "client/rowbinary.h"
#include "sink/calendar.h"
#include "sink/settings.h"
#include "sink/sink.h"

enum ch_table {
	CH_VISIT,
	CH_IMPRESSION,
	CH_SEEN,
	CH_NOTE,
	CH_INSERTED, /* those above are written by commits */
	CH_DAY_TOTAL = CH_INSERTED,
	CH_DAY_DROPPED,
	CH_TABLES
};
extern const char *const ch_table_names[CH_TABLES];

enum { CH_SETTINGS_BYTES = 256, CH_BASE_BYTES = 40, CH_INSERT_TIMEOUT_MS = 20000, CH_QUIET_S = 600 };

/* The rows of a commit, and which tables have them. */
struct ch_intake {
	struct clickhouse_rows rows[CH_INSERTED];
	bool is_inserted[CH_INSERTED];
};

struct sink_clickhouse {
	struct sink base;
	struct clickhouse *client;
	struct sink_settings settings;
	/* Settings that this server supports, by kind of statement. */
	char select_settings[CH_SETTINGS_BYTES];
	char insert_settings[CH_SETTINGS_BYTES];
	char alter_settings[CH_SETTINGS_BYTES];
	unsigned quiet_s; /* a day without new parts for this long is assumed to be complete */

	/* Owned by the committing thread: */
	struct ch_intake now, failed; /* `failed`: the rows of the last failed commit, to recognise a retry */
	bool has_failed;
	int64_t insert_timeout_ms;   /* of a first attempt */
	int64_t slow_since_ms;       /* monotonic: `failed` has timed out since; 0: it has not */
	char base_id[CH_BASE_BYTES]; /* prefix of this process's query ids */
	uint64_t serial;             /* of the batch */
	int64_t now_ms;              /* of the last commit; 0: none yet */
};

static inline struct sink_clickhouse *ch_self(struct sink *base)
{
	return container_of(base, struct sink_clickhouse, base);
}

/* --- statements --- */

/* Runs a SELECT; its rows are in *ret_answer. `sql` may have failed. ERR_UNAVAILABLE, ERR_NOMEM. */
int ch_select(struct sink_clickhouse *s, struct buf *sql, struct buf *ret_answer);

/* Runs a statement without a result. */
int ch_exec(struct sink_clickhouse *s, struct buf *sql);

/* 0, or ERR_CORRUPT when the rows did not have the expected columns. */
int ch_rows_status(const struct row_reader *r);

/* Appends the text as a quoted literal. */
void ch_quote(struct buf *sql, struct str text);

/* --- days: the partitions of all tables --- */

/* Times out of this range belong to the first or last day, so that they cannot create thousands of
 * partitions. */
enum { CH_DAY_FIRST = 10957, CH_DAY_LAST = 47482 }; /* 2000-01-01 and 2100-01-01 */

static inline uint16_t ch_day(int64_t ms)
{
	int64_t day = day_of(ms);
	return (uint16_t)MAX(MIN(day, CH_DAY_LAST), CH_DAY_FIRST);
}

/* Clamps a time to the range that SQL accepts. */
static inline int64_t ch_clamp(int64_t ms)
{
	const int64_t limit_ms = 1LL << 50;
	return MAX(MIN(ms, limit_ms), -limit_ms);
}

/* Appends " WHERE …" for from <= time < to in a table whose days are those of `time`. */
void ch_where_time(struct buf *sql, int64_t from_ms, int64_t to_ms);

/* --- texts: unknown is stored as "", and a known text that is empty or begins with a zero gets a zero in
 * front --- */

static inline bool ch_text_needs_mark(struct str s)
{
	return s.ptr && (s.len == 0 || s.ptr[0] == '\0');
}

/* Copies the next column to the arena; STR_NULL when unknown. False when memory ran out. */
bool ch_text_get(struct row_reader *r, struct arena *arena, struct str *ret);

/* --- dropped days --- */

/* Steps of a round of dropping a day (day_gone.step). */
enum {
	DROP_BEGUN = 0,  /* its sums are being written, and do not count yet */
	DROP_COUNTS = 1, /* its sums count, its rows do not */
	DROP_DROPPED = 2 /* its rows are dropped; later rows belong to the next round */
};

/* All rounds ever. */
struct ch_dropped_days {
	struct buf answer;
};

bool ch_dropped_is_any(const struct ch_dropped_days *g);

/* Append the condition that excludes rows, or sums, that do not count. */
void ch_dropped_skip_days(const struct ch_dropped_days *g, enum ch_table table, struct buf *sql);
void ch_dropped_skip_sums(const struct ch_dropped_days *g, enum ch_table table, struct buf *sql);

/* Calls `run`, again if days were dropped meanwhile. */
int ch_dropped_retry(struct sink_clickhouse *s,
                     int (*run)(struct sink_clickhouse *, const struct ch_dropped_days *, void *), void *arg);

/* --- merged days, which are read without FINAL --- */

struct ch_merged_days {
	struct buf answer;
};

/* Appends the part of a SELECT that reads the merged days (`no_final`), or all others. */
typedef void ch_merged_part_fn(struct buf *sql, const struct ch_merged_days *w, bool no_final,
                               const void *arg);

/* Appends the part for the other days and, if there are merged days, UNION ALL and the part for those. */
void ch_merged_parts(struct buf *sql, const struct ch_merged_days *w, enum ch_table table,
                     ch_merged_part_fn *part, const void *arg);

/* Appends the condition for the merged days, of which there must be some, or for all others. */
void ch_merged_days(const struct ch_merged_days *w, enum ch_table table, bool no_final, struct buf *sql);

/* Runs the SELECT that `write` writes, again if the merged days changed meanwhile. */
int ch_merged_select(struct sink_clickhouse *s,
                     void (*write)(struct buf *sql, const struct ch_merged_days *w, const void *arg),
                     const void *arg, struct buf *ret_answer);

/* --- ops --- */

/* Finds out which settings the server supports, and creates missing tables. */
int ch_tables_open(struct sink_clickhouse *s, struct err *e);

int ch_commit(struct sink_clickhouse *s, const struct sink_batch *batch);
void ch_intake_release(struct ch_intake *in);

int ch_find_duplicates(struct sink *base, struct duplicate_query *queries, size_t count);
int ch_has_fingerprints(struct sink *base);

int ch_stats(struct sink *base, struct stats_query *q);
int ch_visits(struct sink *base, struct visits_query *q);
int ch_window(struct sink *base, struct window_query *q);
int ch_top_links(struct sink *base, struct top_links_query *q);
int ch_clicks(struct sink *base, struct sink_total *links, size_t n);
int ch_reconciliation(struct sink *base, uint64_t node, bool deep, struct reconciliation *ret);

int ch_retention(struct sink *base, int64_t now_ms);
