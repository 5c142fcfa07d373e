/*
 * The tables. All rows of events carry the event's id (node, segment, position) in the sorting key of a
 * ReplacingMergeTree, behind what follows from the event itself: of two rows of the same event, one stays. As
 * merging takes its time, questions read with FINAL, which does the same while reading (but for days that are
 * known to be merged: clickhouse_whole.c). A row's day follows
 * from the event, too, so both lie in the same partition.
 *
 * visit       Visits, by day of their time. `details` is 1 while the row can be listed: when a day is past
 * that, the columns from there on are cleared, and the row goes on being counted. impression  Impressions
 * that count, by day of receipt, as their own time is the client's to choose; likewise. seen        The
 * fingerprints of the same impressions. Written after them: when it is not, both are written again. note What
 * else became of events.
 *
 * Texts are plain strings: LowCardinality would halve the disk, but an INSERT takes two thirds more of the
 * CPU on 18.16, where it is an experiment.
 *
 * When a day is dropped, what it counted must not be. day_total has the sums of each round of dropping it
 * (`what` is the table), by node and item: links for visits (0: orphans), kinds for notes. day_gone says how
 * far a round is. 0: the sums are being written. 1: they count, and the day's rows do not. 2: the rows are
 * dropped; what comes for that day later is of the next round. Whoever does a step again, or at the same time
 * as another, does the same: of two sums of the same round the larger one stays.
 */
#include "sink/clickhouse_sink.h"

#include <stdio.h>
#include <stdlib.h>

/* Whoever only asks questions starts without a server that does not answer the first look soon. */
enum { LOOK_TIMEOUT_MS = 6000, MAKE_TIMEOUT_MS = 30000, VERSION_MIN = 1816 };

const char *const ch_table_names[CH_TABLES] = {
    [CH_VISIT] = "visit", [CH_IMPRESSION] = "impression", [CH_SEEN] = "seen",
    [CH_NOTE] = "note",   [CH_DAY_TOTAL] = "day_total",   [CH_DAY_DROPPED] = "day_gone",
};

#define ID "node UInt64, segment UInt64, position UInt64"

static const char *const layouts[CH_TABLES] = {
    [CH_VISIT] = "(day Date, link UInt64, time Int64, " ID ", kind UInt8, visitor UInt32,"
                 " referrer String, country String, browser String, os String, device String,"
                 " language String, source String, bot String,"
                 " details UInt8, agent String, referrer_url String, place String, path String,"
                 " address String)"
                 " ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (link, time)"
                 " ORDER BY (link, time, node, segment, position) SETTINGS index_granularity = 1024",
    [CH_IMPRESSION] = "(day Date, minute UInt32, ad String, " ID ", time Int64, received Int64,"
                      " details UInt8, fingerprint FixedString(12), id String, user String)"
                      " ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY minute"
                      " ORDER BY (minute, ad, node, segment, position) SETTINGS index_granularity = 1024",
    [CH_SEEN] = "(day Date, fingerprint FixedString(12), received Int64, " ID ")"
                " ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY fingerprint"
                " ORDER BY (fingerprint, received, node, segment, position)"
                " SETTINGS index_granularity = 256",
    [CH_NOTE] = "(day Date, " ID ", kind UInt8, time Int64, count UInt64)"
                " ENGINE = ReplacingMergeTree PARTITION BY day PRIMARY KEY (node, segment)"
                " ORDER BY (node, segment, position, kind) SETTINGS index_granularity = 8192",
    [CH_DAY_TOTAL] = "(what UInt8, item UInt64, day Date, round UInt32, node UInt64, clicks UInt64,"
                     " events UInt64) ENGINE = ReplacingMergeTree(events)"
                     " ORDER BY (what, item, day, round, node)",
    [CH_DAY_DROPPED] = "(what UInt8, day Date, round UInt32, step UInt8)"
                       " ENGINE = ReplacingMergeTree(step) ORDER BY (what, day, round)",
};

/* Settings that make things faster or possible where the server has them, and are not needed where not. */
static const struct {
	const char *name, *value;
	bool select, insert, alter;
} wishes[] = {
    {"do_not_merge_across_partitions_select_final", "1", .select = true},
    {"max_partitions_per_insert_block", "0", .insert = true},
    {"async_insert", "0", .insert = true},
    {"mutations_sync", "1", .alter = true},
};

/* What there is on the server. */
struct found {
	unsigned version; /* 1816 for 18.16 */
	bool database;
	bool tables[CH_TABLES];
};

static void setting_add(char settings[CH_SETTINGS_BYTES], const char *name, const char *value)
{
	size_t len = strlen(settings);
	int more = snprintf(settings + len, CH_SETTINGS_BYTES - len, "%s%s=%s", len ? "&" : "", name, value);
	ASSERT(more > 0 && len + (size_t)more < CH_SETTINGS_BYTES);
}

static void found_add(struct sink_clickhouse *s, struct found *f, struct str what, struct str name)
{
	if (str_eq(what, STR("version"))) {
		struct str text = name;
		uint64_t major = 0, minor = 0;
		if (str_u64(str_cut(&text, '.'), &major) && str_u64(str_cut(&text, '.'), &minor))
			f->version = (unsigned)(MIN(major, 1000) * 100 + MIN(minor, 99));
	} else if (str_eq(what, STR("setting"))) {
		for (size_t i = 0; i < ARRAY_LEN(wishes); i++) {
			if (!str_eq(name, str_of(wishes[i].name)))
				continue;
			if (wishes[i].select)
				setting_add(s->select_settings, wishes[i].name, wishes[i].value);
			if (wishes[i].insert)
				setting_add(s->insert_settings, wishes[i].name, wishes[i].value);
			if (wishes[i].alter)
				setting_add(s->alter_settings, wishes[i].name, wishes[i].value);
		}
	} else if (str_eq(what, STR("table"))) {
		for (size_t i = 0; i < CH_TABLES; i++)
			f->tables[i] |= str_eq(name, str_of(ch_table_names[i]));
	} else {
		f->database = true;
	}
}

static int look(struct sink_clickhouse *s, struct found *ret, struct err *e)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	buf_printf(&sql,
	           "SELECT 'version', version(), toUInt8(0)"
	           " UNION ALL SELECT 'database', name, toUInt8(0) FROM system.databases WHERE name = '%s'"
	           " UNION ALL SELECT 'table', name, toUInt8(0) FROM system.tables WHERE database = '%s'"
	           " UNION ALL SELECT 'setting', name, toUInt8(0) FROM system.settings WHERE name IN (",
	           clickhouse_database(s->client), clickhouse_database(s->client));
	for (size_t i = 0; i < ARRAY_LEN(wishes); i++)
		buf_printf(&sql, "%s'%s'", i ? ", " : "", wishes[i].name);
	buf_printf(&sql, ") FORMAT RowBinary");
	struct clickhouse_call call = {
	    .sql = buf_view(&sql), .timeout_ms = LOOK_TIMEOUT_MS, .without_database = true, .is_quiet = true};
	int r = sql.failed ? err_set(e, ERR_NOMEM, "memory ran out")
	                   : clickhouse_run(s->client, &call, &answer, e);
	if (r < 0)
		return r;
	struct row_reader rows = row_reader_of(&answer);
	while (row_more(&rows)) {
		struct str what = row_text(&rows), name = row_text(&rows);
		row_end(&rows);
		if (!rows.bad)
			found_add(s, ret, what, name);
	}
	if (rows.bad || ret->version == 0)
		return err_set(e, ERR_INVALID, "what listens at %s is no ClickHouse that curt knows",
		               clickhouse_address(s->client));
	if (ret->version < VERSION_MIN)
		return err_set(e, ERR_INVALID, "ClickHouse at %s is older than 18.16: curt needs a newer one",
		               clickhouse_address(s->client));
	return 0;
}

static int make(struct sink_clickhouse *s, bool without_database, struct err *e, const char *fmt,
                const char *name, const char *layout)
{
	CLEANUP(buf_release) struct buf sql = {0};
	buf_printf(&sql, "%s %s%s", fmt, name, layout);
	struct clickhouse_call call = {.sql = buf_view(&sql),
	                               .timeout_ms = MAKE_TIMEOUT_MS,
	                               .without_database = without_database,
	                               .is_quiet = true};
	return sql.failed ? err_set(e, ERR_NOMEM, "memory ran out")
	                  : clickhouse_run(s->client, &call, NULL, e);
}

int ch_tables_open(struct sink_clickhouse *s, struct err *e)
{
	struct found found = {0};
	setting_add(s->select_settings, "max_execution_time", "25");
	setting_add(s->select_settings, "max_query_size", "4194304");
	setting_add(s->insert_settings, "max_insert_block_size", "2097152"); /* a commit is one block */
	int r = look(s, &found, e);
	if (r == 0 && !found.database)
		r = make(s, true, e, "CREATE DATABASE IF NOT EXISTS", clickhouse_database(s->client), "");
	for (size_t i = 0; r == 0 && i < CH_TABLES; i++)
		if (!found.tables[i])
			r = make(s, false, e, "CREATE TABLE IF NOT EXISTS", ch_table_names[i], layouts[i]);
	return r;
}
