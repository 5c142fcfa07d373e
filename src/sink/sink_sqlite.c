/*
 * The role `sink` on a SQLite file (client/sqlite_file.h); layout.c says what is in it. It is written with
 * synchronous=NORMAL: commits do not wait for the disk, because `settle` says when they are safe, and what is
 * lost before is read again from the event log.
 *
 * Memory holds the set of seen fingerprints, and how many visits are fresh. Both change only after a COMMIT,
 * and belong to the one thread that writes; questions do not touch them.
 */
#include "sink/sink_sqlite.h"
#include "client/sqlite_file.h"
#include "sink/sqlite_seen.h"
#include "sink/sqlite_sink.h"
#include "sink/tallies.h"

#include <sodium.h>
#include <stdlib.h>

enum {
	COMPACTION_AT = 262144,      /* fresh visits: a question looks through them in some milliseconds */
	COMPACTION_PIECE = 32768,    /* of them in one transaction */
	COMPACTION_IDLE_MS = 60000,  /* or so long after the first of them */
	CHECKPOINT_PAGES = 4000,     /* 16 MB: commits are large, and rewrite the same rollups */
	SEEN_SLACK_MS = 3600 * 1000, /* events of a log's writers come in out of order by less */
};

/* Visits that are not digested yet. */
struct buffer_state {
	uint64_t visits;
	int64_t since_ms;
	bool digesting; /* pieces are missing */
};

struct sink_sqlite {
	struct sink base;
	struct sqlite_file *file;
	struct sink_settings settings;
	uint8_t key[SINK_KEY_BYTES]; /* never changes once the file is open */

	/* Of the thread that writes. */
	struct seen seen;
	bool seen_is_stale; /* memory ran out after a COMMIT: the next transaction reads it from the file */
	struct buffer_state buffer;
	struct retention retention;
	bool seen_turn; /* the last step of tidying was theirs */
};

static struct sink_sqlite *self(struct sink *base)
{
	return container_of(base, struct sink_sqlite, base);
}

/* --- questions --- */

/* Lends a reader with a snapshot until the end of the block. */
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
	struct page_from from = {0};
	int r = page_check(q, key, &from);
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
	(void)node; /* all that is here is its own */
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

/* ERR_UNCERTAIN is no doubt of ours: in this process the transaction did not happen, and after a crash the
 * positions, which go with the rows, tell. */
static int write_end(struct sink_sqlite *s, int rc)
{
	int r = sqlite_file_write_end(s->file, rc);
	return r == ERR_UNCERTAIN ? ERR_UNAVAILABLE : r;
}

static int buffer_read(struct sqlite_conn *c, struct buffer_state *ret)
{
	struct book book;
	int64_t sums[3] = {0}; /* visits, orphans, since when */
	int rc = FIND(c, SQL_BUFFER_SUMS, sums, 3) ?: layout_book_get(c, &book);
	if (rc == SQLITE_OK)
		*ret = (struct buffer_state){.visits = (uint64_t)sums[0] - book.digesting.visits,
		                             .since_ms = sums[2],
		                             .digesting = book.digesting.row != 0};
	return rc;
}

/* One piece. */
static int compaction(struct sink_sqlite *s, size_t visits_max)
{
	struct sqlite_conn *c;
	struct buffer_state buffer;
	int r = write_begin(s, &c);
	if (r != 0)
		return r;
	int rc = compaction_step(c, visits_max) ?: buffer_read(c, &buffer);
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
	/* Twice as much as comes in, so that a digest ends before there is enough for the next. */
	if (s->buffer.digesting || s->buffer.visits >= COMPACTION_AT)
		r = compaction(s, MAX(COMPACTION_PIECE, 2 * batch->visit_count));
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
	(void)source; /* streams of all sources are told apart by their numbers */
	SNAPSHOT(base, read);
	return sqlite_error(read.rc
	                        ?: layout_rows(read.conn, SQL_POSITIONS, INT64_MAX, arena, ret, ret_count));
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

static int sqlite_settle(struct sink *base)
{
	return sqlite_file_settle(self(base)->file);
}

/* --- tidying --- */

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
		/* What is received from now on is not much older than what was received already. */
		struct book book;
		rc = layout_book_get(c, &book);
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
	if (s->buffer.digesting || s->buffer.visits >= COMPACTION_AT ||
	    (s->buffer.visits > 0 && now_ms - s->buffer.since_ms >= COMPACTION_IDLE_MS)) {
		return compaction(s, COMPACTION_PIECE) ?: 1;
	}
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
	int r = s->buffer.visits > 0 ? compaction(s, COMPACTION_PIECE) : 0;
	if (r != 0)
		return r;
	SNAPSHOT(base, read);
	return sqlite_error(
	    read.rc
	        ?: layout_rows(read.conn, SQL_TOTALS_UNFLUSHED, MIN(max, 1 << 20), arena, ret, ret_count));
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

/* --- health and life --- */

static int sqlite_ping(struct sink *base, struct err *e)
{
	return sqlite_file_ping(self(base)->file, e);
}

static void sqlite_free(struct sink *base)
{
	struct sink_sqlite *s = self(base);
	sqlite_file_free(s->file);
	seen_release(&s->seen);
	free(s);
}

static const struct sink_ops sqlite_ops = {
    .free = sqlite_free,
    .resume = sqlite_resume,
    .commit = sqlite_commit,
    .settle = sqlite_settle,
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

/* The file's secret, made when the file is new. */
static int key_load(struct sink_sqlite *s, struct sqlite_conn *c)
{
	bool made = false;
	{
		CLEANUP(query_end) struct query q = query_begin(c, SQL_BOOK_KEY);
		bool found;
		int rc = query_find(&q, &found);
		if (rc != SQLITE_OK)
			return rc;
		struct str key = found ? column_blob(&q, 0) : STR_NULL;
		if (key.len != 0 && key.len != sizeof(s->key))
			return SQLITE_CORRUPT;
		made = key.len > 0;
		if (made)
			memcpy(s->key, key.ptr, sizeof(s->key));
	}
	if (made)
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_BOOK_KEY_SET);
	randombytes_buf(s->key, sizeof(s->key));
	query_blob(&q, s->key, sizeof(s->key));
	return query_run(&q);
}

static int load(struct sink_sqlite *s)
{
	struct sqlite_conn *c;
	int r = write_begin(s, &c);
	if (r != 0)
		return r;
	int rc = key_load(s, c) ?: buffer_read(c, &s->buffer);
	return write_end(s, rc);
}

int sink_sqlite_open(const char *path, const struct sink_settings *settings, struct sink **ret, struct err *e)
{
	const struct sqlite_file_config config = {
	    .path = path,
	    .layout = &stats_file_layout,
	    .checkpoint_pages = CHECKPOINT_PAGES,
	    .ping_writes = false, /* the stats worker retries until its batch is written */
	};
	struct sink_sqlite *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: out of memory", path);
	s->base.ops = &sqlite_ops;
	s->settings = sink_settings_settle(settings);
	seen_init(&s->seen, (int64_t)s->settings.seen_ms);
	s->seen_is_stale = true; /* nothing is loaded yet */
	int r = sqlite_file_open(&config, &s->file, e);
	if (r == 0) {
		r = load(s);
		if (r != 0)
			sqlite_file_ping(s->file, e); /* for the sentence */
	}
	if (r == 0)
		*ret = &s->base;
	else
		sqlite_free(&s->base);
	return r;
}
