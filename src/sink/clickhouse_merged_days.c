/*
 * Days that are read without FINAL. A partition that consists of one merged part has each event once. Reading
 * it without FINAL gives the same result several times as fast. Retention merges past days without recent
 * inserts (clickhouse_retention.c). All other days are read with FINAL.
 *
 * A late or repeated event may add a part at any time. So a query reads the names of the parts before and
 * after. If they are equal, no part was added in between, since merging parts gives a new name.
 */
#include "sink/clickhouse_sink.h"

enum {
	TRIES_MAX = 3,
	DAYS_MAX = 800, /* per table: a statement has at most 50,000 elements */
};

static int merged_days_read(struct sink_clickhouse *s, struct buf *ret)
{
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(
	    &sql,
	    "SELECT table, toUInt16(toDate(partition)) AS of_day, any(name), toUInt8(0) FROM"
	    " system.parts WHERE active AND database = '%s' AND table IN ('visit', 'impression', 'note')"
	    " GROUP BY table, of_day HAVING count() = 1 AND max(level) > 0"
	    " AND max(modification_time) <= now() - %u ORDER BY table, of_day DESC LIMIT %d BY table",
	    clickhouse_database(s->client), s->quiet_s, DAYS_MAX);
	return ch_select(s, &sql, ret);
}

/* The next merged day of the table. */
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

/* Excludes merged days one by one: so the server skips their parts, which it does not do for NOT IN. */
void ch_merged_days(const struct ch_merged_days *w, enum ch_table table, bool no_final, struct buf *sql)
{
	struct row_reader rows = row_reader_of(&w->answer);
	unsigned day;
	if (!no_final) {
		while (next_day(&rows, table, &day))
			buf_printf(sql, " AND day != toDate(%u)", day);
		return;
	}
	const char *before = " AND day IN (";
	for (; next_day(&rows, table, &day); before = ", ")
		buf_printf(sql, "%stoDate(%u)", before, day);
	buf_char(sql, ')');
}

int ch_merged_select(struct sink_clickhouse *s,
                     void (*write)(struct buf *sql, const struct ch_merged_days *w, const void *arg),
                     const void *arg, struct buf *ret_answer)
{
	for (int i = 0;; i++) {
		CLEANUP(buf_release) struct buf before = {0}, after = {0}, sql = {0};
		int r = i < TRIES_MAX ? merged_days_read(s, &before) : 0; /* the last attempt is all FINAL */
		const struct ch_merged_days merged = {before};
		write(&sql, &merged, arg);
		ret_answer->len = 0;
		r = r ?: ch_select(s, &sql, ret_answer);
		if (r < 0 || before.len == 0)
			return r;
		r = merged_days_read(s, &after);
		if (r < 0 || str_eq(buf_view(&before), buf_view(&after)))
			return r;
	}
}
