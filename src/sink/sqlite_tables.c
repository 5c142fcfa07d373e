/*
 * The stats file.
 *
 * One thread writes it. Commits do not wait for the disk (synchronous=NORMAL): a crash of the process loses
 * nothing; after power loss the last commits may be undone, whole ones, and the positions with them, so the
 * event log, which is kept until `settle` has moved everything into the file, is simply read again from
 * there.
 *
 * Writing a row per visit and a counter per link and commit would cost a page here and a page there for each
 * of them. So visits come in two steps. A commit only appends its visits to `fresh`, packed, in the order in
 * which they came. When enough have gathered there (or a minute has passed), they are digested: sorted by
 * minute and link, appended to `visit` in blocks of about a page, and counted in everything that is kept per
 * link, each row once for all of them. A question adds what is still fresh by looking through it: at most
 * some hundred thousand packed visits, a few milliseconds. So answers are always whole. As a digest of many
 * links takes seconds, it is done in pieces, by rising link, each a transaction of its own; the book says how
 * far it has come, and what is digested is left out when what is fresh is looked through.
 *
 * visit     Blocks of visits. Each visit has a number; a block begins with number `first`. Numbers never
 *           come again. The oldest blocks go when their newest visit is past its time.
 * cell      The rollup: visits of one link in one minute, hour or day, how many of each shape (`shapes`), and
 *           where their rows are (`runs`, each with its minute, so that nothing is lost by folding). A visit
 *           is in exactly one cell of its link at any time: old minutes are added to hours, old hours to
 *           days. Clustered by time, as a digest writes the cells of one or two minutes. A second set, level
 *           + CELL_TOGETHER, has all links together (link 0) and orphans (link -1).
 * day_link  What is known per day and link (orphans: -1): clicks, a bit for each hour with visits, so that a
 *           reader knows where to look for cells, and the sketch of its visitors. Link 0 has the sketch of
 *           all links together, and no clicks.
 * total     Clicks per link, ever; `flushed` when the link store has that number.
 * shape     What is rolled up about a visit, numbered. Visitors choose most of it, so a day brings a bounded
 *           number of new shapes, and all days together too; towards the bound more and more of a new one
 *           becomes "(other)".
 * text      Agents, referrers, places, paths: numbered; gone when unused for as long as visits are kept. A
 *           day brings a bounded number of new ones; beyond it they are not kept. The hash is keyed with a
 *           secret of this file, so that nobody can prepare collisions.
 *
 * impression  The impressions of one second and commit, packed: `ads` has (millisecond, ad) of each,
 * `details` the rest. The key is the second and a number within it; when a second has no more numbers, what
 * comes is added to its rows. ad_cell   Counts of each ad by second, minute, hour and day, all written by the
 * commit. The key is the level (top byte) and the start. A window is the sum of the largest whole buckets in
 * it, and of rows at the two edges. Before `book.kept_ms`, which moves by whole hours, only hours and days
 * are kept.
 *
 * ad        Names, numbered; numbers never come again. Anybody can make them up, so there are at most 50,000,
 *           and 10,000 new ones a day; beyond it, impressions of an ad without a number count as "(other)".
 *           A name goes when nothing counts it any more. When names run short it goes when it was not used
 *           for as long as rows are kept; what older hours and days count of it then reads "(other)".
 *
 * seen_*    Fingerprints of the impressions within the window; see seen.h.
 * position  How far each segment of the event log was read. Segments are unsigned and stored as if signed.
 * book      One row: what was consumed, ever, and the file's few numbers. Visits whose last cell was dropped
 *           have retired: there is one sum for the cells of all links together, and one for those of single
 *           links, as the two go at different times.
 */
#include "sink/dimension_set.h"
#include "sink/sqlite_sink.h"

static const char *const migrations[] = {
    "CREATE TABLE fresh ("
    "	id INTEGER PRIMARY KEY,"
    "	committed_ms INTEGER NOT NULL,"
    "	visits INTEGER NOT NULL," /* both together */
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
    "	id INTEGER PRIMARY KEY AUTOINCREMENT," /* a number that was swept must not mean another text */
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
    "	run INTEGER PRIMARY KEY AUTOINCREMENT," /* chunks of a dropped run must not be taken for a new one's
                                                 */
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
};

/* The first `?3` rows at most, so that a step is short. */
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

struct query layout_query(struct sqlite_conn *c, unsigned sql, const int64_t *args, size_t count)
{
	struct query q = query_begin(c, sql);
	for (size_t i = 0; i < count; i++)
		query_int(&q, args[i]);
	return q;
}

int layout_run(struct sqlite_conn *c, unsigned sql, const int64_t *args, size_t count)
{
	CLEANUP(query_end) struct query q = layout_query(c, sql, args, count);
	return query_run(&q);
}

int layout_find(struct sqlite_conn *c, unsigned sql, int64_t *ret, int ret_count, const int64_t *args,
                size_t count)
{
	CLEANUP(query_end) struct query q = layout_query(c, sql, args, count);
	bool found;
	int rc = query_find(&q, &found);
	for (int i = 0; found && i < ret_count; i++)
		ret[i] = sqlite3_column_int64(q.stmt, i);
	return rc;
}

int layout_rows(struct sqlite_conn *c, unsigned sql, int64_t max, struct arena *arena, void *ret_pairs,
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

_Static_assert(sizeof(struct book) == 28 * sizeof(int64_t), "a number for each column of SQL_BOOK_GET");

int layout_book_get(struct sqlite_conn *c, struct book *ret)
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

int layout_last_get(struct sqlite_conn *c, unsigned sql, uint64_t *ret)
{
	int64_t last = 0;
	int rc = FIND(c, sql, &last, 1);
	*ret = (uint64_t)last;
	return rc;
}

int layout_sql_code(int r)
{
	switch (r) {
	case 0: return SQLITE_OK;
	case ERR_NOMEM: return SQLITE_NOMEM;
	default: ASSERT(r == ERR_CORRUPT); return SQLITE_CORRUPT;
	}
}

bool layout_column_str(const struct query *q, int column, struct arena *arena, struct str *ret)
{
	*ret = STR_NULL;
	if (sqlite3_column_type(q->stmt, column) == SQLITE_NULL)
		return true;
	const char *text = (const char *)sqlite3_column_text(q->stmt, column);
	if (text)
		*ret = arena_str(arena, str_n(text, (size_t)sqlite3_column_bytes(q->stmt, column)));
	return ret->ptr != NULL;
}
