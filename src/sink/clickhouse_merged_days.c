/*
 * Days that need no FINAL. A partition that is one part which came out of a merge has each event once: a
 * question that reads it plainly gets the same answer, several times as fast. Tidying merges days that are
 * over, once they have rested (clickhouse_tidy.c); all else is read with FINAL.
 *
 * A part may come at any time: an event that is late, or one that is read again. So whoever reads days
 * plainly looks at their parts before and after: when they are the same, there was no other in between, since
 * a part goes only into one that has another name.
 */
#include "sink/clickhouse_sink.h"

enum {
	TRIES_MAX = 3,
	DAYS_MAX = 800, /* of a table: a statement has 50,000 elements at the most */
};

static int merged_days_read(struct sink_clickhouse *s, struct ch_merged_days *ret)
{
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(
	    &sql,
	    "SELECT table, toUInt16(toDate(partition)) AS of_day, any(name), toUInt8(0) FROM"
	    " system.parts WHERE active AND database = '%s' AND table IN ('visit', 'impression', 'note')"
	    " GROUP BY table, of_day HAVING count() = 1 AND max(level) > 0"
	    " AND max(modification_time) <= now() - %u ORDER BY table, of_day DESC LIMIT %d BY table",
	    clickhouse_database(s->client), s->settle_s, DAYS_MAX);
	return ch_ask(s, &sql, &ret->answer);
}

static void merged_days_release(struct ch_merged_days *w)
{
	buf_release(&w->answer);
}

/* The next day of the table. */
static bool next_day(struct row_reader *rows, enum ch_table table, unsigned *ret)
{
	while (row_more(rows)) {
		struct str of = row_text(rows);
		*ret = row_u16(rows);
		row_text(rows);
		row_end(rows);
		if (!rows->bad && str_eq(of, str_of(ch_table_names[table])))
			return true;
	}
	return false;
}

void ch_merged_parts(struct buf *sql, const struct ch_merged_days *w, enum ch_table table,
                     ch_merged_part_fn *part, const void *arg)
{
	struct row_reader rows = row_reader_of(&w->answer);
	unsigned day;
	part(sql, w, false, arg);
	if (!next_day(&rows, table, &day))
		return;
	buf_printf(sql, " UNION ALL ");
	part(sql, w, true, arg);
}

/* To read the others these are left out one by one: then the server skips their parts, which it does not for
 * NOT IN. */
void ch_merged_days(const struct ch_merged_days *w, enum ch_table table, bool plainly, struct buf *sql)
{
	struct row_reader rows = row_reader_of(&w->answer);
	unsigned day;
	if (!plainly) {
		while (next_day(&rows, table, &day))
			buf_printf(sql, " AND day != toDate(%u)", day);
		return;
	}
	const char *before = " AND day IN (";
	for (; next_day(&rows, table, &day); before = ", ")
		buf_printf(sql, "%stoDate(%u)", before, day);
	buf_char(sql, ')');
}

int ch_merged_ask(struct sink_clickhouse *s,
                  void (*write)(struct buf *sql, const struct ch_merged_days *w, const void *arg),
                  const void *arg, struct buf *ret_answer)
{
	for (int i = 0;; i++) {
		CLEANUP(merged_days_release) struct ch_merged_days before = {0};
		CLEANUP(merged_days_release) struct ch_merged_days after = {0};
		CLEANUP(buf_release) struct buf sql = {0};
		int r = i < TRIES_MAX ? merged_days_read(s, &before) : 0; /* at last, all with FINAL */
		write(&sql, &before, arg);
		ret_answer->len = 0;
		r = r ?: ch_ask(s, &sql, ret_answer);
		if (r < 0 || before.answer.len == 0)
			return r;
		r = merged_days_read(s, &after);
		if (r < 0 || str_eq(buf_view(&before.answer), buf_view(&after.answer)))
			return r;
	}
}
