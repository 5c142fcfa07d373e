/*
 * The role `sink` on a SQLite file (client/sqlite_file.h). sqlite_tables.c describes its tables.
 *
 * The file is written with synchronous=NORMAL: commits do not wait for the disk. `sync` makes them durable.
 * Commits lost before that are read again from the event log.
 *
 * Memory holds the index of seen fingerprints and the number of buffered visits. Both change only after a
 * COMMIT and belong to the writing thread. Queries do not use them.
 */
#include "sink/sink_sqlite.h"
#include "client/sqlite_file.h"
#include "sink/sqlite_seen.h"
#include "sink/sqlite_sink.h"
#include "sink/tallies.h"

#include <sodium.h>
#include <stdlib.h>

enum {
	COMPACTION_AT = 262144,      /* buffered visits; a query scans them in some milliseconds */
	COMPACTION_STEP = 32768,     /* visits in one transaction */
	COMPACTION_IDLE_MS = 60000,  /* age of the oldest buffered visit that starts a compaction */
	CHECKPOINT_PAGES = 4000,     /* 16 MB: commits are large, and rewrite the same rollups */
	SEEN_SLACK_MS = 3600 * 1000, /* the writers of one log are out of order by less than this */
};

/* Visits that are not compacted yet. */
struct buffer_state {
	uint64_t visits;
	int64_t since_ms;
	bool is_compacting; /* a compaction has steps left */
};

struct sink_sqlite {
	struct sink base;
	struct sqlite_file *file;
	struct sink_settings settings;
	uint8_t key[SINK_KEY_BYTES]; /* never changes once the file is open */

	/* Owned by the writing thread. */
	struct seen_index seen;
	bool seen_is_stale; /* the next transaction loads it from the file */
	struct buffer_state buffer;
	struct bot_sets bot_sets;
	struct retention retention;
	bool seen_turn; /* the last retention step was about fingerprints */
};

static struct sink_sqlite *self(struct sink *base)
{
	return container_of(base, struct sink_sqlite, base);
}

/* --- queries --- */

/* A reader with a snapshot, until the end of the block. */
#define SNAPSHOT(base, read) \
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_snapshot_begin(self(base)->file)

static int sqlite_stats(struct sink *base, struct stats_query *q)
{
	int r = tallies_check(q);
	if (r != 0)
		return r;
	SNAPSHOT(base, read);
	return sqlite_error(read.rc ?: sqlite_stats_get(read.conn, q));
}

static int sqlite_visits(struct sink *base, struct visits_query *q)
{
	const uint8_t *key = self(base)->key;
	struct page_cursor from = {0};
	int r = page_cursor_parse(q, key, &from);
	if (r != 0)
		return r;
	SNAPSHOT(base, read);
	return sqlite_error(read.rc ?: sqlite_visits_get(read.conn, q, key, &from));
}

static int sqlite_window(struct sink *base, struct window_query *q)
{
	SNAPSHOT(base, read);
	return sqlite_error(read.rc ?: impressions_window(read.conn, q));
}

static int sqlite_top_links(struct sink *base, struct top_links_query *q)
{
	SNAPSHOT(base, read);
	return sqlite_error(read.rc ?: sqlite_top_links_get(read.conn, q));
}

static int sqlite_reconciliation(struct sink *base, uint64_t node, bool deep, struct reconciliation *ret)
{
	(void)node; /* the file has the events of one node only */
	SNAPSHOT(base, read);
	return sqlite_error(read.rc ?: sqlite_reconciliation_get(read.conn, deep, ret));
}

static int sqlite_clicks(struct sink *base, struct sink_total *links, size_t n)
{
	ASSERT(n <= SINK_CLICKS_MAX);
	SNAPSHOT(base, read);
	return sqlite_error(read.rc ?: sqlite_clicks_get(read.conn, links, n));
}

/* --- transactions --- */

static int write_begin(struct sink_sqlite *s, struct sqlite_conn **ret)
{
	int r = sqlite_file_write_begin(s->file, ret);
	if (r != 0 || !s->seen_is_stale)
		return r;
	int rc = seen_load(&s->seen, *ret);
	s->seen_is_stale = rc != SQLITE_OK;
	return rc == SQLITE_OK ? 0 : sqlite_file_write_end(s->file, rc);
}

/* ERR_UNCERTAIN needs no resolution here: for this process the transaction did not happen, and after a crash
 * the positions, which are committed with the rows, decide. */
static int write_end(struct sink_sqlite *s, int rc)
{
	int r = sqlite_file_write_end(s->file, rc);
	return r == ERR_UNCERTAIN ? ERR_UNAVAILABLE : r;
}

static int buffer_read(struct sqlite_conn *c, struct buffer_state *ret)
{
	struct book_row book;
	int64_t sums[3] = {0}; /* visits, orphans, since when */
	int rc = FIND(c, SQL_BUFFER_SUMS, sums, 3) ?: book_get(c, &book);
	if (rc == SQLITE_OK)
		*ret = (struct buffer_state){.visits = (uint64_t)sums[0] - book.compaction.visits,
		                             .since_ms = sums[2],
		                             .is_compacting = book.compaction.row != 0};
	return rc;
}

static int compact(struct sink_sqlite *s, size_t visits_max)
{
	struct sqlite_conn *c;
	struct buffer_state buffer;
	int r = write_begin(s, &c);
	if (r != 0)
		return r;
	int rc = compaction_step(c, &s->bot_sets, visits_max) ?: buffer_read(c, &buffer);
	r = write_end(s, rc);
	if (r == 0)
		s->buffer = buffer;
	return r;
}

/* --- commit --- */

static int sqlite_commit(struct sink *base, const struct sink_batch *batch, uint64_t *ret_duplicates)
{
	struct sink_sqlite *s = self(base);
	struct sqlite_conn *c;
	int r = 0;
	/* Twice the input rate, so that a compaction ends before the next one is due. */
	if (s->buffer.is_compacting || s->buffer.visits >= COMPACTION_AT)
		r = compact(s, MAX(COMPACTION_STEP, 2 * batch->visit_count));
	if (r == 0)
		r = write_begin(s, &c);
	if (r != 0)
		return r;
	struct intake in = {.c = c, .key = s->key, .seen = &s->seen, .batch = batch};
	r = write_end(s, intake_run(&in));
	if (r == 0) {
		if (s->buffer.visits == 0)
			s->buffer.since_ms = batch->now_ms;
		s->buffer.visits += batch->visit_count;
		s->seen_is_stale = seen_committed(&s->seen) != SQLITE_OK;
		*ret_duplicates = in.duplicates;
	} else {
		seen_rolled_back(&s->seen);
	}
	intake_release(&in);
	return r;
}

/* --- positions --- */

static int sqlite_resume(struct sink *base, uint64_t source, struct arena *arena, struct position **ret,
                         size_t *ret_count)
{
	(void)source; /* the numbers of streams are unique over all sources */
	SNAPSHOT(base, read);
	return sqlite_error(read.rc ?: db_pairs(read.conn, SQL_POSITIONS, INT64_MAX, arena, ret, ret_count));
}

static int sqlite_forget(struct sink *base, uint64_t source, const uint64_t *streams, size_t count)
{
	(void)source;
	struct sink_sqlite *s = self(base);
	struct sqlite_conn *c;
	int r = write_begin(s, &c);
	if (r != 0)
		return r;
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++)
		rc = RUN(c, SQL_POSITION_DELETE, streams[i]);
	return write_end(s, rc);
}

static int sqlite_sync(struct sink *base)
{
	return sqlite_file_settle(self(base)->file);
}

/* --- retention --- */

static int retention_run(struct sink_sqlite *s, struct sqlite_conn *c, int64_t now_ms, bool *ret_more,
                         int64_t *ret_run)
{
	*ret_run = 0;
	*ret_more = false;
	int rc = SQLITE_OK;
	for (int i = 0; rc == SQLITE_OK && !*ret_more && i < 2; i++) {
		s->seen_turn = !s->seen_turn;
		if (!s->seen_turn) {
			rc = retention_step(&s->retention, c, &s->settings, now_ms, ret_more);
			continue;
		}
		/* Later impressions are not received much earlier than those already committed. */
		struct book_row book;
		rc = book_get(c, &book);
		int64_t horizon_ms = MIN(book.received_ms, now_ms) - MIN(s->seen.window_ms, SEEN_SLACK_MS);
		if (rc == SQLITE_OK)
			rc = seen_drop(&s->seen, c, horizon_ms, ret_more, ret_run);
	}
	return rc;
}

static int sqlite_retention(struct sink *base, int64_t now_ms)
{
	struct sink_sqlite *s = self(base);
	struct sqlite_conn *c;
	bool more;
	int64_t run;
	if (s->buffer.is_compacting || s->buffer.visits >= COMPACTION_AT ||
	    (s->buffer.visits > 0 && now_ms - s->buffer.since_ms >= COMPACTION_IDLE_MS))
		return compact(s, COMPACTION_STEP) ?: 1;
	int r = write_begin(s, &c);
	if (r != 0)
		return r;
	r = write_end(s, retention_run(s, c, now_ms, &more, &run));
	if (r == 0 && run)
		seen_dropped(&s->seen, run);
	return r ? r : more;
}

/* --- totals --- */

static int sqlite_totals(struct sink *base, size_t max, struct arena *arena, struct sink_total **ret,
                         size_t *ret_count)
{
	struct sink_sqlite *s = self(base);
	int r = s->buffer.visits > 0 ? compact(s, COMPACTION_STEP) : 0;
	if (r != 0)
		return r;
	SNAPSHOT(base, read);
	return sqlite_error(
	    read.rc ?: db_pairs(read.conn, SQL_TOTALS_UNFLUSHED, MIN(max, 1 << 20), arena, ret, ret_count));
}

static int sqlite_totals_flushed(struct sink *base, const struct sink_total *totals, size_t count)
{
	struct sink_sqlite *s = self(base);
	struct sqlite_conn *c;
	int r = write_begin(s, &c);
	if (r != 0)
		return r;
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++)
		rc = RUN(c, SQL_TOTAL_FLUSHED, totals[i].link, totals[i].clicks);
	return write_end(s, rc);
}

/* --- life cycle --- */

static int sqlite_ping(struct sink *base, struct err *e)
{
	return sqlite_file_ping(self(base)->file, e);
}

static void sqlite_free(struct sink *base)
{
	struct sink_sqlite *s = self(base);
	sqlite_file_free(s->file);
	seen_release(&s->seen);
	free(s->bot_sets.items);
	free(s);
}

static const struct sink_ops sqlite_ops = {
    .free = sqlite_free,
    .resume = sqlite_resume,
    .commit = sqlite_commit,
    .sync = sqlite_sync,
    .forget = sqlite_forget,
    .retention = sqlite_retention,
    .totals = sqlite_totals,
    .totals_flushed = sqlite_totals_flushed,
    .stats = sqlite_stats,
    .visits = sqlite_visits,
    .window = sqlite_window,
    .top_links = sqlite_top_links,
    .clicks = sqlite_clicks,
    .reconciliation = sqlite_reconciliation,
    .ping = sqlite_ping,
};

/* The file's secret. A new file gets one. */
static int key_load(struct sink_sqlite *s, struct sqlite_conn *c)
{
	CLEANUP(query_end) struct query get = query_begin(c, SQL_BOOK_KEY);
	bool found;
	int rc = query_find(&get, &found);
	struct str key = found ? column_blob(&get, 0) : STR_NULL;
	if (rc != SQLITE_OK || key.len == sizeof(s->key)) {
		if (rc == SQLITE_OK)
			memcpy(s->key, key.ptr, sizeof(s->key));
		return rc;
	}
	if (key.len != 0)
		return SQLITE_CORRUPT;
	query_end(&get);
	CLEANUP(query_end) struct query set = query_begin(c, SQL_BOOK_KEY_SET);
	randombytes_buf(s->key, sizeof(s->key));
	query_blob(&set, s->key, sizeof(s->key));
	return query_run(&set);
}

int sink_sqlite_open(const char *path, const struct sink_settings *settings, struct sink **ret, struct err *e)
{
	const struct sqlite_file_config config = {
	    .path = path,
	    .layout = &stats_file_layout,
	    .checkpoint_pages = CHECKPOINT_PAGES,
	    .ping_writes = false, /* the stats worker retries a batch until it is written */
	};
	struct sink_sqlite *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: out of memory", path);
	s->base.ops = &sqlite_ops;
	s->settings = sink_settings_normalize(settings);
	seen_init(&s->seen, (int64_t)s->settings.seen_ms);
	s->seen_is_stale = true; /* nothing is loaded yet */
	int r = sqlite_file_open(&config, &s->file, e);
	if (r == 0) {
		struct sqlite_conn *c;
		r = write_begin(s, &c);
		if (r == 0)
			r = write_end(s, key_load(s, c) ?: buffer_read(c, &s->buffer));
		if (r != 0)
			sqlite_file_ping(s->file, e); /* sets the message */
	}
	if (r == 0)
		*ret = &s->base;
	else
		sqlite_free(&s->base);
	return r;
}
