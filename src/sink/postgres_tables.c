/*
 * The tables. They are created and changed in steps, like those of the link store. stats_layout has the
 * number of steps done. A released step never changes. All missing steps run in one transaction.
 *
 *	stats_visit       Single visits with their texts, by day of the visit. `number` rises in the order of
 *	                  recording.
 *	stats_impression  Single impressions that count, by day of receipt.
 *	stats_cell        The rollup: visits per link, dimension set, and minute, hour or day. A visit is in
 *	                  exactly one cell of its link: old minutes are folded into hours, old hours into
 *	                  days. Link 0 is all links together, -1 orphans.
 *	stats_day         Clicks and two sketches of visitors per link and day: people in `visitors`, bots in
 *	                  `bots`. In a row from before there were two, `bots` is NULL and `visitors` has both.
 *	                  Link 0 has the sketches of all links.
 *	stats_total       Clicks per link, ever.
 *	stats_shape       Dimension sets by id. Their number is bounded (dimension_set.h).
 *	stats_ad          Names of ads by id. Their number is bounded (ads.h).
 *	stats_ad_cell     Counts per ad by second, minute, hour and day. Before stats_clock.kept_ms there are
 *	                  only hours and days.
 *	stats_seen        Fingerprints of the impressions counted within the window: the last time of receipt,
 *	                  and earlier ones.
 *	stats_position    How far each stream was read.
 *	stats_book        Tallies of the events consumed from each node, ever.
 *	stats_names       One row: how many names exist, and how many are new today. Locked by the process
 *	                  that assigns ids.
 *	stats_clock       One row: the time of the last commit, of the newest impression, and kept_ms.
 *	stats_retired     One row: visits and impressions whose last rollup was dropped.
 *
 * stats_visit and stats_impression are partitioned by day, and whole days are dropped. TimescaleDB does that
 * where the database has it. Otherwise partitions NAME_YYYYMMDD are created ahead, and when needed for days
 * close to the present. Rows of other days (a wrong clock, a log read late) go to NAME_rest and are deleted
 * one by one.
 *
 * Unsigned numbers are stored as signed.
 */
#include "sink/postgres_sink.h"

#include <stdio.h>
#include <time.h>

static const char *const steps[] = {
    "CREATE TABLE stats_position (source bigint, stream bigint, position bigint NOT NULL,"
    "	PRIMARY KEY (source, stream));"
    "CREATE TABLE stats_clock (id int PRIMARY KEY, now_ms bigint NOT NULL, received_ms bigint NOT NULL,"
    "	kept_ms bigint NOT NULL);"
    "INSERT INTO stats_clock VALUES (1, 0, 0, 0);"
    "CREATE TABLE stats_names (id int PRIMARY KEY, day bigint NOT NULL, new_shapes bigint NOT NULL,"
    "	new_ads bigint NOT NULL, last_shape bigint NOT NULL, last_ad bigint NOT NULL, ads bigint NOT NULL);"
    "INSERT INTO stats_names VALUES (1, 0, 0, 0, 0, 0, 0);"
    "CREATE TABLE stats_retired (id int PRIMARY KEY, clicks bigint NOT NULL, orphans bigint NOT NULL,"
    "	impressions bigint NOT NULL, link_clicks bigint NOT NULL);"
    "INSERT INTO stats_retired VALUES (1, 0, 0, 0, 0);"
    "CREATE TABLE stats_book ("
    "	node bigint PRIMARY KEY,"
    "	clicks bigint NOT NULL,"
    "	orphans bigint NOT NULL,"
    "	impressions bigint NOT NULL,"
    "	batch_duplicates bigint NOT NULL,"
    "	unusable_clicks bigint NOT NULL,"
    "	unusable_impressions bigint NOT NULL,"
    "	rejected bigint NOT NULL,"
    "	dropped_clicks bigint NOT NULL,"
    "	duplicates bigint NOT NULL,"      /* found by the sink */
    "	counted_clicks bigint NOT NULL,"  /* added to rollups */
    "	counted_orphans bigint NOT NULL," /* likewise */
    "	counted_impressions bigint NOT NULL"
    ");"
    "CREATE TABLE stats_shape ("
    "	id int PRIMARY KEY,"
    "	hash bigint NOT NULL,"
    "	kind int NOT NULL," /* 0 click, 1 HEAD, 2 prefetch, 3 unknown key, 4 root */
    "	referrer bytea, country bytea, browser bytea, os bytea, device bytea, language bytea, source bytea,"
    "	bot bytea"
    ");"
    "CREATE INDEX stats_shape_by_hash ON stats_shape (hash);"
    "CREATE TABLE stats_ad (id int PRIMARY KEY, name bytea NOT NULL UNIQUE, last_day bigint NOT NULL);"
    "CREATE TABLE stats_cell ("
    "	link bigint NOT NULL,"
    "	start_ms bigint NOT NULL,"
    "	count bigint NOT NULL,"
    "	level int NOT NULL," /* 0 minute, 1 hour, 2 day */
    "	shape int NOT NULL,"
    "	PRIMARY KEY (link, level, start_ms, shape)"
    ") WITH (fillfactor = 80);"
    "CREATE INDEX stats_cell_by_time ON stats_cell (level, start_ms);"
    "CREATE TABLE stats_day ("
    "	link bigint NOT NULL,"
    "	day bigint NOT NULL," /* since 1970 */
    "	clicks bigint NOT NULL,"
    "	visitors bytea NOT NULL,"
    "	PRIMARY KEY (link, day)"
    ") WITH (fillfactor = 70);"
    "CREATE INDEX stats_day_by_day ON stats_day (day);"
    "CREATE TABLE stats_total (link bigint PRIMARY KEY, clicks bigint NOT NULL, flushed bool NOT NULL)"
    "	WITH (fillfactor = 80);"
    "CREATE INDEX stats_total_unflushed ON stats_total (link) WHERE NOT flushed;"
    "CREATE TABLE stats_ad_cell ("
    "	start_ms bigint NOT NULL,"
    "	count bigint NOT NULL,"
    "	level int NOT NULL," /* 0 second, 1 minute, 2 hour, 3 day */
    "	ad int NOT NULL,"
    "	PRIMARY KEY (level, start_ms, ad)"
    ") WITH (fillfactor = 80);"
    "CREATE TABLE stats_seen (fingerprint bytea PRIMARY KEY, received_ms bigint NOT NULL, before_ms "
    "bigint[]);"
    "CREATE INDEX stats_seen_by_time ON stats_seen (received_ms);"
    "CREATE SEQUENCE stats_batch;",
    "ALTER TABLE stats_day ADD COLUMN bots bytea;",
};

/* The partitioned tables are created with the first step. */
#define VISIT_COLUMNS                                                                  \
	"(time_ms bigint NOT NULL, link bigint NOT NULL, number bigint NOT NULL,"      \
	" recorded_ms bigint NOT NULL, node bigint NOT NULL, segment bigint NOT NULL," \
	" position bigint NOT NULL, shape int NOT NULL,"                               \
	" agent bytea, referrer bytea, place bytea, path bytea, address bytea)"
#define IMPRESSION_COLUMNS                                                             \
	"(received_ms bigint NOT NULL, time_ms bigint NOT NULL, node bigint NOT NULL," \
	" segment bigint NOT NULL, position bigint NOT NULL, ad int NOT NULL,"         \
	" fingerprint bytea NOT NULL, id bytea NOT NULL, user_id bytea NOT NULL)"
#define ROW_INDEXES                                                                          \
	"CREATE INDEX stats_visit_by_link ON stats_visit (link, (time_ms / 60000), number);" \
	"CREATE INDEX stats_visit_by_time ON stats_visit (time_ms);"                         \
	"CREATE INDEX stats_impression_by_time ON stats_impression (time_ms);"

static const char *const rows_partitioned =
    "CREATE TABLE stats_visit " VISIT_COLUMNS " PARTITION BY RANGE (time_ms);"
    "CREATE TABLE stats_visit_rest PARTITION OF stats_visit DEFAULT;"
    "CREATE TABLE stats_impression " IMPRESSION_COLUMNS " PARTITION BY RANGE (received_ms);"
    "CREATE TABLE stats_impression_rest PARTITION OF stats_impression DEFAULT;" ROW_INDEXES;

/* %s is the schema of the extension, twice. */
static const char *const rows_hyper =
    "CREATE TABLE stats_visit " VISIT_COLUMNS ";"
    "SELECT %s.create_hypertable('stats_visit', 'time_ms', chunk_time_interval => 86400000::bigint,"
    " create_default_indexes => false);"
    "CREATE TABLE stats_impression " IMPRESSION_COLUMNS ";"
    "SELECT %s.create_hypertable('stats_impression', 'received_ms', chunk_time_interval => 86400000::bigint,"
    " create_default_indexes => false);" ROW_INDEXES;

/* Serialises processes that start at once, or create the same day. The number is "curS". */
static const char *const lock_sql =
    "SELECT pg_advisory_xact_lock(1668641363, oid::int) FROM pg_namespace WHERE nspname = current_schema()";

static const char *const layout_table_sql = "CREATE TABLE IF NOT EXISTS stats_layout (id int PRIMARY KEY, "
                                            "version bigint NOT NULL, key bytea NOT NULL)";

static const struct pg_statement layout_get = {
    "sink_layout", "SELECT version, key, (SELECT relkind <> 'p' FROM pg_class WHERE oid ="
                   " to_regclass('stats_visit')) FROM stats_layout WHERE id = 1"};
static const struct pg_statement layout_put = {
    "sink_layout_put", "INSERT INTO stats_layout (id, version, key) VALUES (1, $1::bigint, $2)"
                       " ON CONFLICT (id) DO UPDATE SET version = excluded.version"};
static const struct pg_statement timescale_get = {
    "sink_timescale", "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid ="
                      " e.extnamespace WHERE e.extname = 'timescaledb'"};

enum { LAYOUT_TIMEOUT_MS = 60 * 1000 };

enum { SCHEMA_BYTES = 2 * 63 + 3, SQL_BYTES = 4096 }; /* a name of 63 quotes, quoted */

/* The schema of TimescaleDB; "": it is not installed. */
static int timescale_find(struct pg_conn *c, char ret[SCHEMA_BYTES], struct err *e)
{
	struct pg_result result;
	struct pg_query q = pg_query(c, &timescale_get);
	int r = pg_ask(&q, &result, e);
	if (r != 0)
		return r;
	struct str schema = result.rows > 0 ? pg_get_text(&result, 0, 0) : STR("");
	snprintf(ret, SCHEMA_BYTES, "%.*s", STR_ARG(schema));
	pg_result_end(&result);
	return 0;
}

/* *ret_version: 0 if there are no tables. */
static int layout_read(struct pg_conn *c, int64_t *ret_version, struct postgres_layout *ret, struct err *e)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query q = pg_query(c, &layout_get);
	int r = pg_ask(&q, &result, e);
	*ret_version = 0;
	if (r != 0 || result.rows == 0)
		return r;
	struct str key = pg_get_text(&result, 0, 1);
	if (key.len != SINK_KEY_BYTES)
		return err_set(e, ERR_CORRUPT,
		               "the key in table stats_layout has %zu bytes instead of %d; restore the table",
		               key.len, SINK_KEY_BYTES);
	memcpy(ret->key, key.ptr, SINK_KEY_BYTES);
	*ret_version = pg_get_int(&result, 0, 0);
	ret->is_hyper = pg_get_int(&result, 0, 2);
	return 0;
}

static int rows_make(struct pg_conn *c, struct err *e)
{
	char schema[SCHEMA_BYTES], sql[SQL_BYTES];
	int r = timescale_find(c, schema, e);
	if (r != 0)
		return r;
	if (!schema[0])
		return pg_run(c, rows_partitioned, e);
	snprintf(sql, sizeof(sql), rows_hyper, schema, schema);
	return pg_run(c, sql, e);
}

static int steps_run(struct pg_conn *c, int64_t done, struct err *e)
{
	int r = done == 0 ? rows_make(c, e) : 0;
	for (size_t i = (size_t)done; r == 0 && i < ARRAY_LEN(steps); i++)
		r = pg_run(c, steps[i], e);
	if (r != 0)
		return r;
	uint8_t key[SINK_KEY_BYTES];
	randombytes_buf(key, sizeof(key));
	struct pg_query q = pg_query(c, &layout_put);
	pg_int(&q, ARRAY_LEN(steps));
	pg_bytes(&q, key, sizeof(key));
	return postgres_exec(&q, e);
}

static int layout_grow(struct pg_conn *c, struct postgres_layout *ret, struct err *e)
{
	int64_t done;
	int r = layout_read(c, &done, ret, e);
	if (r != 0)
		return r;
	if (done > (int64_t)ARRAY_LEN(steps))
		return err_set(
		    e, ERR_INVALID,
		    "the tables of statistics have layout %lld, and this version of curt knows %zu; "
		    "run the newer version, or name another database in sink.url",
		    (long long)done, ARRAY_LEN(steps));
	if (done == (int64_t)ARRAY_LEN(steps))
		return 0;
	return steps_run(c, done, e) ?: layout_read(c, &done, ret, e);
}

static int hyper_prepare(struct pg_conn *c, struct postgres_layout *l, struct err *e)
{
	char schema[SCHEMA_BYTES];
	int r = l->is_hyper ? timescale_find(c, schema, e) : 0;
	if (r != 0 || !l->is_hyper)
		return r;
	if (!schema[0])
		return err_set(
		    e, ERR_INVALID,
		    "the table stats_visit needs the extension timescaledb, which is not installed any "
		    "more; create the extension, or name another database in sink.url");
	snprintf(l->chunks_drop_sql, sizeof(l->chunks_drop_sql),
	         "SELECT count(*) FROM %s.drop_chunks(convert_from($1::bytea, 'UTF8')::regclass,"
	         " older_than => $2::bigint)",
	         schema);
	l->chunks_drop = (struct pg_statement){"sink_chunks_drop", l->chunks_drop_sql};
	return 0;
}

int postgres_tables_make(struct pg_conn *c, struct postgres_layout *ret, struct err *e)
{
	int r = pg_timeout(c, LAYOUT_TIMEOUT_MS, e) ?: pg_run(c, "BEGIN", e);
	if (r != 0)
		return r;
	r = pg_run(c, lock_sql, e)
	    ?: pg_run(c, layout_table_sql, e)
	    ?: layout_grow(c, ret, e)
	    ?: hyper_prepare(c, ret, e);
	return postgres_txn_end(c, r, e);
}

/* --- days --- */

static const struct {
	const char *name, *column;
} row_tables[ROW_TABLES] = {
    [ROWS_VISITS] = {"stats_visit", "time_ms"},
    [ROWS_IMPRESSIONS] = {"stats_impression", "received_ms"},
};

enum { PARTITION_BYTES = 40 };

static void partition_name(enum row_table table, int64_t day, char out[PARTITION_BYTES])
{
	time_t seconds = (time_t)(day * DAY_MS / SECOND_MS);
	struct tm date;
	gmtime_r(&seconds, &date);
	int year = date.tm_year + 1900;
	snprintf(out, PARTITION_BYTES, "%s_%04d%02d%02d", row_tables[table].name, year, date.tm_mon + 1,
	         date.tm_mday);
}

/* Other statements queue up behind this lock request, so it must not wait long. */
static const char *const brief_sql = "SET LOCAL lock_timeout = 1000";

/* Not with to_regclass, which may have cached that there is none. */
static const struct pg_statement table_exists = {
    "sink_table_exists", "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE"
                         " n.nspname = current_schema() AND c.relname = convert_from($1::bytea, 'UTF8')"};

static int partition_exists(struct pg_conn *c, const char *name, bool *ret, struct err *e)
{
	int64_t count = 0;
	struct pg_query q = pg_query(c, &table_exists);
	pg_text(&q, str_of(name));
	int r = postgres_find(&q, &count, 1, e);
	*ret = count > 0;
	return r;
}

int postgres_day_make(struct pg_conn *c, const struct postgres_layout *l, enum row_table table, int64_t day,
                      struct err *e)
{
	char name[PARTITION_BYTES];
	bool exists = false;
	if (l->is_hyper)
		return 0;
	partition_name(table, day, name);
	int r = partition_exists(c, name, &exists, e);
	if (r != 0 || exists)
		return r;
	r = pg_run(c, "BEGIN", e);
	if (r != 0)
		return r;
	r = pg_run(c, lock_sql, e) ?: pg_run(c, brief_sql, e) ?: partition_exists(c, name, &exists, e);
	if (r == 0 && !exists) {
		char sql[SQL_BYTES];
		const char *parent = row_tables[table].name, *column = row_tables[table].column;
		long long from_ms = day * DAY_MS, to_ms = from_ms + DAY_MS;
		snprintf(sql, sizeof(sql),
		         "CREATE TABLE %s (LIKE %s);"
		         "WITH moved AS (DELETE FROM %s_rest WHERE %s >= %lld AND %s < %lld RETURNING *)"
		         " INSERT INTO %s SELECT * FROM moved;"
		         "ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%lld) TO (%lld)",
		         name, parent, parent, column, from_ms, column, to_ms, name, parent, name, from_ms,
		         to_ms);
		r = pg_run(c, sql, e);
	}
	return postgres_txn_end(c, r, e);
}

/* Names have one length, so they sort like their days. */
static const struct pg_statement partition_oldest = {
    "sink_partition_oldest",
    "SELECT convert_to(min(p.relname)::text, 'UTF8') FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhrelid"
    " WHERE i.inhparent = to_regclass(convert_from($1::bytea, 'UTF8')) AND p.relname ~ '_[0-9]{8}$'"
    " AND p.relname < convert_from($2::bytea, 'UTF8')"};

int postgres_day_drop(struct pg_conn *c, const struct postgres_layout *l, enum row_table table,
                      int64_t before_ms, bool *ret_did, struct err *e)
{
	*ret_did = false;
	if (l->is_hyper) {
		int64_t dropped = 0;
		struct pg_query drop = pg_query(c, &l->chunks_drop);
		pg_text(&drop, str_of(row_tables[table].name));
		pg_int(&drop, before_ms);
		int r = postgres_find(&drop, &dropped, 1, e);
		*ret_did = dropped > 0;
		return r;
	}
	char bound[PARTITION_BYTES], sql[SQL_BYTES];
	partition_name(table, day_of(before_ms), bound);
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query q = pg_query(c, &partition_oldest);
	pg_text(&q, str_of(row_tables[table].name));
	pg_text(&q, str_of(bound));
	int r = pg_ask(&q, &result, e);
	if (r != 0)
		return r;
	struct str name = pg_get_text(&result, 0, 0);
	*ret_did = name.ptr != NULL;
	snprintf(sql, sizeof(sql), "SET LOCAL lock_timeout = 1000; DROP TABLE %.*s", STR_ARG(name));
	return *ret_did ? pg_run(c, sql, e) : 0;
}
