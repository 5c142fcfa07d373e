/*
 * The role `store` on a SQLite file.
 *
 * One connection writes and checkpoints, under one mutex: apply, clicks, lease and constant take turns. A
 * handful of read-only connections is lent out to lookups and lists; each sees what was committed before it
 * began. The file is in WAL mode with synchronous=FULL, so a commit that succeeded survives power loss.
 *
 * A batch is judged before it is written (decide.h): a change that fails by itself (a conflict, say) touches
 * nothing. When SQLite fails, the whole batch is rolled back. What comes back to the caller is held in
 * `struct store_outcome` until the commit, so a batch that failed can be handed in again as it is.
 *
 * A lock on FILE.lock keeps other processes out: SQLite before 3.51.3 may lose pages when two of them
 * checkpoint, and their caches would not learn of each other's changes.
 *
 * Lock order: writer_lock and pool_lock are never held together.
 */
#include "os/file.h"
#include "os/sys.h"
#include "store/backends.h"
#include "store/rules.h"
#include "store/sqlite_change.h"
#include "store/sqlite_read.h"
#include "store/sqlite_rows.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	READERS = 4,
	CHECKPOINT_PAGES = 1000,     /* of log before they are moved into the file: 4 MB */
	CHECKPOINT_STEP_PAGES = 100, /* of further log before the next try, when one could not finish */
	CHECKPOINT_WAITS_MAX = 10,
	CHECKPOINT_WAIT_US = 100,
};

/* What ping has to say: nothing, or the failure that no success of the same kind has followed yet. */
enum trouble { TROUBLE_NONE, TROUBLE_WRITE, TROUBLE_CHECKPOINT };

struct store_sqlite {
	struct store base;
	struct store_rules rules;
	char *path;
	int lock_fd;       /* on FILE.lock, or -1 */
	atomic_uint calls; /* under way */

	pthread_mutex_t writer_lock; /* guards the next five; `trouble` may be peeked at without */
	struct sqlite_conn writer; /* closed after a commit of unknown outcome, until it could be reopened */
	int wal_pages;
	int checkpoint_at_pages;
	struct err trouble_text;
	_Atomic enum trouble trouble;

	pthread_mutex_t pool_lock;
	pthread_cond_t pool_returned;
	struct sqlite_conn readers[READERS];
	struct sqlite_conn *idle[READERS];
	size_t idle_count;
};

static struct store_sqlite *self(struct store *base)
{
	return container_of(base, struct store_sqlite, base);
}

/* --- the readers --- */

static struct sqlite_conn *reader_take(struct store_sqlite *s)
{
	calls_enter(&s->calls);
	pthread_mutex_lock(&s->pool_lock);
	while (s->idle_count == 0)
		pthread_cond_wait(&s->pool_returned, &s->pool_lock);
	struct sqlite_conn *c = s->idle[--s->idle_count];
	pthread_mutex_unlock(&s->pool_lock);
	if (!sqlite3_get_autocommit(c->db)) /* its last user could not end the snapshot */
		sqlite_conn_run(c, SQL_ROLLBACK);
	return c;
}

static void reader_return(struct store_sqlite *s, struct sqlite_conn *c)
{
	pthread_mutex_lock(&s->pool_lock);
	s->idle[s->idle_count++] = c;
	pthread_cond_signal(&s->pool_returned);
	pthread_mutex_unlock(&s->pool_lock);
	calls_leave(&s->calls);
}

static int sqlite_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	struct store_sqlite *s = self(base);
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_links(c, reads, n);
	reader_return(s, c);
	return r;
}

static int sqlite_list(struct store *base, struct store_list *page)
{
	struct store_sqlite *s = self(base);
	uint64_t id_max;
	if (page->limit == 0 || !cursor_parse(page->cursor, &id_max))
		return ERR_INVALID;
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_list(c, page, id_max);
	reader_return(s, c);
	return r;
}

static int sqlite_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	struct store_sqlite *s = self(base);
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_tagged(c, tag, max, ret_ids, ret_count);
	reader_return(s, c);
	return r;
}

static int sqlite_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                            size_t *ret_count)
{
	struct store_sqlite *s = self(base);
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_permitted(c, link, arena, ret, ret_count);
	reader_return(s, c);
	return r;
}

static int sqlite_over(struct store *base, struct store_over *over)
{
	struct store_sqlite *s = self(base);
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_over(c, over);
	reader_return(s, c);
	return r;
}

static int sqlite_users(struct store *base, struct store_users *page)
{
	struct store_sqlite *s = self(base);
	if (page->limit == 0)
		return ERR_INVALID;
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_users(c, page);
	reader_return(s, c);
	return r;
}

static int sqlite_user(struct store *base, uint64_t id, struct str email, struct arena *arena,
                       struct user_record *ret)
{
	struct store_sqlite *s = self(base);
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_user(c, id, email, arena, ret);
	reader_return(s, c);
	return r;
}

static int sqlite_sessions(struct store *base, int64_t now_ms, struct arena *arena,
                           struct session_record **ret, size_t *ret_count)
{
	struct store_sqlite *s = self(base);
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_sessions(c, now_ms, arena, ret, ret_count);
	reader_return(s, c);
	return r;
}

static int sqlite_keys(struct store *base, struct arena *arena, struct key_record **ret, size_t *ret_count)
{
	struct store_sqlite *s = self(base);
	struct sqlite_conn *c = reader_take(s);
	int r = sqlite_read_keys(c, arena, ret, ret_count);
	reader_return(s, c);
	return r;
}

/* --- the writer's transactions --- */

static void writer_take(struct store_sqlite *s)
{
	calls_enter(&s->calls);
	pthread_mutex_lock(&s->writer_lock);
}

static void writer_return(struct store_sqlite *s)
{
	pthread_mutex_unlock(&s->writer_lock);
	calls_leave(&s->calls);
}

static void trouble_note_locked(struct store_sqlite *s, enum trouble trouble, int rc)
{
	const char *what = trouble == TROUBLE_CHECKPOINT ? "moving the log into the file failed"
	                                                 : "the last write failed";
	char text[sizeof(s->trouble_text)];
	snprintf(text, sizeof(text), "%s: %s", s->path, what);
	sqlite_conn_fail(&s->writer, rc, text, &s->trouble_text);
	atomic_store(&s->trouble, trouble); /* pairs with the load in sqlite_ping */
}

static void trouble_over_locked(struct store_sqlite *s, enum trouble trouble)
{
	if (atomic_load(&s->trouble) == trouble)
		atomic_store(&s->trouble, TROUBLE_NONE);
}

/* Called by SQLite after each commit with the length of the log. */
static int wal_grown(void *arg, sqlite3 *db, const char *schema, int pages)
{
	(void)db;
	(void)schema;
	struct store_sqlite *s = arg;
	if (pages < s->wal_pages) /* the log was moved whole and begins anew */
		s->checkpoint_at_pages = CHECKPOINT_PAGES;
	s->wal_pages = pages;
	return SQLITE_OK;
}

/* Readers in the pool leave the log within microseconds; somebody else's may stay for hours. */
static int checkpoint_wait(void *arg, int tries)
{
	(void)arg;
	if (tries >= CHECKPOINT_WAITS_MAX)
		return 0;
	usleep(CHECKPOINT_WAIT_US);
	return 1;
}

/*
 * Moves the log into the file, and waits a moment for readers to leave it, so that the next write begins it
 * anew; without that wait, steady reading would let it grow without end. When a checkpoint fails, nothing is
 * lost: the log is kept, and a later try moves all of it again (a failed fsync is not repeated, its pages
 * are written anew).
 */
static void checkpoint_locked(struct store_sqlite *s)
{
	sqlite3 *db = s->writer.db;
	sqlite3_busy_handler(db, checkpoint_wait, NULL);
	int rc = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_RESTART, NULL, NULL);
	sqlite3_busy_timeout(db, SQLITE_BUSY_TIMEOUT_MS);
	s->checkpoint_at_pages = s->wal_pages + CHECKPOINT_STEP_PAGES;
	if (rc == SQLITE_OK)
		trouble_over_locked(s, TROUBLE_CHECKPOINT);
	else if ((rc & 0xff) != SQLITE_BUSY)
		trouble_note_locked(s, TROUBLE_CHECKPOINT, rc);
}

static int writer_open_locked(struct store_sqlite *s, struct err *e)
{
	if (s->writer.db)
		return 0;
	int r = sqlite_conn_open_writer(&s->writer, &link_file_layout, s->path, e);
	if (r == 0)
		sqlite3_wal_hook(s->writer.db, wal_grown, s);
	return r;
}

static void rollback_locked(struct store_sqlite *s)
{
	if (sqlite3_get_autocommit(s->writer.db))
		return; /* some errors roll back by themselves */
	if (sqlite_conn_run(&s->writer, SQL_ROLLBACK) != SQLITE_OK)
		sqlite_conn_close(&s->writer); /* which rolls back */
}

static int counter_set(struct sqlite_conn *c, struct str name, int64_t next)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_COUNTER_SET);
	query_str(&q, name);
	query_int(&q, next);
	return query_run(&q);
}

/* A durable write of no meaning. It lands in the log where a failed transaction had begun. */
static int seal_locked(struct store_sqlite *s)
{
	int rc = sqlite_conn_run(&s->writer, SQL_BEGIN_WRITE);
	if (rc == SQLITE_OK)
		rc = sqlite_conn_run(&s->writer, SQL_SEAL);
	if (rc == SQLITE_OK)
		rc = sqlite_conn_run(&s->writer, SQL_COMMIT);
	if (rc == SQLITE_OK)
		trouble_over_locked(s, TROUBLE_WRITE);
	else
		rollback_locked(s);
	return rc;
}

/*
 * What a failed COMMIT means. BUSY: nothing was written. FULL: a write was cut short, so the log's last frame
 * does not match its checksum and the transaction never was. Anything else may have come after the last
 * frame was written whole (its fsync, the growth of the shared index): SQLite takes the transaction back,
 * but the frames may lie in the log, and after a crash recovery would find and believe them.
 *
 * So leave this connection, as its descriptor's fsync must not be trusted again, and overwrite the frames
 * by a write through a new one. Once that is durable, nothing happened, for good. If it fails too, nobody
 * knows; the next write that succeeds will overwrite them just so.
 */
static int commit_failed_locked(struct store_sqlite *s, int rc)
{
	trouble_note_locked(s, TROUBLE_WRITE, rc);
	int primary = rc & 0xff;
	if (primary == SQLITE_BUSY || primary == SQLITE_FULL) {
		rollback_locked(s);
		return ERR_UNAVAILABLE;
	}
	sqlite_conn_close(&s->writer);
	if (writer_open_locked(s, NULL) == 0 && seal_locked(s) == SQLITE_OK)
		return sqlite_error(rc);
	return ERR_UNCERTAIN;
}

static int txn_begin_locked(struct store_sqlite *s)
{
	if (writer_open_locked(s, NULL) != 0)
		return ERR_UNAVAILABLE;
	int rc = sqlite_conn_run(&s->writer, SQL_BEGIN_WRITE);
	if (rc != SQLITE_OK) {
		trouble_note_locked(s, TROUBLE_WRITE, rc);
		rollback_locked(s);
	}
	return sqlite_error(rc);
}

/* Commits when `rc`, what the transaction's statements came to, is SQLITE_OK; otherwise rolls back. */
static int txn_end_locked(struct store_sqlite *s, int rc)
{
	if (rc != SQLITE_OK) {
		trouble_note_locked(s, TROUBLE_WRITE, rc);
		rollback_locked(s);
		return sqlite_error(rc);
	}
	rc = sqlite_conn_run(&s->writer, SQL_COMMIT);
	if (rc != SQLITE_OK)
		return commit_failed_locked(s, rc);
	trouble_over_locked(s, TROUBLE_WRITE);
	if (s->wal_pages >= s->checkpoint_at_pages)
		checkpoint_locked(s);
	return 0;
}

/* --- changes --- */

/* What the transaction's statements came to. */
static int changes_run(struct store_sqlite *s, struct view *v, const struct store_write *writes, size_t n,
                       struct store_outcome *outcomes, bool *ret_lost)
{
	struct sqlite_conn *c = &s->writer;
	memset(outcomes, 0, n * sizeof(*outcomes));
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++) { /* first: a link may be for a new user */
		if (!store_write_is_link(writes[i].kind))
			rc = sqlite_change_account(c, &writes[i], &outcomes[i]);
	}
	if (rc == SQLITE_OK)
		rc = sqlite_fetch_links(c, v);
	if (rc == SQLITE_OK)
		rc = sqlite_of_error(decide_links(v, writes, n, outcomes));
	if (rc == SQLITE_OK)
		rc = sqlite_write_links(c, v, ret_lost);
	return rc;
}

/* Once more for each id that is taken, which is a bug of whoever gave it out. */
static int apply_locked(struct store_sqlite *s, struct view *v, const struct store_write *writes, size_t n,
                        struct store_outcome *outcomes)
{
	for (;;) {
		bool lost = false;
		int r = txn_begin_locked(s);
		if (r != 0)
			return r;
		int rc = changes_run(s, v, writes, n, outcomes, &lost);
		if (rc != SQLITE_OK || !lost)
			return txn_end_locked(s, rc);
		rollback_locked(s);
	}
}

static int sqlite_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_sqlite *s = self(base);
	if (n == 0)
		return 0;
	struct view v;
	struct store_outcome *outcomes = malloc(n * sizeof(*outcomes));
	int r = view_init(&v, &s->rules, writes, n);
	if (!outcomes)
		r = ERR_NOMEM;
	if (r == 0) {
		writer_take(s);
		r = apply_locked(s, &v, writes, n, outcomes);
		writer_return(s);
	}
	view_release(&v);
	for (size_t i = 0; r == 0 && i < n; i++)
		outcome_publish(&outcomes[i], &writes[i]);
	free(outcomes);
	return r;
}

/* --- click totals --- */

static int clicks_set(struct sqlite_conn *c, const struct store_count *count)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CLICKS_SET);
	query_int(&q, (int64_t)count->id);
	query_int(&q, (int64_t)count->clicks);
	return query_run(&q);
}

static int set_clicks_locked(struct store_sqlite *s, const struct store_count *counts, size_t n)
{
	int r = txn_begin_locked(s);
	if (r != 0)
		return r;
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
		if (id_is_valid(counts[i].id))
			rc = clicks_set(&s->writer, &counts[i]);
	}
	return txn_end_locked(s, rc);
}

static int sqlite_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct store_sqlite *s = self(base);
	(void)node; /* there is one only */
	ASSERT(n <= STORE_COUNTS_MAX);
	if (n == 0)
		return 0;
	writer_take(s);
	int r = set_clicks_locked(s, counts, n);
	writer_return(s);
	return r;
}

/* --- counters and constants --- */

static int lease_locked(struct store_sqlite *s, struct str counter, int64_t count, int64_t *ret_first)
{
	int r = txn_begin_locked(s);
	if (r != 0)
		return r;
	int64_t next;
	int rc = sqlite_counter_next(&s->writer, counter, ret_first);
	if (rc == SQLITE_OK && __builtin_add_overflow(*ret_first, count, &next)) {
		rollback_locked(s);
		return ERR_LIMIT;
	}
	if (rc == SQLITE_OK)
		rc = counter_set(&s->writer, counter, next);
	return txn_end_locked(s, rc);
}

static int sqlite_lease(struct store *base, struct str counter, uint64_t count, uint64_t *ret_first)
{
	struct store_sqlite *s = self(base);
	int64_t first;
	if (counter.len == 0 || count == 0)
		return ERR_INVALID;
	if (count > INT64_MAX)
		return ERR_LIMIT;
	writer_take(s);
	int r = lease_locked(s, counter, (int64_t)count, &first);
	writer_return(s);
	if (r == 0)
		*ret_first = (uint64_t)first;
	return r;
}

/* ERR_NOT_FOUND in *ret_result: there is none of that name. */
static int constant_get(struct sqlite_conn *c, struct str name, void *value, size_t len, int *ret_result)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CONSTANT_GET);
	query_str(&q, name);
	bool found;
	int rc = query_find(&q, &found);
	*ret_result = found ? ERR_CORRUPT : ERR_NOT_FOUND;
	if (!found)
		return rc;
	if ((size_t)sqlite3_column_bytes(q.stmt, 0) != len)
		return SQLITE_OK;
	const void *stored = sqlite3_column_blob(q.stmt, 0);
	if (!stored && len > 0)
		return SQLITE_NOMEM;
	if (len > 0)
		memcpy(value, stored, len);
	*ret_result = 0;
	return SQLITE_OK;
}

static int constant_put(struct sqlite_conn *c, struct str name, const void *value, size_t len)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CONSTANT_PUT);
	query_str(&q, name);
	query_blob(&q, value, len);
	return query_run(&q);
}

static int constant_locked(struct store_sqlite *s, struct str name, void *value, size_t len)
{
	int r = txn_begin_locked(s);
	if (r != 0)
		return r;
	int result;
	int rc = constant_get(&s->writer, name, value, len, &result);
	if (rc == SQLITE_OK && result == ERR_NOT_FOUND) {
		rc = constant_put(&s->writer, name, value, len);
		result = 0;
	}
	r = txn_end_locked(s, rc);
	return r ? r : result;
}

static int sqlite_constant(struct store *base, struct str name, void *value, size_t len)
{
	struct store_sqlite *s = self(base);
	writer_take(s);
	int r = constant_locked(s, name, value, len);
	writer_return(s);
	return r;
}

/* --- health and life --- */

/* After a failure only a write can tell whether writing works again, and nobody may be writing: a server
 * that is not ready gets no requests. */
static int probe_locked(struct store_sqlite *s, struct err *e)
{
	if (writer_open_locked(s, NULL) == 0) {
		int rc = seal_locked(s);
		if (rc != SQLITE_OK)
			trouble_note_locked(s, TROUBLE_WRITE, rc);
		else if (atomic_load(&s->trouble) == TROUBLE_CHECKPOINT)
			checkpoint_locked(s);
	}
	if (atomic_load(&s->trouble) == TROUBLE_NONE)
		return 0;
	return err_set(e, ERR_UNAVAILABLE, "%s", s->trouble_text.text);
}

static int ping_read(struct store_sqlite *s, struct err *e)
{
	struct sqlite_conn *c = reader_take(s);
	int64_t next;
	int rc = sqlite_counter_next(c, STR("any"), &next);
	int r = rc == SQLITE_OK ? 0 : sqlite_conn_fail(c, rc, s->path, e);
	reader_return(s, c);
	return r;
}

static int ping_write(struct store_sqlite *s, struct err *e)
{
	writer_take(s);
	int r = probe_locked(s, e);
	writer_return(s);
	return r;
}

static int sqlite_ping(struct store *base, struct err *e)
{
	struct store_sqlite *s = self(base);
	calls_enter(&s->calls); /* for both halves */
	int r = ping_read(s, e);
	if (r == 0 && atomic_load(&s->trouble) != TROUBLE_NONE)
		r = ping_write(s, e);
	calls_leave(&s->calls);
	return r;
}

static void sqlite_free(struct store *base)
{
	struct store_sqlite *s = self(base);
	calls_wait(&s->calls);
	for (size_t i = 0; i < READERS; i++)
		sqlite_conn_close(&s->readers[i]);
	sqlite_conn_close(&s->writer); /* the last one: moves the log into the file and removes it */
	if (s->lock_fd >= 0)
		os_sys.close(s->lock_fd);
	pthread_cond_destroy(&s->pool_returned);
	pthread_mutex_destroy(&s->pool_lock);
	pthread_mutex_destroy(&s->writer_lock);
	free(s->path);
	free(s);
}

static const struct store_ops sqlite_ops = {
    .free = sqlite_free,
    .lookup = sqlite_lookup,
    .apply = sqlite_apply,
    .list = sqlite_list,
    .tagged = sqlite_tagged,
    .set_clicks = sqlite_set_clicks,
    .permitted = sqlite_permitted,
    .over = sqlite_over,
    .users = sqlite_users,
    .user = sqlite_user,
    .sessions = sqlite_sessions,
    .keys = sqlite_keys,
    .lease = sqlite_lease,
    .constant = sqlite_constant,
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
static int file_take(struct store_sqlite *s, struct err *e)
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

int store_sqlite_open(const char *path, struct store **ret, struct err *e)
{
	struct store_sqlite *s = calloc(1, sizeof(*s));
	if (!s || !(s->path = plain_path(path))) {
		free(s);
		return err_set(e, ERR_NOMEM, "%s: memory ran out", path);
	}
	s->base.ops = &sqlite_ops;
	ASSERT(getrandom(&s->rules.hash_seed, sizeof(s->rules.hash_seed), 0) == sizeof(s->rules.hash_seed));
	s->checkpoint_at_pages = CHECKPOINT_PAGES;
	s->lock_fd = -1;
	pthread_mutex_init(&s->writer_lock, NULL);
	pthread_mutex_init(&s->pool_lock, NULL);
	pthread_cond_init(&s->pool_returned, NULL);
	int r = file_take(s, e);
	if (r == 0) {
		sqlite_file_create(s->path);
		r = writer_open_locked(s, e);
	}
	for (size_t i = 0; i < READERS; i++) {
		if (r == 0)
			r = sqlite_conn_open_reader(&s->readers[i], &link_file_layout, s->path, e);
		s->idle[s->idle_count++] = &s->readers[i];
	}
	if (r != 0) {
		sqlite_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}
