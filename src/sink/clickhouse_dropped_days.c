/*
 * Dropped days and their sums (clickhouse_tables.c). A query over both rows and sums reads the steps of all
 * rounds before and after. If a round has advanced in between, its counts may be missing or doubled, and the
 * query runs again.
 */
#include "sink/clickhouse_sink.h"

enum { TRIES_MAX = 50 };

static int dropped_days_read(struct sink_clickhouse *s, struct buf *ret)
{
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(&sql, "SELECT what, toUInt16(day), round, toUInt8(max(step)), toUInt8(0) FROM day_gone"
	                 " GROUP BY what, day, round ORDER BY what, day, round");
	return ch_select(s, &sql, ret);
}

bool ch_dropped_is_any(const struct ch_dropped_days *g)
{
	return g->answer.len > 0;
}

struct drop_round {
	uint8_t what;
	uint16_t day;
	uint32_t number;
	uint8_t step;
};

static struct drop_round take_round(struct row_reader *rows)
{
	struct drop_round round = {.what = row_u8(rows)};
	round.day = row_u16(rows);
	round.number = row_u32(rows);
	round.step = row_u8(rows);
	row_end(rows);
	return round;
}

void ch_dropped_skip_days(const struct ch_dropped_days *g, enum ch_table table, struct buf *sql)
{
	struct row_reader rows = row_reader_of(&g->answer);
	while (row_more(&rows)) {
		struct drop_round round = take_round(&rows);
		if (round.what == table && round.step == DROP_COUNTS)
			buf_printf(sql, " AND day != toDate(%u)", round.day);
	}
}

void ch_dropped_skip_sums(const struct ch_dropped_days *g, enum ch_table table, struct buf *sql)
{
	struct row_reader rows = row_reader_of(&g->answer);
	while (row_more(&rows)) {
		struct drop_round round = take_round(&rows);
		if (round.what == table && round.step == DROP_BEGUN)
			buf_printf(sql, " AND NOT (day = toDate(%u) AND round = %u)", round.day,
			           round.number);
	}
}

int ch_dropped_retry(struct sink_clickhouse *s,
                     int (*run)(struct sink_clickhouse *, const struct ch_dropped_days *, void *), void *arg)
{
	for (int i = 0; i < TRIES_MAX; i++) {
		CLEANUP(buf_release) struct buf before = {0}, after = {0};
		int r = dropped_days_read(s, &before);
		const struct ch_dropped_days dropped = {before};
		r = r ?: run(s, &dropped, arg);
		if (r < 0 || (s->settings.days_ms == 0 && before.len == 0)) /* days are never dropped */
			return r;
		r = dropped_days_read(s, &after);
		if (r < 0 || str_eq(buf_view(&before), buf_view(&after)))
			return r;
	}
	return ERR_UNAVAILABLE;
}
