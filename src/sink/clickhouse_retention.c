/*
 * Deletes expired data, one partition at a time. Several workers may run a step at once, or repeat it after a
 * crash: clearing and dropping are idempotent, and sums are kept by round (clickhouse_tables.c).
 */
#include "sink/clickhouse_sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MERGE_WAIT_MS = 1000, MERGE_ROWS_MAX = 100000000, MERGE_ID_BYTES = 160 };

struct day_partition {
	enum ch_table table;
	uint32_t day;
	bool has_details;
};

struct retention_pass {
	struct sink_clickhouse *s;
	int64_t now_ms;
	struct day_partition *partitions;
	size_t count;
	uint32_t seen_newest; /* day */
};

static bool table_of(struct str name, enum ch_table *ret)
{
	for (size_t i = 0; i < CH_INSERTED; i++) {
		*ret = (enum ch_table)i;
		if (str_eq(name, str_of(ch_table_names[i])))
			return true;
	}
	return false;
}

/* Lists all partitions. A cleared column has no files. */
static int partitions_read(struct retention_pass *t)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	buf_printf(&sql,
	           "SELECT table, toUInt16(toDate(partition)) AS of_day, toUInt8(max(column = 'details')),"
	           " toUInt8(0) FROM system.parts_columns WHERE active AND database = '%s'"
	           " AND column IN ('day', 'details') AND table IN ('visit', 'impression', 'seen', 'note')"
	           " GROUP BY table, of_day ORDER BY of_day, table",
	           clickhouse_database(t->s->client));
	int r = ch_select(t->s, &sql, &answer);
	if (r)
		return r;
	struct row_reader rows = row_reader_of(&answer);
	t->partitions = malloc((answer.len / 6 + 1) * sizeof(*t->partitions)); /* no row is shorter */
	if (!t->partitions)
		return ERR_NOMEM;
	while (row_more(&rows)) {
		struct day_partition *p = &t->partitions[t->count];
		struct str name = row_text(&rows);
		p->day = row_u16(&rows);
		p->has_details = row_u8(&rows);
		row_end(&rows);
		if (rows.bad || !table_of(name, &p->table))
			continue;
		t->count++;
		if (p->table == CH_SEEN)
			t->seen_newest = MAX(t->seen_newest, p->day);
	}
	return ch_rows_status(&rows);
}

/* --- steps --- */

static void write_partition(struct buf *sql, uint32_t day)
{
	time_t seconds = (time_t)day * (DAY_MS / SECOND_MS);
	struct tm tm;
	gmtime_r(&seconds, &tm);
	buf_printf(sql, " PARTITION '%04d-%02d-%02d'", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
}

static int drop(struct retention_pass *t, enum ch_table table, uint32_t day)
{
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(&sql, "ALTER TABLE %s DROP", ch_table_names[table]);
	write_partition(&sql, day);
	return ch_exec(t->s, &sql);
}

static int clear(struct retention_pass *t, const struct day_partition *p)
{
	static const char *const visit[] = {"agent", "referrer_url", "place", "path", "address", "details"};
	static const char *const impression[] = {"fingerprint", "id", "user", "details"};
	const char *const *columns = p->table == CH_VISIT ? visit : impression;
	size_t count = p->table == CH_VISIT ? ARRAY_LEN(visit) : ARRAY_LEN(impression);
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(&sql, "ALTER TABLE %s", ch_table_names[p->table]);
	for (size_t i = 0; i < count; i++) {
		buf_printf(&sql, "%s CLEAR COLUMN %s IN", i ? "," : "", columns[i]);
		write_partition(&sql, p->day);
	}
	return ch_exec(t->s, &sql);
}

/* Writes the sums of the day's rows. */
static int write_sums(struct retention_pass *t, enum ch_table table, uint32_t day, uint32_t round)
{
	static const char *const items[] = {[CH_VISIT] = "link", [CH_IMPRESSION] = "0", [CH_NOTE] = "kind"};
	static const char *const clicks[] = {
	    [CH_VISIT] = "countIf(kind = 0)", [CH_IMPRESSION] = "0", [CH_NOTE] = "0"};
	static const char *const events[] = {
	    [CH_VISIT] = "count()", [CH_IMPRESSION] = "count()", [CH_NOTE] = "sum(count)"};
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(&sql,
	           "INSERT INTO day_total (what, item, day, round, node, clicks, events)"
	           " SELECT toUInt8(%d), toUInt64(%s) AS thing, day, toUInt32(%u), node, toUInt64(%s),"
	           " toUInt64(%s) FROM %s FINAL WHERE day = toDate(%u) GROUP BY thing, day, node",
	           table, items[table], round, clicks[table], events[table], ch_table_names[table], day);
	return ch_exec(t->s, &sql);
}

static int write_round(struct retention_pass *t, enum ch_table table, uint32_t day, uint32_t round, int step)
{
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(&sql,
	           "INSERT INTO day_gone (what, day, round, step)"
	           " SELECT toUInt8(%d), toDate(%u), toUInt32(%u), toUInt8(%d)",
	           table, day, round, step);
	return ch_exec(t->s, &sql);
}

/* The round under way and its step, or else the next round and -1. */
static int round_find(struct retention_pass *t, enum ch_table table, uint32_t day, uint32_t *ret,
                      int *ret_step)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	buf_printf(
	    &sql,
	    "SELECT round, toUInt8(max(step)) AS at, toUInt8(0) FROM day_gone WHERE what = %d AND day ="
	    " toDate(%u) GROUP BY round ORDER BY round DESC LIMIT 1",
	    table, day);
	int r = ch_select(t->s, &sql, &answer);
	struct row_reader rows = row_reader_of(&answer);
	*ret = 0;
	*ret_step = -1;
	if (r < 0 || !row_more(&rows))
		return r;
	*ret = row_u32(&rows);
	*ret_step = row_u8(&rows);
	row_end(&rows);
	if (*ret_step == DROP_DROPPED) {
		*ret += 1;
		*ret_step = -1;
	}
	return ch_rows_status(&rows);
}

static int retire(struct retention_pass *t, const struct day_partition *p)
{
	uint32_t round;
	int step;
	int r = round_find(t, p->table, p->day, &round, &step);
	if (r == 0 && step < DROP_BEGUN)
		r = write_round(t, p->table, p->day, round, DROP_BEGUN);
	if (r == 0 && step < DROP_COUNTS)
		r = write_sums(t, p->table, p->day, round);
	if (r == 0 && step < DROP_COUNTS)
		r = write_round(t, p->table, p->day, round, DROP_COUNTS);
	/* The sums count already. Writing them again includes rows that have arrived since. */
	if (r == 0)
		r = write_sums(t, p->table, p->day, round);
	if (r == 0)
		r = drop(t, p->table, p->day);
	return r ? r : write_round(t, p->table, p->day, round, DROP_DROPPED);
}

/* --- unfinished rounds --- */

/* Ends rounds whose worker died after it had dropped the day: rows that arrive now belong to the next round.
 * The rounds were read before the partitions, so a round without a partition is over. */
static int rounds_close(struct retention_pass *t, const struct buf *counting)
{
	struct row_reader rows = row_reader_of(counting);
	int r = 0;
	while (r == 0 && row_more(&rows)) {
		uint8_t table = row_u8(&rows);
		uint16_t day = row_u16(&rows);
		uint32_t round = row_u32(&rows);
		row_end(&rows);
		bool has_rows = false;
		for (size_t i = 0; i < t->count; i++)
			has_rows |= t->partitions[i].table == table && t->partitions[i].day == day;
		if (!rows.bad && table < CH_INSERTED && !has_rows)
			r = write_round(t, (enum ch_table)table, day, round, DROP_DROPPED);
	}
	return r ? r : ch_rows_status(&rows);
}

/* --- what is due --- */

static bool is_past(const struct day_partition *p, int64_t now_ms, uint64_t age_ms)
{
	return ((int64_t)p->day + 1) * DAY_MS <= now_ms - (int64_t)age_ms;
}

/* Days far in the future, recorded while a clock was wrong, are due too: they would never expire. */
static bool is_clear_due(const struct retention_pass *t, const struct day_partition *p)
{
	const struct sink_settings *s = &t->s->settings;
	uint64_t age_ms = p->table == CH_VISIT ? s->visits_ms : s->impressions_ms;
	return p->has_details &&
	       (is_past(p, t->now_ms, age_ms) || (int64_t)p->day * DAY_MS > t->now_ms + (int64_t)age_ms);
}

/* 1: it did something; 0: nothing is due. */
static int retention_partition(struct retention_pass *t, const struct day_partition *p)
{
	uint64_t days_ms = t->s->settings.days_ms;
	int r;
	if (p->table == CH_SEEN) {
		int64_t newest_ms = MIN((int64_t)t->seen_newest * DAY_MS, t->now_ms);
		if (!is_past(p, newest_ms, t->s->settings.seen_ms + SINK_SEEN_SLACK_MS))
			return 0;
		r = drop(t, p->table, p->day);
	} else if (days_ms > 0 && is_past(p, t->now_ms, days_ms)) {
		r = retire(t, p);
	} else if (is_clear_due(t, p)) {
		r = clear(t, p);
	} else {
		return 0;
	}
	return r < 0 ? r : 1;
}

/* --- merging past days --- */

static int merge(struct retention_pass *t, struct str table, uint32_t day)
{
	CLEANUP(buf_release) struct buf sql = {0};
	char id[MERGE_ID_BYTES];
	buf_printf(&sql, "OPTIMIZE TABLE %.*s", STR_ARG(table));
	write_partition(&sql, day);
	buf_printf(&sql, " FINAL");
	if (sql.failed)
		return ERR_NOMEM;
	snprintf(id, sizeof(id), "curt-merge-%s-%.*s-%u", clickhouse_database(t->s->client), STR_ARG(table),
	         day);
	struct clickhouse_call call = {
	    .sql = buf_view(&sql), .query_id = id, .timeout_ms = MERGE_WAIT_MS, .is_quiet = true};
	return clickhouse_run(t->s->client, &call, NULL, NULL) == 0 ? 1 : 0;
}

/* Merges the parts of a past day without recent inserts into one, so that it can be read without FINAL
 * (clickhouse_merged_days.c). The query id allows one worker to do so for a day at a time. It does not wait
 * for the result: the server continues by itself, and a failure loses nothing. */
static int merge_one(struct retention_pass *t)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	buf_printf(
	    &sql,
	    "SELECT table, toUInt16(toDate(partition)) AS of_day, toUInt8(0) FROM system.parts WHERE active"
	    " AND database = '%s' AND table IN ('visit', 'impression', 'note') GROUP BY table, of_day"
	    " HAVING (count() > 1 OR max(level) = 0) AND max(modification_time) <= now() - %u"
	    " AND of_day < %u AND sum(rows) <= %d ORDER BY of_day DESC, table LIMIT 1",
	    clickhouse_database(t->s->client), t->s->quiet_s, ch_day(t->now_ms), MERGE_ROWS_MAX);
	int r = ch_select(t->s, &sql, &answer);
	struct row_reader rows = row_reader_of(&answer);
	if (r < 0 || !row_more(&rows))
		return r;
	struct str table = row_text(&rows);
	uint16_t day = row_u16(&rows);
	row_end(&rows);
	return rows.bad ? ERR_CORRUPT : merge(t, table, day);
}

int ch_retention(struct sink *base, int64_t now_ms)
{
	struct sink_clickhouse *s = ch_self(base);
	if (s->now_ms == 0) /* without a commit, the clock cannot be checked */
		return 0;
	struct retention_pass t = {.s = s, .now_ms = MIN(now_ms, s->now_ms + HOUR_MS)};
	CLEANUP(buf_release) struct buf sql = {0}, counting = {0};
	/* Rounds whose sums count. */
	buf_printf(&sql,
	           "SELECT what, toUInt16(day), round, toUInt8(0) FROM day_gone GROUP BY what, day, round"
	           " HAVING max(step) = %d ORDER BY what, day, round",
	           DROP_COUNTS);
	int r = ch_select(t.s, &sql, &counting) ?: partitions_read(&t) ?: rounds_close(&t, &counting);
	for (size_t i = 0; r == 0 && i < t.count; i++)
		r = retention_partition(&t, &t.partitions[i]);
	if (r == 0)
		r = merge_one(&t);
	free(t.partitions);
	return r;
}
