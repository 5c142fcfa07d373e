/*
 * A stats query. One SELECT groups the visits by all requested attributes (step, kind, bot, dimensions), and
 * an outer one sums the groups up for each attribute. So all numbers are of the same moment, each visit is
 * read once, and only requested numbers are transferred.
 *
 * Unique visitors are those of whole days. For each register of a sketch, the server returns the number of
 * distinct hashes, and the minimum of their lower bits, which has the longest run of leading zeros. A sketch
 * keeps no more than that (sketch.h).
 */
#include "sink/clickhouse_sink.h"
#include "sink/sketch.h"
#include "sink/tallies.h"

enum { REST_BITS = 20 }; /* of a visitor's hash, below the register's number */
_Static_assert(SKETCH_REGISTERS == 1 << (32 - REST_BITS), "the upper bits are the register");

/* The column `part`: the row is about totals, or about dimension part - PART_DIM. */
enum { PART_TOTALS, PART_DIM };

/* --- the statement --- */

static void write_dims(const struct stats_query *q, struct buf *sql)
{
	for (int dim = 0; dim < DIM_COUNT; dim++)
		if (q->dims_wanted >> dim & 1)
			buf_printf(sql, ", %s", visit_dim_names[dim]);
}

static void where_bots(const struct stats_query *q, struct buf *sql)
{
	if (q->bots != BOTS_INCLUDED)
		buf_printf(sql, " AND bot %s ''", q->bots == BOTS_ONLY ? "!=" : "=");
}

static void write_counts(struct buf *sql, const struct ch_merged_days *merged, bool no_final, const void *arg)
{
	const struct tallies *t = arg;
	const struct stats_query *q = t->q;
	buf_printf(sql, "SELECT kind, bot != '' AS is_bot, ");
	/* The start of the visit's step; months are summed up from their days. */
	long long unit_ms = step_unit_ms(q->step), ahead_ms = q->step == STEP_WEEK ? 3 * DAY_MS : 0;
	if (q->series)
		buf_printf(sql, "intDiv(time + %lld, %lld) * %lld - %lld", ahead_ms, unit_ms, unit_ms,
		           ahead_ms);
	else
		buf_printf(sql, "toInt64(0)");
	buf_printf(sql, " AS step");
	write_dims(q, sql);
	buf_printf(sql, ", count() AS visits FROM visit%s", no_final ? "" : " FINAL");
	ch_where_time(sql, t->from_ms, t->to_ms);
	if (q->link)
		buf_printf(sql, " AND link = %llu", (unsigned long long)q->link);
	where_bots(q, sql);
	for (int dim = 0; dim < DIM_COUNT; dim++) {
		if (!(q->filtered >> dim & 1))
			continue;
		buf_printf(sql, " AND %s = ", visit_dim_names[dim]);
		struct str value = q->filter[dim];
		CLEANUP(buf_release) struct buf marked = {0};
		if (ch_text_needs_mark(value))
			buf_char(&marked, '\0');
		buf_str(&marked, value);
		ch_quote(sql, buf_view(&marked));
		sql->failed |= marked.failed;
	}
	ch_merged_days(merged, CH_VISIT, no_final, sql);
	buf_printf(sql, " GROUP BY kind, is_bot, step");
	write_dims(q, sql);
}

/* --- the result --- */

static int add_total(const struct tallies *t, int64_t what, uint64_t n)
{
	struct stats_query *q = t->q;
	bool is_bot = what & 1;
	switch (what >> 1 & 7) {
	case VISIT_CLICK:
		q->clicks += n;
		q->bot_clicks += is_bot ? n : 0;
		break;
	case VISIT_HEAD: q->heads += n; return 0;
	case VISIT_PREFETCH: q->prefetches += n; return 0;
	case VISIT_UNKNOWN: q->unknowns += n; return 0;
	case VISIT_ROOT: q->roots += n; return 0;
	default: return ERR_CORRUPT;
	}
	if (!q->series)
		return 0;
	size_t step = tallies_step(t, what >> 4);
	if (step >= q->series_count)
		return ERR_CORRUPT;
	q->series[step].clicks += n;
	return 0;
}

static int add_share(const struct stats_query *q, struct stats_share *shares, size_t *count,
                     struct row_reader *rows)
{
	struct str value;
	if (!ch_text_get(rows, q->arena, &value))
		return ERR_NOMEM;
	row_i64(rows);
	shares[(*count)++] = (struct stats_share){.value = value, .clicks = row_u64(rows)};
	return 0;
}

/* Allocates the shares of each wanted dimension. */
static int shares_count(struct stats_query *q, struct row_reader rows)
{
	size_t counts[DIM_COUNT] = {0};
	while (row_more(&rows)) {
		unsigned part = row_u8(&rows);
		row_text(&rows);
		row_i64(&rows);
		row_u64(&rows);
		row_end(&rows);
		if (!rows.bad && part >= PART_DIM && part < PART_DIM + DIM_COUNT)
			counts[part - PART_DIM]++;
	}
	for (int dim = 0; dim < DIM_COUNT; dim++) {
		if (!(q->dims_wanted >> dim & 1))
			continue;
		size_t count = MIN(counts[dim], q->shares_max);
		q->shares[dim] = arena_alloc(q->arena, MAX(count, 1) * sizeof(*q->shares[dim]));
		if (!q->shares[dim])
			return ERR_NOMEM;
	}
	return ch_rows_status(&rows);
}

static int take_answer(const struct tallies *t, const struct buf *answer)
{
	struct row_reader rows = row_reader_of(answer);
	int r = shares_count(t->q, rows);
	struct stats_query *q = t->q;
	while (r == 0 && row_more(&rows)) {
		unsigned part = row_u8(&rows), dim = part - PART_DIM;
		if (part != PART_TOTALS && dim < DIM_COUNT && q->shares[dim] &&
		    q->share_count[dim] < q->shares_max) {
			r = add_share(q, q->shares[dim], &q->share_count[dim], &rows);
		} else {
			row_text(&rows);
			int64_t what = row_i64(&rows);
			uint64_t n = row_u64(&rows);
			if (part == PART_TOTALS && !rows.bad)
				r = add_total(t, what, n);
		}
		row_end(&rows);
	}
	return r ? r : ch_rows_status(&rows);
}

/* --- visitors --- */

/* An empty sketch in the dense form. */
static void sketch_begin(struct sketch *s)
{
	static const uint8_t none[SKETCH_BYTES_MAX];
	bool good = sketch_read(s, none, sizeof(none));
	ASSERT(good);
}

struct visitors {
	struct sketch sketch;
	uint32_t day;
	uint64_t distinct; /* hashes of that day */
};

static uint64_t visitors_of_day(const struct visitors *v)
{
	return v->distinct <= SKETCH_LIST_MAX ? v->distinct : sketch_estimate(&v->sketch);
}

static int select_visitors(struct sink_clickhouse *s, const struct tallies *t)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	buf_printf(
	    &sql,
	    "SELECT toUInt32(intDiv(time, %lld)) AS of_day, toUInt32(bitShiftRight(visitor, %d)) AS place,"
	    " toUInt32(min(bitAnd(visitor, %u))), toUInt64(uniqExact(visitor)), toUInt8(0) FROM visit",
	    DAY_MS, REST_BITS, (1U << REST_BITS) - 1);
	ch_where_time(&sql, time_floor(t->from_ms, DAY_MS), time_ceil(t->to_ms, DAY_MS));
	buf_printf(&sql, " AND kind = %d AND visitor != 0", VISIT_CLICK);
	if (t->q->link)
		buf_printf(&sql, " AND link = %llu", (unsigned long long)t->q->link);
	where_bots(t->q, &sql);
	buf_printf(&sql, " GROUP BY of_day, place ORDER BY of_day");
	int r = ch_select(s, &sql, &answer);
	if (r)
		return r;
	struct visitors v = {0};
	struct row_reader rows = row_reader_of(&answer);
	t->q->visitors = 0;
	sketch_begin(&v.sketch);
	while (row_more(&rows)) {
		uint32_t day = row_u32(&rows), place = row_u32(&rows), rest = row_u32(&rows);
		uint64_t hashes = row_u64(&rows);
		row_end(&rows);
		if (day != v.day) {
			t->q->visitors += visitors_of_day(&v);
			v.day = day;
			v.distinct = 0;
			sketch_begin(&v.sketch);
		}
		v.distinct += hashes;
		sketch_add(&v.sketch, place << REST_BITS | (rest & ((1U << REST_BITS) - 1)));
	}
	t->q->visitors += visitors_of_day(&v);
	return ch_rows_status(&rows);
}

/* --- both --- */

static void write_all(struct buf *sql, const struct ch_merged_days *merged, const void *arg)
{
	const struct stats_query *q = ((const struct tallies *)arg)->q;
	size_t rows_max = MAX(q->shares_max, (q->series_count + 1) * VISIT_KINDS * 2 * 31);
	buf_printf(sql, "SELECT part, value, if(part = 0, (step * 8 + kind) * 2 + is_bot, 0) AS what,"
	                " sum(visits) AS n, toUInt8(0) FROM (");
	ch_merged_parts(sql, merged, CH_VISIT, write_counts, arg);
	buf_printf(sql, ") ARRAY JOIN [toUInt8(0)");
	for (int dim = 0; dim < DIM_COUNT; dim++)
		if (q->dims_wanted >> dim & 1)
			buf_printf(sql, ", %d", PART_DIM + dim);
	buf_printf(sql, "] AS part, [''");
	write_dims(q, sql);
	buf_printf(sql,
	           "] AS value WHERE part = 0 OR kind = %d GROUP BY part, value, what"
	           " ORDER BY part, n DESC, value LIMIT %zu BY part",
	           VISIT_CLICK, rows_max);
}

int ch_stats(struct sink *base, struct stats_query *q)
{
	CLEANUP(buf_release) struct buf answer = {0};
	struct sink_clickhouse *s = ch_self(base);
	struct tallies t;
	int r = tallies_check(q);
	if (r < 0)
		return r;
	r = tallies_begin(&t, q);
	if (r == 0 && t.from_ms < t.to_ms) {
		r = ch_merged_select(s, write_all, &t, &answer) ?: take_answer(&t, &answer);
		if (r == 0 && q->has_visitors)
			r = select_visitors(s, &t);
	}
	tallies_release(&t);
	return r;
}
