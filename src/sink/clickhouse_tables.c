/*
 * The tables. Every row of an event has the event's id (node, segment, position) in the sorting key of a
 * ReplacingMergeTree, after values that follow from the event itself: of two rows of one event, one stays.
 * The row's day follows from the event too, so both are in the same partition. As merges take time, queries
 * read with FINAL, which does the same while reading, except for merged days (clickhouse_merged_days.c).
 *
 *	table       rows                                                    partition
 *	visit       Visits. `details` is 1 while the visit can be listed;   day of the visit
 *	            later its columns from there on are cleared, and the
 *	            row is only counted.
 *	impression  Impressions that count; `details` likewise.             day of receipt: clients choose
 *	                                                                    an impression's own time
 *	seen        The fingerprints of the same impressions.               day of receipt
 *	note        What else happened to events (struct sink_note).        day of the note
 *	day_total   Sums of dropped days, by round, node and item: the      none
 *	            link for visits (0: orphans), the kind for notes.
 *	day_gone    The step of each round of dropping a day.               none
 *
 * A commit inserts `seen` before `impression` (clickhouse_intake.c). If it fails in between, a fingerprint is
 * stored whose impression does not count yet. That is safe: the fingerprint is stored with its event's id, so
 * when the same event is read again it is a replay, not a duplicate, and is committed. The other order would
 * be wrong: an impression could count while nothing prevents its duplicate from counting too.
 *
 * Texts are plain strings: LowCardinality would halve the disk usage, but inserts take two thirds more CPU on
 * 18.16, where it is experimental.
 *
 * The counts of a dropped day must survive. Dropping it is a round with three steps (`what` is the table):
 *
 *	0  its sums are being written, and do not count yet
 *	1  the sums count, the day's rows do not
 *	2  the rows are dropped; rows that arrive later belong to the next round
 *
 * A step may be repeated, also by several workers at once: of two sums of one round, the larger stays.
 */
#include "sink/clickhouse_sink.h"

#include <stdio.h>
#include <stdlib.h>

/* LOOK: processes that only query start without a server that does not answer soon. */
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

/* Settings that are used if the server has them. */
static const struct {
	const char *name, *value;
	bool select, insert, alter;
} optional_settings[] = {
    {"do_not_merge_across_partitions_select_final", "1", .select = true},
    {"max_partitions_per_insert_block", "0", .insert = true},
    {"async_insert", "0", .insert = true},
    {"mutations_sync", "1", .alter = true},
};

/* What exists on the server. */
struct server_state {
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

static void state_add(struct sink_clickhouse *s, struct server_state *f, struct str what, struct str name)
{
	if (str_eq(what, STR("version"))) {
		struct str text = name;
		uint64_t major = 0, minor = 0;
		if (str_u64(str_cut(&text, '.'), &major) && str_u64(str_cut(&text, '.'), &minor))
			f->version = (unsigned)(MIN(major, 1000) * 100 + MIN(minor, 99));
	} else if (str_eq(what, STR("setting"))) {
		for (size_t i = 0; i < ARRAY_LEN(optional_settings); i++) {
			if (!str_eq(name, str_of(optional_settings[i].name)))
				continue;
			if (optional_settings[i].select)
				setting_add(s->select_settings, optional_settings[i].name,
				            optional_settings[i].value);
			if (optional_settings[i].insert)
				setting_add(s->insert_settings, optional_settings[i].name,
				            optional_settings[i].value);
			if (optional_settings[i].alter)
				setting_add(s->alter_settings, optional_settings[i].name,
				            optional_settings[i].value);
		}
	} else if (str_eq(what, STR("table"))) {
		for (size_t i = 0; i < CH_TABLES; i++)
			f->tables[i] |= str_eq(name, str_of(ch_table_names[i]));
	} else {
		f->database = true;
	}
}

static int server_read(struct sink_clickhouse *s, struct server_state *ret, struct err *e)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	buf_printf(&sql,
	           "SELECT 'version', version(), toUInt8(0)"
	           " UNION ALL SELECT 'database', name, toUInt8(0) FROM system.databases WHERE name = '%s'"
	           " UNION ALL SELECT 'table', name, toUInt8(0) FROM system.tables WHERE database = '%s'"
	           " UNION ALL SELECT 'setting', name, toUInt8(0) FROM system.settings WHERE name IN (",
	           clickhouse_database(s->client), clickhouse_database(s->client));
	for (size_t i = 0; i < ARRAY_LEN(optional_settings); i++)
		buf_printf(&sql, "%s'%s'", i ? ", " : "", optional_settings[i].name);
	buf_printf(&sql, ") FORMAT RowBinary");
	struct clickhouse_call call = {
	    .sql = buf_view(&sql), .timeout_ms = LOOK_TIMEOUT_MS, .without_database = true, .is_quiet = true};
	int r = sql.failed ? err_set(e, ERR_NOMEM, "out of memory")
	                   : clickhouse_run(s->client, &call, &answer, e);
	if (r < 0)
		return r;
	struct row_reader rows = row_reader_of(&answer);
	while (row_more(&rows)) {
		struct str what = row_text(&rows), name = row_text(&rows);
		row_end(&rows);
		if (!rows.bad)
			state_add(s, ret, what, name);
	}
	if (rows.bad || ret->version == 0)
		return err_set(
		    e, ERR_INVALID,
		    "sink.url: the server at %s does not answer like ClickHouse; check the address and "
		    "the port (HTTP)",
		    clickhouse_address(s->client));
	if (ret->version < VERSION_MIN)
		return err_set(e, ERR_INVALID,
		               "sink.url: ClickHouse at %s has version %u.%u; upgrade it to 18.16 or later",
		               clickhouse_address(s->client), ret->version / 100, ret->version % 100);
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
	return sql.failed ? err_set(e, ERR_NOMEM, "out of memory")
	                  : clickhouse_run(s->client, &call, NULL, e);
}

int ch_tables_open(struct sink_clickhouse *s, struct err *e)
{
	struct server_state state = {0};
	setting_add(s->select_settings, "max_execution_time", "25");
	setting_add(s->select_settings, "max_query_size", "4194304");
	setting_add(s->insert_settings, "max_insert_block_size", "2097152"); /* a commit is one block */
	int r = server_read(s, &state, e);
	if (r == 0 && !state.database)
		r = make(s, true, e, "CREATE DATABASE IF NOT EXISTS", clickhouse_database(s->client), "");
	for (size_t i = 0; r == 0 && i < CH_TABLES; i++)
		if (!state.tables[i])
			r = make(s, false, e, "CREATE TABLE IF NOT EXISTS", ch_table_names[i], layouts[i]);
	return r;
}
