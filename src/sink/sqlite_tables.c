/*
 * The stats file: its tables and migrations.
 *
 * One thread writes. Commits do not wait for the disk (synchronous=NORMAL). A crash of the process loses
 * nothing. Power loss may undo the last commits, together with their positions. The event log is kept until
 * `sync` has made commits durable, and is read again from those positions.
 *
 * Writing a row per visit, and a counter per link and commit, would write several pages for each. So visits
 * are written in two steps:
 *
 *	1. A commit appends its visits to the buffer (`fresh`), packed and in the order of arrival.
 *	2. When the buffer is large enough, or a minute old, compaction sorts its visits by minute and link,
 *	   appends them to `visit` in blocks of about a page, and adds them to all rollups, one write per row.
 *
 * Queries add the buffer to the rollups by scanning it: at most some hundred thousand packed visits, a few
 * milliseconds. So results are always complete. Compacting many links takes seconds, so it is done in steps
 * by rising link, each in its own transaction. `book` records the progress, and a scan of the buffer skips
 * what is compacted.
 *
 *	table       contents
 *	fresh       The buffer. A row has the visits of a commit, at most 8,192.
 *	visit       Blocks of visits. Each visit has an id, never reused; `first` is the id of the block's
 *	            first visit. The oldest blocks are dropped when their newest visit has expired.
 *	cell        The rollup: visits of one link in one minute, hour or day. `shapes` counts each dimension
 *	            set, `runs` has the ids of the visits with their minutes, which folding preserves. A visit
 *	            is in exactly one cell of its link: old minutes are folded into hours, old hours into
 *	            days. Clustered by time, as a compaction writes the cells of one or two minutes. Levels
 *	            from CELL_TOGETHER on have all links together (link 0) and orphans (link -1).
 *	day_link    Per day and link (orphans: -1): clicks, a bit for each hour with visits, which tells
 *	            readers where to look for cells, and sketches of visitors: of people in `visitors`, of
 *	            bots in `bots`. In a row from before there were two, `bots` is NULL and `visitors` has
 *	            both. Link 0 has the sketches of all links together, and no clicks.
 *	total       Clicks per link, ever. `flushed`: the link store has this number.
 *	shape       Dimension sets by id. Their number is bounded: see dimension_set.h.
 *	text        User agents, referrers, places and paths by id. Deleted when unused for as long as visits
 *	            are kept. New texts per day are bounded; further ones are not stored. The hash is keyed
 *	            with the file's secret, so that collisions cannot be prepared.
 *	impression  The impressions of one second and commit, packed: `ads` has (millisecond, ad) of each,
 *	            `details` the rest. The key is the second and a part number; when all part numbers of a
 *	            second are used, further impressions are appended to existing rows.
 *	ad_cell     Counts of each ad by second, minute, hour and day, all written by the commit. The key is
 *	            the level (top byte) and the start. A window is the sum of the largest whole buckets in
 *	            it, plus rows at both edges. Before book.kept_ms, a full hour, only hours and days are
 *	            kept.
 *	ad          Names of ads by id; ids are never reused. Their number is bounded: see ads.h. A name is
 *	            deleted when no count refers to it. When names are scarce, it is deleted when unused for
 *	            as long as rows are kept; older counts of it are then reported as "(other)".
 *	seen_*      Fingerprints of the impressions within the window: see sqlite_seen.h.
 *	position    How far each segment of the event log was read. Segments are unsigned, stored as signed.
 *	book        One row: the tallies of all consumed events, and the state of the file. Visits whose last
 *	            cell was dropped are in retired_*, with separate sums for cells of all links together and
 *	            of single links, as those are dropped at different times.
 */
#include "sink/dimension_set.h"
#include "sink/sqlite_sink.h"

static const char *const migrations[] = {
    "CREATE TABLE fresh ("
    "	id INTEGER PRIMARY KEY,"
    "	committed_ms INTEGER NOT NULL,"
    "	visits INTEGER NOT NULL," /* orphans included */
    "	orphans INTEGER NOT NULL,"
    "	keys BLOB NOT NULL,"
    "	visitors BLOB NOT NULL," /* four bytes for each visit, 0: none */
    "	details BLOB NOT NULL"
    ") STRICT;"
    "CREATE TABLE visit ("
    "	first INTEGER PRIMARY KEY,"
    "	count INTEGER NOT NULL,"
    "	newest_ms INTEGER NOT NULL,"
    "	keys BLOB NOT NULL,"
    "	details BLOB NOT NULL"
    ") STRICT;"
    "CREATE TABLE cell ("
    "	level INTEGER NOT NULL,"
    "	start INTEGER NOT NULL,"
    "	link INTEGER NOT NULL,"
    "	visits INTEGER NOT NULL,"
    "	shapes BLOB NOT NULL,"
    "	runs BLOB NOT NULL,"
    "	PRIMARY KEY (level, start, link)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE day_link ("
    "	day INTEGER NOT NULL," /* since 1970 */
    "	link INTEGER NOT NULL,"
    "	clicks INTEGER NOT NULL,"
    "	hours INTEGER NOT NULL,"
    "	visitors BLOB NOT NULL,"
    "	PRIMARY KEY (day, link)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TABLE total ("
    "	link INTEGER PRIMARY KEY,"
    "	clicks INTEGER NOT NULL,"
    "	flushed INTEGER NOT NULL"
    ") STRICT;"
    "CREATE INDEX total_unflushed ON total (link) WHERE flushed = 0;"
    "CREATE TABLE shape ("
    "	id INTEGER PRIMARY KEY,"
    "	hash INTEGER NOT NULL,"
    "	kind INTEGER NOT NULL,"
    "	referrer TEXT,"
    "	country TEXT,"
    "	browser TEXT,"
    "	os TEXT,"
    "	device TEXT,"
    "	language TEXT,"
    "	source TEXT,"
    "	bot TEXT"
    ") STRICT;"
    "CREATE INDEX shape_by_hash ON shape (hash);"
    "CREATE TABLE text ("
    "	id INTEGER PRIMARY KEY AUTOINCREMENT," /* ids of deleted texts are not reused */
    "	hash INTEGER NOT NULL,"
    "	last_day INTEGER NOT NULL,"
    "	text TEXT NOT NULL"
    ") STRICT;"
    "CREATE INDEX text_by_hash ON text (hash);"
    "CREATE TABLE impression ("
    "	at INTEGER PRIMARY KEY,"
    "	count INTEGER NOT NULL,"
    "	ads BLOB NOT NULL,"
    "	details BLOB NOT NULL"
    ") STRICT;"
    "CREATE TABLE ad (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;"
    "CREATE TABLE ad_cell (at INTEGER PRIMARY KEY, count INTEGER NOT NULL, ads BLOB NOT NULL) STRICT;"
    "CREATE TABLE seen_batch (id INTEGER PRIMARY KEY, entries BLOB NOT NULL) STRICT;"
    "CREATE TABLE seen_run ("
    "	run INTEGER PRIMARY KEY AUTOINCREMENT," /* chunks of a dropped run must not join a new one */
    "	newest_ms INTEGER NOT NULL,"
    "	filter BLOB NOT NULL"
    ") STRICT;"
    "CREATE TABLE seen_chunk (at INTEGER PRIMARY KEY, entries BLOB NOT NULL) STRICT;"
    "CREATE TABLE position (segment INTEGER PRIMARY KEY, offset INTEGER NOT NULL) STRICT;"
    "CREATE TABLE book ("
    "	id INTEGER PRIMARY KEY CHECK (id = 1),"
    "	key BLOB NOT NULL DEFAULT x'',"
    "	clicks INTEGER NOT NULL DEFAULT 0,"
    "	orphans INTEGER NOT NULL DEFAULT 0,"
    "	impressions INTEGER NOT NULL DEFAULT 0,"
    "	batch_duplicates INTEGER NOT NULL DEFAULT 0,"
    "	unusable_clicks INTEGER NOT NULL DEFAULT 0,"
    "	unusable_impressions INTEGER NOT NULL DEFAULT 0,"
    "	rejected INTEGER NOT NULL DEFAULT 0,"
    "	dropped_clicks INTEGER NOT NULL DEFAULT 0,"
    "	duplicates INTEGER NOT NULL DEFAULT 0,"
    "	serial INTEGER NOT NULL DEFAULT 0,"
    "	seals INTEGER NOT NULL DEFAULT 0,"
    "	next_visit INTEGER NOT NULL DEFAULT 1,"
    "	kept_ms INTEGER NOT NULL DEFAULT 0,"
    "	retired_clicks INTEGER NOT NULL DEFAULT 0,"
    "	retired_orphans INTEGER NOT NULL DEFAULT 0,"
    "	retired_impressions INTEGER NOT NULL DEFAULT 0,"
    "	new_day INTEGER NOT NULL DEFAULT 0,"
    "	new_shapes INTEGER NOT NULL DEFAULT 0,"
    "	new_ads INTEGER NOT NULL DEFAULT 0,"
    "	received_ms INTEGER NOT NULL DEFAULT 0"
    ") STRICT;"
    "INSERT INTO book (id) VALUES (1);",
    "ALTER TABLE book ADD COLUMN now_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE book ADD COLUMN new_texts INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE book ADD COLUMN ads INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE book ADD COLUMN last_ad INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE book ADD COLUMN retired_link_clicks INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE book ADD COLUMN digest_row INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE book ADD COLUMN digest_link INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE book ADD COLUMN digest_visits INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE book ADD COLUMN digest_orphans INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE ad ADD COLUMN last_day INTEGER NOT NULL DEFAULT 0;" /* of the newest impression */
    "UPDATE book SET ads = (SELECT count(*) FROM ad), last_ad = (SELECT coalesce(max(id), 0) FROM ad),"
    "	retired_link_clicks = retired_clicks;"
    "UPDATE ad SET last_day = coalesce((SELECT max(at) - (3 << 56) FROM ad_cell WHERE at >= 3 << 56), 0)"
    "	/ 86400000;",
    "ALTER TABLE day_link ADD COLUMN bots BLOB;",
};

/* Deletes at most ?3 rows, so that a step is short. */
#define FIRST_BELOW(table, column)                                                        \
	"DELETE FROM " table " WHERE " column " >= ?1 AND " column " < min(?2, coalesce(" \
	"(SELECT " column " FROM " table " WHERE " column " >= ?1 ORDER BY " column       \
	" LIMIT 1 OFFSET ?3), ?2))"

static const char *const sql_texts[] = {
#define STATEMENT(name, text) text,
#include "sink/sqlite_statements.h"
#undef STATEMENT
};

const struct sqlite_layout stats_file_layout = {
    .application_id = 0x63757273, /* "curs" */
    .migrations = migrations,
    .migration_count = ARRAY_LEN(migrations),
    .sql = sql_texts,
    .sql_count = SQL_COUNT,
    .writer_pragmas =
        "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16000; PRAGMA journal_size_limit = 67108864",
};

struct query db_query(struct sqlite_conn *c, unsigned sql, const int64_t *args, size_t count)
{
	struct query q = query_begin(c, sql);
	for (size_t i = 0; i < count; i++)
		query_int(&q, args[i]);
	return q;
}

int db_run(struct sqlite_conn *c, unsigned sql, const int64_t *args, size_t count)
{
	CLEANUP(query_end) struct query q = db_query(c, sql, args, count);
	return query_run(&q);
}

int db_find(struct sqlite_conn *c, unsigned sql, int64_t *ret, int ret_count, const int64_t *args,
            size_t count)
{
	CLEANUP(query_end) struct query q = db_query(c, sql, args, count);
	bool found;
	int rc = query_find(&q, &found);
	for (int i = 0; found && i < ret_count; i++)
		ret[i] = sqlite3_column_int64(q.stmt, i);
	return rc;
}

int db_pairs(struct sqlite_conn *c, unsigned sql, int64_t max, struct arena *arena, void *ret_pairs,
             size_t *ret_count)
{
	CLEANUP(buf_release) struct buf pairs = {0};
	CLEANUP(query_end) struct query q = QUERY(c, sql, max);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		int64_t pair[2] = {sqlite3_column_int64(q.stmt, 0), sqlite3_column_int64(q.stmt, 1)};
		buf_append(&pairs, pair, sizeof(pair));
	}
	if (rc != SQLITE_DONE)
		return rc;
	int64_t *kept = arena_alloc(arena, pairs.len + 1);
	if (pairs.failed || !kept)
		return SQLITE_NOMEM;
	if (pairs.len > 0)
		memcpy(kept, pairs.data, pairs.len);
	memcpy(ret_pairs, &kept, sizeof(kept));
	*ret_count = pairs.len / sizeof(int64_t[2]);
	return SQLITE_OK;
}

_Static_assert(sizeof(struct book_row) == 28 * sizeof(int64_t), "one number per column of SQL_BOOK_GET");

int book_get(struct sqlite_conn *c, struct book_row *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_BOOK_GET);
	bool found;
	int rc = query_find(&q, &found);
	if (rc != SQLITE_OK || !found)
		return rc == SQLITE_OK ? SQLITE_CORRUPT : rc;
	for (size_t i = 0; i < sizeof(*ret) / sizeof(int64_t); i++)
		((int64_t *)ret)[i] = sqlite3_column_int64(q.stmt, (int)i);
	return SQLITE_OK;
}

int db_last_id(struct sqlite_conn *c, unsigned sql, uint64_t *ret)
{
	int64_t last = 0;
	int rc = FIND(c, sql, &last, 1);
	*ret = (uint64_t)last;
	return rc;
}

int db_code(int r)
{
	switch (r) {
	case 0: return SQLITE_OK;
	case ERR_NOMEM: return SQLITE_NOMEM;
	default: ASSERT(r == ERR_CORRUPT); return SQLITE_CORRUPT;
	}
}

bool db_column_str(const struct query *q, int column, struct arena *arena, struct str *ret)
{
	*ret = STR_NULL;
	if (sqlite3_column_type(q->stmt, column) == SQLITE_NULL)
		return true;
	const char *text = (const char *)sqlite3_column_text(q->stmt, column);
	if (text)
		*ret = arena_str(arena, str_n(text, (size_t)sqlite3_column_bytes(q->stmt, column)));
	return ret->ptr != NULL;
}
