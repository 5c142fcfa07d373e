/*
 * The role `sink` on a SQLite file; layout.c says what is in it.
 *
 * One connection writes and checkpoints, under one mutex. A handful of read-only connections, opened when
 * they are first needed, is lent out to questions; each question is one snapshot. A lock on FILE.lock keeps
 * other processes out, as in store_sqlite.c.
 *
 * What memory holds beside the file is the set of seen fingerprints and how much is fresh. Both change only
 * after a COMMIT, and are read from the file again whenever the writing connection had to be left.
 *
 * Lock order: writer_lock and pool_lock are never held together.
 */
#include "sink/sink_sqlite.h"
#include "os/file.h"
#include "os/sys.h"
#include "sink/answers.h"
#include "sink/digest.h"
#include "sink/impressions.h"
#include "sink/intake.h"
#include "sink/tallies.h"
#include "sink/tidy.h"

#include <pthread.h>
#include <sched.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	READERS = 4,
	DIGEST_AT = 262144,      /* fresh visits: a question looks through them in some milliseconds */
	DIGEST_PIECE = 32768,    /* of them in one transaction */
	DIGEST_IDLE_MS = 60000,  /* or so long after the first of them */
	CHECKPOINT_PAGES = 4000, /* of log before they are moved into the file: 16 MB */
	CHECKPOINT_STEP_PAGES = 1000,
	CHECKPOINT_WAITS_MAX = 10,
	CHECKPOINT_WAIT_US = 100,
	SEEN_SLACK_MS = 3600 * 1000, /* events of a log's writers come in out of order by less */
};

struct sink_sqlite {
	struct sink base;
	char *path;
	int lock_fd; /* on FILE.lock, or -1 */
	struct sink_settings settings;
	uint8_t key[SINK_KEY_BYTES]; /* never changes once the file is open */
	atomic_uint calls;           /* under way */

	pthread_mutex_t writer_lock; /* guards what follows, up to the pool; `troubled` may be peeked at */
	struct sqlite_conn writer; /* closed after a commit of unknown outcome, until it could be reopened */
	struct {
		bool unknown; /* whether that commit happened; its batch, when it comes again, will tell */
		int64_t serial;
		uint64_t hash;
		uint64_t duplicates;
	} last;
	int wal_pages;
	int checkpoint_at_pages;
	struct seen seen;
	uint64_t fresh_visits; /* not digested yet */
	bool digesting;        /* pieces are missing */
	int64_t fresh_since_ms;
	struct tidy tidy;
	bool seen_turn;          /* the last step of tidying was theirs */
	struct err trouble_text; /* why the last write failed */
	atomic_bool troubled;

	pthread_mutex_t pool_lock;
	pthread_cond_t pool_returned;
	struct sqlite_conn readers[READERS];
	struct sqlite_conn *idle[READERS];
	size_t idle_count;
};

static struct sink_sqlite *self(struct sink *base)
{
	return container_of(base, struct sink_sqlite, base);
}

/* --- calls, so that `free` can let them end --- */

static void calls_enter(struct sink_sqlite *s)
{
	atomic_fetch_add_explicit(&s->calls, 1, memory_order_relaxed);
}

static void calls_leave(struct sink_sqlite *s)
{
	atomic_fetch_sub_explicit(&s->calls, 1, memory_order_release); /* pairs with calls_wait */
}

static void calls_wait(struct sink_sqlite *s)
{
	while (atomic_load_explicit(&s->calls, memory_order_acquire) > 0)
		sched_yield();
}

/* --- the readers --- */

static struct sqlite_conn *reader_take(struct sink_sqlite *s)
{
	calls_enter(s);
	pthread_mutex_lock(&s->pool_lock);
	while (s->idle_count == 0)
		pthread_cond_wait(&s->pool_returned, &s->pool_lock);
	struct sqlite_conn *c = s->idle[--s->idle_count]; /* the one returned last: others may stay closed */
	pthread_mutex_unlock(&s->pool_lock);
	return c;
}

static void reader_return(struct sink_sqlite *s, struct sqlite_conn *c)
{
	pthread_mutex_lock(&s->pool_lock);
	s->idle[s->idle_count++] = c;
	pthread_cond_signal(&s->pool_returned);
	pthread_mutex_unlock(&s->pool_lock);
	calls_leave(s);
}

/* A snapshot begins; 0 or an error. */
static int reader_begin(struct sink_sqlite *s, struct sqlite_conn *c, struct err *e)
{
	if (!c->db) {
		int r = sqlite_conn_open_reader(c, &stats_file_layout, s->path, e);
		if (r != 0)
			return r;
	}
	if (!sqlite3_get_autocommit(c->db)) /* its last user could not end the snapshot */
		sqlite_conn_run(c, SQL_ROLLBACK);
	int rc = sqlite_conn_run(c, SQL_BEGIN_READ);
	return rc == SQLITE_OK ? 0 : sqlite_conn_fail(c, rc, s->path, e);
}

/* One question: `ask` in a snapshot. */
static int question(struct sink_sqlite *s, int (*ask)(struct sink_sqlite *, struct sqlite_conn *, void *),
                    void *arg)
{
	struct sqlite_conn *c = reader_take(s);
	int r = reader_begin(s, c, NULL);
	if (r == 0) {
		r = sqlite_error(ask(s, c, arg));
		sqlite_conn_run(c, SQL_ROLLBACK);
	}
	reader_return(s, c);
	return r;
}

static int ask_stats(struct sink_sqlite *s, struct sqlite_conn *c, void *arg)
{
	(void)s;
	return answers_stats_get(c, arg);
}

static int sqlite_stats(struct sink *base, struct stats_query *q)
{
	int r = tallies_check(q);
	return r ? r : question(self(base), ask_stats, q);
}

struct visits_question {
	struct visits_query *q;
	struct page_from from;
};

static int ask_visits(struct sink_sqlite *s, struct sqlite_conn *c, void *arg)
{
	struct visits_question *v = arg;
	return answers_visits_get(c, v->q, s->key, &v->from);
}

static int sqlite_visits(struct sink *base, struct visits_query *q)
{
	struct visits_question v = {.q = q};
	int r = page_check(q, self(base)->key, &v.from);
	return r ? r : question(self(base), ask_visits, &v);
}

static int ask_window(struct sink_sqlite *s, struct sqlite_conn *c, void *arg)
{
	(void)s;
	return impressions_window(c, arg);
}

static int sqlite_window(struct sink *base, struct window_query *q)
{
	return question(self(base), ask_window, q);
}

static int ask_top_links(struct sink_sqlite *s, struct sqlite_conn *c, void *arg)
{
	(void)s;
	return answers_top_links_get(c, arg);
}

static int sqlite_top_links(struct sink *base, struct top_links_query *q)
{
	return question(self(base), ask_top_links, q);
}

struct books_question {
	bool deep;
	struct sink_books *ret;
};

static int ask_books(struct sink_sqlite *s, struct sqlite_conn *c, void *arg)
{
	(void)s;
	struct books_question *b = arg;
	return answers_books_get(c, b->deep, b->ret);
}

static int sqlite_books(struct sink *base, uint64_t node, bool deep, struct sink_books *ret)
{
	(void)node; /* all that is here is its own */
	return question(self(base), ask_books, &(struct books_question){.deep = deep, .ret = ret});
}

struct clicks_question {
	struct sink_total *links;
	size_t n;
};

static int ask_clicks(struct sink_sqlite *s, struct sqlite_conn *c, void *arg)
{
	(void)s;
	struct clicks_question *q = arg;
	return answers_clicks_get(c, q->links, q->n);
}

static int sqlite_clicks(struct sink *base, struct sink_total *links, size_t n)
{
	ASSERT(n <= SINK_CLICKS_MAX);
	return question(self(base), ask_clicks, &(struct clicks_question){.links = links, .n = n});
}

/* --- the writer --- */

static void writer_take(struct sink_sqlite *s)
{
	calls_enter(s);
	pthread_mutex_lock(&s->writer_lock);
}

static void writer_return(struct sink_sqlite *s)
{
	pthread_mutex_unlock(&s->writer_lock);
	calls_leave(s);
}

static void trouble_note_locked(struct sink_sqlite *s, int rc)
{
	char text[sizeof(s->trouble_text)];
	snprintf(text, sizeof(text), "%s: the last write failed", s->path);
	sqlite_conn_fail(&s->writer, rc, text, &s->trouble_text);
	atomic_store(&s->troubled, true); /* pairs with the load in sqlite_ping */
}

/* Called by SQLite after each commit with the length of the log. */
static int wal_grown(void *arg, sqlite3 *db, const char *schema, int pages)
{
	(void)db;
	(void)schema;
	struct sink_sqlite *s = arg;
	if (pages < s->wal_pages) /* the log was moved whole and begins anew */
		s->checkpoint_at_pages = CHECKPOINT_PAGES;
	s->wal_pages = pages;
	return SQLITE_OK;
}

/* Questions leave the log within milliseconds. */
static int checkpoint_wait(void *arg, int tries)
{
	(void)arg;
	if (tries >= CHECKPOINT_WAITS_MAX)
		return 0;
	usleep(CHECKPOINT_WAIT_US);
	return 1;
}

/* Moves the log into the file, so that the next write begins it anew. When that fails nothing is lost: the
 * log is kept, and a later try moves all of it again. */
static void checkpoint_locked(struct sink_sqlite *s)
{
	sqlite3 *db = s->writer.db;
	sqlite3_busy_handler(db, checkpoint_wait, NULL);
	int rc = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_RESTART, NULL, NULL);
	sqlite3_busy_timeout(db, SQLITE_BUSY_TIMEOUT_MS);
	s->checkpoint_at_pages = s->wal_pages + CHECKPOINT_STEP_PAGES;
	if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY)
		trouble_note_locked(s, rc);
}

static int fresh_load(struct sink_sqlite *s)
{
	CLEANUP(query_end) struct query q = query_begin(&s->writer, SQL_FRESH_SUMS);
	struct book book;
	bool found;
	int rc = query_find(&q, &found);
	if (rc == SQLITE_OK)
		rc = layout_book_get(&s->writer, &book);
	if (rc == SQLITE_OK) {
		s->fresh_visits = (uint64_t)sqlite3_column_int64(q.stmt, 0) - book.digesting.visits;
		s->fresh_since_ms = sqlite3_column_int64(q.stmt, 2);
		s->digesting = book.digesting.row != 0;
	}
	return rc;
}

static int key_write(struct sink_sqlite *s)
{
	CLEANUP(query_end) struct query q = query_begin(&s->writer, SQL_BOOK_KEY_SET);
	randombytes_buf(s->key, sizeof(s->key));
	query_blob(&q, s->key, sizeof(s->key));
	return query_run(&q);
}

/* The file's secret, made when the file is new. */
static int key_load(struct sink_sqlite *s)
{
	bool made = false;
	{
		CLEANUP(query_end) struct query q = query_begin(&s->writer, SQL_BOOK_KEY);
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
	return made ? SQLITE_OK : key_write(s);
}

static int writer_load(struct sink_sqlite *s)
{
	int rc = fresh_load(s);
	return rc == SQLITE_OK ? seen_load(&s->seen, &s->writer) : rc;
}

/* The key is given out to threads once the sink is open, so it is read only then. */
static int writer_open_locked(struct sink_sqlite *s, bool first, struct err *e)
{
	if (s->writer.db)
		return 0;
	int r = sqlite_conn_open_writer(&s->writer, &stats_file_layout, s->path, e);
	if (r != 0)
		return r;
	sqlite3_wal_hook(s->writer.db, wal_grown, s);
	int rc = first ? key_load(s) : SQLITE_OK;
	if (rc == SQLITE_OK)
		rc = writer_load(s);
	if (rc == SQLITE_OK)
		return 0;
	r = sqlite_conn_fail(&s->writer, rc, s->path, e);
	sqlite_conn_close(&s->writer);
	return r;
}

static void rollback_locked(struct sink_sqlite *s)
{
	if (sqlite3_get_autocommit(s->writer.db))
		return; /* some errors roll back by themselves */
	if (sqlite_conn_run(&s->writer, SQL_ROLLBACK) != SQLITE_OK)
		sqlite_conn_close(&s->writer); /* which rolls back */
}

/* A write of no meaning. It lands in the log where a failed transaction had begun. */
static int seal_locked(struct sink_sqlite *s)
{
	int rc = sqlite_conn_run(&s->writer, SQL_BEGIN_WRITE);
	if (rc == SQLITE_OK)
		rc = sqlite_conn_run(&s->writer, SQL_SEAL);
	if (rc == SQLITE_OK)
		rc = sqlite_conn_run(&s->writer, SQL_COMMIT);
	if (rc != SQLITE_OK)
		rollback_locked(s);
	return rc;
}

enum outcome { NOT_DONE, DONE, UNKNOWN };

/*
 * What a failed COMMIT means; see store_sqlite.c for why it is not simply "no". A new connection reads what
 * SQLite believes now: the serial number of the last commit tells. If it did not happen, a further write
 * overwrites what may still lie in the log, so that it never will.
 */
static enum outcome commit_failed_locked(struct sink_sqlite *s, int rc, int64_t serial)
{
	trouble_note_locked(s, rc);
	int primary = rc & 0xff;
	if (primary == SQLITE_BUSY || primary == SQLITE_FULL) {
		rollback_locked(s);
		return NOT_DONE;
	}
	sqlite_conn_close(&s->writer);
	struct book book;
	if (writer_open_locked(s, false, NULL) != 0)
		return UNKNOWN;
	if (layout_book_get(&s->writer, &book) == SQLITE_OK) {
		if (book.serial == serial)
			return DONE;
		if (seal_locked(s) == SQLITE_OK)
			return NOT_DONE;
	}
	if (s->writer.db)
		sqlite_conn_close(&s->writer);
	return UNKNOWN;
}

static int txn_begin_locked(struct sink_sqlite *s)
{
	if (writer_open_locked(s, false, &s->trouble_text) != 0) {
		atomic_store(&s->troubled, true);
		return ERR_UNAVAILABLE;
	}
	int rc = sqlite_conn_run(&s->writer, SQL_BEGIN_WRITE);
	if (rc != SQLITE_OK) {
		trouble_note_locked(s, rc);
		rollback_locked(s);
	}
	return sqlite_error(rc);
}

static void written_locked(struct sink_sqlite *s)
{
	atomic_store(&s->troubled, false);
	if (s->wal_pages >= s->checkpoint_at_pages)
		checkpoint_locked(s);
}

/* Ends a transaction that changes nothing that memory holds: done or not, the file is right. */
static int txn_end_locked(struct sink_sqlite *s, int rc)
{
	if (rc == SQLITE_OK) {
		rc = sqlite_conn_run(&s->writer, SQL_COMMIT);
		if (rc == SQLITE_OK) {
			written_locked(s);
			return 0;
		}
		commit_failed_locked(s, rc, -1);
		return ERR_UNAVAILABLE;
	}
	trouble_note_locked(s, rc);
	rollback_locked(s);
	return sqlite_error(rc);
}

/* One piece. */
static int digest_locked(struct sink_sqlite *s, size_t visits_max)
{
	int r = txn_begin_locked(s);
	if (r == 0)
		r = txn_end_locked(s, digest_piece(&s->writer, visits_max));
	if (r != 0)
		return r;
	int rc = fresh_load(s);
	if (rc != SQLITE_OK) {
		trouble_note_locked(s, rc);
		sqlite_conn_close(&s->writer); /* it is read again with the next one */
	}
	return sqlite_error(rc);
}

/* A piece with each commit: twice as much as comes in, so that a digest ends before there is enough for the
 * next. */
static int digest_some_locked(struct sink_sqlite *s, size_t coming)
{
	if (!s->digesting && s->fresh_visits < DIGEST_AT)
		return 0;
	return digest_locked(s, MAX(DIGEST_PIECE, 2 * coming));
}

/* --- commit --- */

static void fresh_grown(struct sink_sqlite *s, const struct sink_batch *batch)
{
	if (s->fresh_visits == 0)
		s->fresh_since_ms = batch->now_ms;
	s->fresh_visits += batch->visit_count;
}

/* After a COMMIT that said it is done. */
static void commit_done_locked(struct sink_sqlite *s, const struct sink_batch *batch)
{
	fresh_grown(s, batch);
	if (seen_committed(&s->seen) != SQLITE_OK)
		sqlite_conn_close(&s->writer); /* memory ran out: the next one reads it from the file */
	else
		written_locked(s);
}

static int commit_unknown_locked(struct sink_sqlite *s, const struct intake *in)
{
	s->last.unknown = true;
	s->last.serial = in->book.serial;
	s->last.hash = keyed_batch_hash(s->key, in->batch);
	s->last.duplicates = in->duplicates;
	return ERR_UNAVAILABLE;
}

static int commit_end_locked(struct sink_sqlite *s, struct intake *in, int rc)
{
	if (rc == SQLITE_OK) {
		rc = sqlite_conn_run(&s->writer, SQL_COMMIT);
		if (rc == SQLITE_OK) {
			commit_done_locked(s, in->batch);
			return 0;
		}
		seen_rolled_back(&s->seen); /* whatever comes out, it is right as the file has it */
		switch (commit_failed_locked(s, rc, in->book.serial)) {
		case DONE: return 0;
		case NOT_DONE: return ERR_UNAVAILABLE;
		case UNKNOWN: return commit_unknown_locked(s, in);
		}
	}
	seen_rolled_back(&s->seen);
	trouble_note_locked(s, rc);
	rollback_locked(s);
	return sqlite_error(rc);
}

/* What became of the last commit, now that the file can be asked again: *ret_done when it happened and this
 * is its batch again. */
static int last_resolve_locked(struct sink_sqlite *s, const struct sink_batch *batch, bool *ret_done)
{
	struct book book;
	int r = writer_open_locked(s, false, &s->trouble_text);
	if (r == 0)
		r = sqlite_error(layout_book_get(&s->writer, &book));
	if (r != 0)
		return r;
	*ret_done = book.serial == s->last.serial;
	if (*ret_done && keyed_batch_hash(s->key, batch) != s->last.hash)
		return ERR_UNCERTAIN;
	s->last.unknown = false;
	return 0;
}

static int batch_take_locked(struct sink_sqlite *s, const struct sink_batch *batch, uint64_t *ret_duplicates)
{
	int r = digest_some_locked(s, batch->visit_count);
	if (r == 0)
		r = txn_begin_locked(s);
	if (r != 0)
		return r;
	struct intake in = {.c = &s->writer, .key = s->key, .seen = &s->seen, .batch = batch};
	r = commit_end_locked(s, &in, intake_run(&in));
	if (r == 0)
		*ret_duplicates = in.duplicates;
	intake_release(&in);
	return r;
}

static int commit_locked(struct sink_sqlite *s, const struct sink_batch *batch, uint64_t *ret_duplicates)
{
	bool done = false;
	int r = s->last.unknown ? last_resolve_locked(s, batch, &done) : 0;
	if (r != 0)
		return r;
	if (done) {
		*ret_duplicates = s->last.duplicates;
		return 0;
	}
	return batch_take_locked(s, batch, ret_duplicates);
}

static int sqlite_commit(struct sink *base, const struct sink_batch *batch, uint64_t *ret_duplicates)
{
	struct sink_sqlite *s = self(base);
	writer_take(s);
	int r = commit_locked(s, batch, ret_duplicates);
	writer_return(s);
	return r;
}

/* --- positions --- */

static int positions_read(struct sqlite_conn *c, struct arena *arena, struct position **ret,
                          size_t *ret_count)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_POSITIONS);
	struct position *positions = NULL;
	size_t count = 0, cap = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		if (count == cap) {
			cap = cap ? cap * 2 : 16;
			struct position *larger = arena_alloc(arena, cap * sizeof(*larger));
			if (!larger)
				return SQLITE_NOMEM;
			if (count > 0)
				memcpy(larger, positions, count * sizeof(*larger));
			positions = larger;
		}
		positions[count++] = (struct position){.stream = (uint64_t)sqlite3_column_int64(q.stmt, 0),
		                                       .offset = (uint64_t)sqlite3_column_int64(q.stmt, 1)};
	}
	if (rc != SQLITE_DONE)
		return rc;
	*ret = positions;
	*ret_count = count;
	return SQLITE_OK;
}

static int sqlite_resume(struct sink *base, uint64_t source, struct arena *arena, struct position **ret,
                         size_t *ret_count)
{
	(void)source; /* streams of all sources are told apart by their numbers */
	struct sink_sqlite *s = self(base);
	writer_take(s);
	int r = writer_open_locked(s, false, &s->trouble_text);
	if (r == 0)
		r = sqlite_error(positions_read(&s->writer, arena, ret, ret_count));
	if (r == 0)
		s->last.unknown = false; /* from here on everybody knows */
	writer_return(s);
	return r;
}

static int positions_delete(struct sqlite_conn *c, const uint64_t *streams, size_t count)
{
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
		CLEANUP(query_end) struct query q = query_begin(c, SQL_POSITION_DELETE);
		query_int(&q, (int64_t)streams[i]);
		rc = query_run(&q);
	}
	return rc;
}

static int sqlite_forget(struct sink *base, uint64_t source, const uint64_t *streams, size_t count)
{
	(void)source;
	struct sink_sqlite *s = self(base);
	writer_take(s);
	int r = txn_begin_locked(s);
	if (r == 0)
		r = txn_end_locked(s, positions_delete(&s->writer, streams, count));
	writer_return(s);
	return r;
}

/* A checkpoint syncs the log before it moves it, and the file after; it must have moved all of it. */
static int settle_locked(struct sink_sqlite *s)
{
	int log = 0, moved = 0;
	int r = writer_open_locked(s, false, &s->trouble_text);
	if (r != 0)
		return ERR_UNAVAILABLE;
	int rc = sqlite3_wal_checkpoint_v2(s->writer.db, "main", SQLITE_CHECKPOINT_FULL, &log, &moved);
	if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY)
		trouble_note_locked(s, rc);
	return rc == SQLITE_OK && log == moved ? 0 : ERR_UNAVAILABLE;
}

static int sqlite_settle(struct sink *base)
{
	struct sink_sqlite *s = self(base);
	writer_take(s);
	int r = settle_locked(s);
	writer_return(s);
	return r;
}

/* --- tidying --- */

static bool digest_is_due(const struct sink_sqlite *s, int64_t now_ms)
{
	return s->digesting || s->fresh_visits >= DIGEST_AT ||
	       (s->fresh_visits > 0 && now_ms - s->fresh_since_ms >= DIGEST_IDLE_MS);
}

/* What is received from now on is not much older than what was received already. */
static int seen_horizon(struct sink_sqlite *s, int64_t now_ms, int64_t *ret_ms)
{
	struct book book;
	int rc = layout_book_get(&s->writer, &book);
	*ret_ms = MIN(book.received_ms, now_ms) - MIN(s->seen.window_ms, SEEN_SLACK_MS);
	return rc;
}

static int tidy_run(struct sink_sqlite *s, int64_t now_ms, bool *ret_more, int64_t *ret_run)
{
	*ret_run = 0;
	*ret_more = false;
	int rc = SQLITE_OK;
	for (int i = 0; rc == SQLITE_OK && !*ret_more && i < 2; i++) {
		s->seen_turn = !s->seen_turn;
		if (!s->seen_turn) {
			rc = tidy_step(&s->tidy, &s->writer, &s->settings, now_ms, ret_more);
			continue;
		}
		int64_t horizon_ms;
		rc = seen_horizon(s, now_ms, &horizon_ms);
		if (rc == SQLITE_OK)
			rc = seen_drop(&s->seen, &s->writer, horizon_ms, ret_more, ret_run);
	}
	return rc;
}

static int tidy_locked(struct sink_sqlite *s, int64_t now_ms)
{
	bool more;
	int64_t run;
	if (digest_is_due(s, now_ms)) {
		int r = digest_locked(s, DIGEST_PIECE);
		return r ? r : 1;
	}
	int r = txn_begin_locked(s);
	if (r != 0)
		return r;
	int rc = tidy_run(s, now_ms, &more, &run);
	if (rc == SQLITE_OK && !more) {
		rollback_locked(s);
		return 0;
	}
	r = txn_end_locked(s, rc);
	if (r == 0 && run)
		seen_dropped(&s->seen, run);
	return r ? r : 1;
}

static int sqlite_tidy(struct sink *base, int64_t now_ms)
{
	struct sink_sqlite *s = self(base);
	writer_take(s);
	int r = tidy_locked(s, now_ms);
	writer_return(s);
	return r;
}

/* --- totals --- */

static int sqlite_totals(struct sink *base, size_t max, struct arena *arena, struct sink_total **ret,
                         size_t *ret_count)
{
	struct sink_sqlite *s = self(base);
	writer_take(s);
	int r = writer_open_locked(s, false, &s->trouble_text);
	if (r == 0 && s->fresh_visits > 0)
		r = digest_locked(s, DIGEST_PIECE);
	if (r == 0)
		r = sqlite_error(answers_totals_get(&s->writer, MIN(max, 1 << 20), arena, ret, ret_count));
	writer_return(s);
	return r;
}

static int totals_mark(struct sqlite_conn *c, const struct sink_total *totals, size_t count)
{
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
		CLEANUP(query_end) struct query q = query_begin(c, SQL_TOTAL_FLUSHED);
		query_int(&q, (int64_t)totals[i].link);
		query_int(&q, (int64_t)totals[i].clicks);
		rc = query_run(&q);
	}
	return rc;
}

static int sqlite_totals_flushed(struct sink *base, const struct sink_total *totals, size_t count)
{
	struct sink_sqlite *s = self(base);
	writer_take(s);
	int r = txn_begin_locked(s);
	if (r == 0)
		r = txn_end_locked(s, totals_mark(&s->writer, totals, count));
	writer_return(s);
	return r;
}

/* --- health and life --- */

static int ping_read(struct sink_sqlite *s, struct err *e)
{
	struct sqlite_conn *c = reader_take(s);
	int r = reader_begin(s, c, e);
	if (r == 0) {
		struct book book;
		int rc = layout_book_get(c, &book);
		r = rc == SQLITE_OK ? 0 : sqlite_conn_fail(c, rc, s->path, e);
		sqlite_conn_run(c, SQL_ROLLBACK);
	}
	reader_return(s, c);
	return r;
}

static int sqlite_ping(struct sink *base, struct err *e)
{
	struct sink_sqlite *s = self(base);
	int r = ping_read(s, e);
	if (r != 0 || !atomic_load(&s->troubled))
		return r;
	writer_take(s); /* the worker tries again by itself: this only says how it went */
	r = atomic_load(&s->troubled) ? err_set(e, ERR_UNAVAILABLE, "%s", s->trouble_text.text) : 0;
	writer_return(s);
	return r;
}

static void sqlite_free(struct sink *base)
{
	struct sink_sqlite *s = self(base);
	calls_wait(s);
	for (size_t i = 0; i < READERS; i++)
		sqlite_conn_close(&s->readers[i]);
	sqlite_conn_close(&s->writer); /* the last one: moves the log into the file and removes it */
	seen_release(&s->seen);
	if (s->lock_fd >= 0)
		os_sys.close(s->lock_fd);
	pthread_cond_destroy(&s->pool_returned);
	pthread_mutex_destroy(&s->pool_lock);
	pthread_mutex_destroy(&s->writer_lock);
	free(s->path);
	free(s);
}

static const struct sink_ops sqlite_ops = {
    .free = sqlite_free,
    .resume = sqlite_resume,
    .commit = sqlite_commit,
    .settle = sqlite_settle,
    .forget = sqlite_forget,
    .tidy = sqlite_tidy,
    .totals = sqlite_totals,
    .totals_flushed = sqlite_totals_flushed,
    .stats = sqlite_stats,
    .visits = sqlite_visits,
    .window = sqlite_window,
    .top_links = sqlite_top_links,
    .clicks = sqlite_clicks,
    .books = sqlite_books,
    .ping = sqlite_ping,
};

/* SQLite reads "file:x", ":memory:" and "" in ways of its own; with a folder in front they are plain names.
 */
static char *plain_path(const char *path)
{
	char *plain;
	return asprintf(&plain, "%s%s", path[0] == '/' ? "" : "./", path) < 0 ? NULL : plain;
}

/* For this process alone. */
static int file_take(struct sink_sqlite *s, struct err *e)
{
	char *lock;
	if (asprintf(&lock, "%s.lock", s->path) < 0)
		return err_set(e, ERR_NOMEM, "%s: memory ran out", s->path);
	int r = file_lock(lock, &s->lock_fd, e);
	if (r == ERR_BUSY)
		err_set(e, r, "%s is in use by another process; stop it, or name another file", s->path);
	free(lock);
	return r == ERR_NOT_FOUND ? ERR_UNAVAILABLE : r; /* there is no such folder */
}

int sink_sqlite_open(const char *path, const struct sink_settings *settings, struct sink **ret, struct err *e)
{
	struct sink_sqlite *s = calloc(1, sizeof(*s));
	if (!s || !(s->path = plain_path(path))) {
		free(s);
		return err_set(e, ERR_NOMEM, "%s: memory ran out", path);
	}
	s->base.ops = &sqlite_ops;
	s->settings = sink_settings_settle(settings);
	s->checkpoint_at_pages = CHECKPOINT_PAGES;
	s->lock_fd = -1;
	seen_init(&s->seen, (int64_t)s->settings.seen_ms);
	pthread_mutex_init(&s->writer_lock, NULL);
	pthread_mutex_init(&s->pool_lock, NULL);
	pthread_cond_init(&s->pool_returned, NULL);
	for (size_t i = 0; i < READERS; i++)
		s->idle[s->idle_count++] = &s->readers[i];
	int r = file_take(s, e);
	if (r == 0) {
		sqlite_file_create(s->path);
		r = writer_open_locked(s, true, e);
	}
	if (r != 0) {
		sqlite_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
