/*
 * Days that are dropped, and what they counted (clickhouse_tables.c). Who counts both what is there and what
 * is gone first reads how far the rounds are, asks by that, and reads it again: when a round has gone on
 * meanwhile, the answer may have missed it or counted it twice, and is asked for again.
 */
#include "sink/clickhouse_sink.h"

enum { TRIES_MAX = 50 };

static int dropped_days_read(struct sink_clickhouse *s, struct ch_dropped_days *ret)
{
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(&sql, "SELECT what, toUInt16(day), round, toUInt8(max(step)), toUInt8(0) FROM day_gone"
	                 " GROUP BY what, day, round ORDER BY what, day, round");
	return ch_ask(s, &sql, &ret->answer);
}

static void dropped_days_release(struct ch_dropped_days *g)
{
	buf_release(&g->answer);
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

void ch_dropped_leave_out_days(const struct ch_dropped_days *g, enum ch_table table, struct buf *sql)
{
	struct row_reader rows = row_reader_of(&g->answer);
	while (row_more(&rows)) {
		struct drop_round round = take_round(&rows);
		if (round.what == table && round.step == DROP_COUNTS)
			buf_printf(sql, " AND day != toDate(%u)", round.day);
	}
}

void ch_dropped_leave_out_sums(const struct ch_dropped_days *g, enum ch_table table, struct buf *sql)
{
	struct row_reader rows = row_reader_of(&g->answer);
	while (row_more(&rows)) {
		struct drop_round round = take_round(&rows);
		if (round.what == table && round.step == DROP_BEGUN)
			buf_printf(sql, " AND NOT (day = toDate(%u) AND round = %u)", round.day,
			           round.number);
	}
}

int ch_dropped_around(struct sink_clickhouse *s,
                      int (*ask)(struct sink_clickhouse *, const struct ch_dropped_days *, void *), void *arg)
{
	for (int i = 0; i < TRIES_MAX; i++) {
		CLEANUP(dropped_days_release) struct ch_dropped_days before = {0};
		CLEANUP(dropped_days_release) struct ch_dropped_days after = {0};
		int r = dropped_days_read(s, &before) ?: ask(s, &before, arg);
		if (r < 0 ||
		    (s->settings.days_ms == 0 && !ch_dropped_is_any(&before))) /* nobody drops days */
			return r;
		r = dropped_days_read(s, &after);
		if (r < 0 || str_eq(buf_view(&before.answer), buf_view(&after.answer)))
			return r;
	}
	return ERR_UNAVAILABLE;
}
