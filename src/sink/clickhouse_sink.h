/* What the files of this backend share. For them only. */
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
	CH_INSERTED,
	CH_DAY_TOTAL = CH_INSERTED,
	CH_DAY_DROPPED,
	CH_TABLES
};
extern const char *const ch_table_names[CH_TABLES];

enum { CH_SETTINGS_BYTES = 256, CH_BASE_BYTES = 40, CH_INSERT_TIMEOUT_MS = 20000, CH_SETTLE_S = 600 };

/* The rows of a commit, and how far they got. */
struct ch_intake {
	struct clickhouse_rows rows[CH_INSERTED];
	bool is_inserted[CH_INSERTED];
};

struct sink_clickhouse {
	struct sink base;
	struct clickhouse *client;
	struct sink_settings settings;
	/* What the server knows, for the three kinds of statements. */
	char select_settings[CH_SETTINGS_BYTES];
	char insert_settings[CH_SETTINGS_BYTES];
	char alter_settings[CH_SETTINGS_BYTES];
	unsigned settle_s; /* parts that came so long ago are taken for the last of their day */

	/* Of the committing thread: */
	struct ch_intake now, failed; /* `failed`: what the last commit could not insert, to know it again */
	bool has_failed;
	int64_t insert_timeout_ms;   /* of a first try */
	int64_t slow_since_ms;       /* monotonic: `failed` has not been answered in time since; 0: it has */
	char base_id[CH_BASE_BYTES]; /* of the queries of this process */
	uint64_t serial;             /* of the batch */
	int64_t now_ms;              /* of the last commit; 0: none yet */
};

static inline struct sink_clickhouse *ch_self(struct sink *base)
{
	return container_of(base, struct sink_clickhouse, base);
}

/* --- statements --- */

/* Runs a question; its rows are in *ret_answer. `sql` is ours, and may have failed. ERR_UNAVAILABLE,
 * ERR_NOMEM. */
int ch_ask(struct sink_clickhouse *s, struct buf *sql, struct buf *ret_answer);

/* Runs what has no answer. */
int ch_do(struct sink_clickhouse *s, struct buf *sql);

/* 0, or ERR_CORRUPT when an answer was not what the question was for. */
int ch_end(const struct row_reader *r);

/* A text in quotes. */
void ch_quote(struct buf *sql, struct str text);

/* --- days, as tables are divided --- */

/* Times that cannot be are all put into the first or the last day: so nobody makes thousands of them. */
enum { CH_DAY_FIRST = 10957, CH_DAY_LAST = 47482 }; /* 2000-01-01 and 2100-01-01 */

static inline uint16_t ch_day(int64_t ms)
{
	int64_t day = day_of(ms);
	return (uint16_t)MAX(MIN(day, CH_DAY_LAST), CH_DAY_FIRST);
}

/* Where times can be, as SQL takes them. */
static inline int64_t ch_clamp(int64_t ms)
{
	const int64_t limit_ms = 1LL << 50;
	return MAX(MIN(ms, limit_ms), -limit_ms);
}

/* " WHERE " and what makes from <= time < to, of days that are those of the times. */
void ch_where_time(struct buf *sql, int64_t from_ms, int64_t to_ms);

/* --- texts: what is not known is empty, and what is known and empty begins with a zero --- */

static inline bool ch_text_needs_mark(struct str s)
{
	return s.ptr && (s.len == 0 || s.ptr[0] == '\0');
}

/* Into the arena; STR_NULL for what is not known. False when memory ran out. */
bool ch_text_get(struct row_reader *r, struct arena *arena, struct str *ret);

/* --- days that are dropped --- */

/* Steps of a round. */
enum {
	DROP_BEGUN = 0,  /* sums are written: they do not count yet */
	DROP_COUNTS = 1, /* the sums count, the day's rows do not */
	DROP_DROPPED = 2 /* there are no rows of it, or they are of the next round */
};

/* All rounds there ever were. */
struct ch_dropped_days {
	struct buf answer;
};

bool ch_dropped_is_any(const struct ch_dropped_days *g);

/* Conditions: of the table's rows, those that count; of its sums, likewise. */
void ch_dropped_leave_out_days(const struct ch_dropped_days *g, enum ch_table table, struct buf *sql);
void ch_dropped_leave_out_sums(const struct ch_dropped_days *g, enum ch_table table, struct buf *sql);

/* Calls `ask`, again when days were dropped meanwhile. */
int ch_dropped_around(struct sink_clickhouse *s,
                      int (*ask)(struct sink_clickhouse *, const struct ch_dropped_days *, void *),
                      void *arg);

/* --- days that are read without FINAL --- */

struct ch_merged_days {
	struct buf answer;
};

/* Part of a question about the table: how it reads those days, plainly, or all others. */
typedef void ch_merged_part_fn(struct buf *sql, const struct ch_merged_days *w, bool plainly,
                               const void *arg);

/* Of the other days, and if there are any, of those, with UNION ALL between them. */
void ch_merged_parts(struct buf *sql, const struct ch_merged_days *w, enum ch_table table,
                     ch_merged_part_fn *part, const void *arg);

/* A condition: those days, to be read plainly, of which there are some; or all others. */
void ch_merged_days(const struct ch_merged_days *w, enum ch_table table, bool plainly, struct buf *sql);

/* Asks what `write` writes, again when they have changed meanwhile. */
int ch_merged_ask(struct sink_clickhouse *s,
                  void (*write)(struct buf *sql, const struct ch_merged_days *w, const void *arg),
                  const void *arg, struct buf *ret_answer);

/* --- the parts --- */

/* Learns what the server knows, and makes what is missing. */
int ch_tables_open(struct sink_clickhouse *s, struct err *e);

int ch_commit(struct sink_clickhouse *s, const struct sink_batch *batch);
void ch_intake_release(struct ch_intake *in);

/* As the role says. */
int ch_recall(struct sink *base, struct sink_recall *asked, size_t count);
int ch_recalls_any(struct sink *base);

int ch_stats(struct sink *base, struct stats_query *q);
int ch_visits(struct sink *base, struct visits_query *q);
int ch_window(struct sink *base, struct window_query *q);
int ch_top_links(struct sink *base, struct top_links_query *q);
int ch_clicks(struct sink *base, struct sink_total *links, size_t n);
int ch_reconciliation(struct sink *base, uint64_t node, bool deep, struct reconciliation *ret);

int ch_retention(struct sink *base, int64_t now_ms);
