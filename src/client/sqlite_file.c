#include "client/sqlite_file.h"
#include "os/file.h"
#include "os/sys.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHECKPOINT_WAITS_MAX = 10, CHECKPOINT_WAIT_US = 100 };

/* What ping reports: nothing, or the failure that no success of the same kind has followed yet. */
enum trouble { TROUBLE_NONE, TROUBLE_WRITE, TROUBLE_CHECKPOINT };

struct sqlite_file {
	struct sqlite_file_config config;
	char *path;
	int lock_fd;       /* on FILE.lock, or -1 */
	atomic_uint calls; /* under way, also those that wait for a lock */

	pthread_mutex_t writer_lock; /* guards the next five; `trouble` may be read without */
	struct sqlite_conn writer;   /* closed after a failed COMMIT, until it can be opened again */
	int wal_pages;
	int checkpoint_at_pages;
	struct err trouble_text;
	_Atomic enum trouble trouble;

	pthread_mutex_t pool_lock; /* guards `idle`; a lent reader is its borrower's */
	pthread_cond_t pool_returned;
	struct sqlite_conn readers[SQLITE_FILE_READERS]; /* always open */
	struct sqlite_conn *idle[SQLITE_FILE_READERS];
	size_t idle_count;
};

static void call_enter(struct sqlite_file *f)
{
	atomic_fetch_add_explicit(&f->calls, 1, memory_order_relaxed);
}

static void call_leave(struct sqlite_file *f) /* touches nothing of the file afterwards */
{
	atomic_fetch_sub_explicit(&f->calls, 1, memory_order_release); /* pairs with sqlite_file_free */
}

/* --- readers --- */

/* Fails only when memory runs out; then the next borrower tries again. */
static void snapshot_end(struct sqlite_conn *c)
{
	if (!sqlite3_get_autocommit(c->db))
		sqlite_conn_run(c, SQL_ROLLBACK);
}

struct sqlite_read sqlite_file_read_begin(struct sqlite_file *f)
{
	call_enter(f);
	pthread_mutex_lock(&f->pool_lock);
	while (f->idle_count == 0)
		pthread_cond_wait(&f->pool_returned, &f->pool_lock);
	struct sqlite_conn *c = f->idle[--f->idle_count]; /* the one returned last has a warm cache */
	pthread_mutex_unlock(&f->pool_lock);
	snapshot_end(c);
	return (struct sqlite_read){.file = f, .conn = c};
}

struct sqlite_read sqlite_file_snapshot_begin(struct sqlite_file *f)
{
	struct sqlite_read read = sqlite_file_read_begin(f);
	read.rc = sqlite_conn_run(read.conn, SQL_BEGIN_READ);
	return read;
}

void sqlite_file_read_end(struct sqlite_read *read)
{
	struct sqlite_file *f = read->file;
	snapshot_end(read->conn);
	pthread_mutex_lock(&f->pool_lock);
	f->idle[f->idle_count++] = read->conn;
	pthread_cond_signal(&f->pool_returned);
	pthread_mutex_unlock(&f->pool_lock);
	call_leave(f);
}

/* --- the writer --- */

static void writer_lock(struct sqlite_file *f)
{
	call_enter(f);
	pthread_mutex_lock(&f->writer_lock);
}

static void writer_unlock(struct sqlite_file *f)
{
	pthread_mutex_unlock(&f->writer_lock);
	call_leave(f);
}

static void trouble_note_locked(struct sqlite_file *f, enum trouble trouble, int rc)
{
	const char *what = trouble == TROUBLE_CHECKPOINT ? "moving the log into the file failed"
	                                                 : "the last write failed";
	char text[sizeof(f->trouble_text)];
	snprintf(text, sizeof(text), "%s: %s", f->path, what);
	sqlite_conn_fail(&f->writer, rc, text, &f->trouble_text);
	atomic_store(&f->trouble, trouble); /* pairs with the load in sqlite_file_ping */
}

static void trouble_over_locked(struct sqlite_file *f, enum trouble trouble)
{
	if (atomic_load(&f->trouble) == trouble)
		atomic_store(&f->trouble, TROUBLE_NONE);
}

/* SQLite calls it after each commit that wrote something, with the length of the log. */
static int wal_grown(void *arg, sqlite3 *db, const char *schema, int pages)
{
	(void)db;
	(void)schema;
	struct sqlite_file *f = arg;
	if (pages < f->wal_pages) /* the log was moved whole and begins anew */
		f->checkpoint_at_pages = f->config.checkpoint_pages;
	f->wal_pages = pages;
	trouble_over_locked(f, TROUBLE_WRITE);
	return SQLITE_OK;
}

/* Readers of the pool leave the log soon; those of another program may stay for hours. */
static int checkpoint_wait(void *arg, int tries)
{
	(void)arg;
	if (tries >= CHECKPOINT_WAITS_MAX)
		return 0;
	usleep(CHECKPOINT_WAIT_US);
	return 1;
}

static void checkpoint_note_locked(struct sqlite_file *f, int rc)
{
	if (rc == SQLITE_OK)
		trouble_over_locked(f, TROUBLE_CHECKPOINT);
	else if ((rc & 0xff) != SQLITE_BUSY && atomic_load(&f->trouble) != TROUBLE_WRITE)
		trouble_note_locked(f, TROUBLE_CHECKPOINT, rc); /* which a failed write outweighs */
}

static void checkpoint_locked(struct sqlite_file *f)
{
	sqlite3 *db = f->writer.db;
	sqlite3_busy_handler(db, checkpoint_wait, NULL);
	int rc = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_RESTART, NULL, NULL);
	sqlite3_busy_timeout(db, SQLITE_BUSY_TIMEOUT_MS);
	f->checkpoint_at_pages = f->wal_pages + f->config.checkpoint_pages / 10;
	checkpoint_note_locked(f, rc);
}

static int writer_open_locked(struct sqlite_file *f, struct err *e)
{
	if (f->writer.db)
		return 0;
	int r = sqlite_conn_open_writer(&f->writer, f->config.layout, f->path, e);
	if (r == 0)
		sqlite3_wal_hook(f->writer.db, wal_grown, f);
	return r;
}

static int writer_reopen_locked(struct sqlite_file *f)
{
	if (writer_open_locked(f, &f->trouble_text) == 0)
		return 0;
	atomic_store(&f->trouble, TROUBLE_WRITE);
	return ERR_UNAVAILABLE;
}

static void rollback_locked(struct sqlite_file *f)
{
	if (sqlite3_get_autocommit(f->writer.db))
		return; /* some errors roll back by themselves */
	if (sqlite_conn_run(&f->writer, SQL_ROLLBACK) != SQLITE_OK)
		sqlite_conn_close(&f->writer); /* which rolls back */
}

/* Writes the first page as it is. */
static int seal_locked(struct sqlite_file *f)
{
	char sql[64];
	snprintf(sql, sizeof(sql), "PRAGMA application_id = %d", f->config.layout->application_id);
	int rc = sqlite3_exec(f->writer.db, sql, NULL, NULL, NULL);
	if (rc != SQLITE_OK) {
		trouble_note_locked(f, TROUBLE_WRITE, rc);
		sqlite_conn_close(&f->writer);
	}
	return rc;
}

static int commit_failed_locked(struct sqlite_file *f, int rc)
{
	int r = sqlite_error(rc), primary = rc & 0xff;
	if (primary == SQLITE_BUSY || primary == SQLITE_FULL) {
		rollback_locked(f);
	} else {
		sqlite_conn_close(&f->writer);
		if (writer_reopen_locked(f) != 0 || seal_locked(f) != SQLITE_OK)
			r = ERR_UNCERTAIN;
	}
	trouble_note_locked(f, TROUBLE_WRITE, rc); /* last: the seal's success is not the owner's */
	return r;
}

static int begin_locked(struct sqlite_file *f)
{
	int r = writer_reopen_locked(f);
	if (r != 0)
		return r;
	int rc = sqlite_conn_run(&f->writer, SQL_BEGIN_WRITE);
	if (rc != SQLITE_OK) {
		trouble_note_locked(f, TROUBLE_WRITE, rc);
		rollback_locked(f);
	}
	return sqlite_error(rc);
}

static int end_locked(struct sqlite_file *f, int rc)
{
	if (rc != SQLITE_OK) {
		trouble_note_locked(f, TROUBLE_WRITE, rc);
		rollback_locked(f);
		return sqlite_error(rc);
	}
	rc = sqlite_conn_run(&f->writer, SQL_COMMIT);
	if (rc != SQLITE_OK)
		return commit_failed_locked(f, rc);
	if (f->wal_pages >= f->checkpoint_at_pages)
		checkpoint_locked(f);
	return 0;
}

int sqlite_file_write_begin(struct sqlite_file *f, struct sqlite_conn **ret)
{
	writer_lock(f);
	int r = begin_locked(f);
	if (r == 0)
		*ret = &f->writer;
	else
		writer_unlock(f);
	return r;
}

int sqlite_file_write_end(struct sqlite_file *f, int rc)
{
	int r = end_locked(f, rc);
	writer_unlock(f);
	return r;
}

/* This checkpoint syncs the log before it moves it, and the file after. */
int sqlite_file_settle(struct sqlite_file *f)
{
	int log = 0, moved = 0;
	writer_lock(f);
	int r = writer_reopen_locked(f);
	if (r == 0) {
		int rc = sqlite3_wal_checkpoint_v2(f->writer.db, "main", SQLITE_CHECKPOINT_FULL, &log,
		                                   &moved);
		checkpoint_note_locked(f, rc);
		r = rc == SQLITE_OK && log == moved ? 0 : ERR_UNAVAILABLE;
	}
	writer_unlock(f);
	return r;
}

/* --- health --- */

static int ping_read(struct sqlite_file *f, struct err *e)
{
	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_read_begin(f);
	CLEANUP(query_end) struct query q = query_begin(read.conn, SQL_PING);
	bool found;
	int rc = query_find(&q, &found);
	return rc == SQLITE_OK ? 0 : sqlite_conn_fail(read.conn, rc, f->path, e);
}

/* Only a write can tell whether writing works again. */
static int ping_write(struct sqlite_file *f, struct err *e)
{
	writer_lock(f);
	if (f->config.ping_writes && writer_reopen_locked(f) == 0)
		seal_locked(f);
	if (atomic_load(&f->trouble) == TROUBLE_CHECKPOINT && f->writer.db)
		checkpoint_locked(f);
	int r = 0;
	if (atomic_load(&f->trouble) != TROUBLE_NONE)
		r = err_set(e, ERR_UNAVAILABLE, "%s", f->trouble_text.text);
	writer_unlock(f);
	return r;
}

int sqlite_file_ping(struct sqlite_file *f, struct err *e)
{
	call_enter(f); /* for both halves */
	int r = ping_read(f, e);
	if (r == 0 && atomic_load(&f->trouble) != TROUBLE_NONE)
		r = ping_write(f, e);
	call_leave(f);
	return r;
}

/* --- life --- */

/* SQLite gives "file:x", ":memory:" and "" meanings of their own; with a folder in front they are plain
 * names.
 */
static char *plain_path(const char *path)
{
	char *plain;
	return asprintf(&plain, "%s%s", path[0] == '/' ? "" : "./", path) < 0 ? NULL : plain;
}

/* For this process alone. */
static int file_take(struct sqlite_file *f, struct err *e)
{
	char *lock;
	if (asprintf(&lock, "%s.lock", f->path) < 0)
		return err_set(e, ERR_NOMEM, "%s: out of memory", f->path);
	int r = file_lock(lock, &f->lock_fd, e);
	if (r == ERR_BUSY)
		err_set(e, r, "%s is in use by another process; stop it, or name another file", f->path);
	free(lock);
	return r == ERR_NOT_FOUND ? ERR_UNAVAILABLE : r; /* there is no such folder */
}

/*
 * An empty file is a database without a layout yet. SQLite would create it for all to read, and what people
 * keep behind their links is private; the log takes the file's mode. O_EXCL: closing a second descriptor of a
 * file that SQLite has open would drop its locks. If this fails, SQLite fails at it, too, and says why.
 */
static void file_create(const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
}

int sqlite_file_open(const struct sqlite_file_config *config, struct sqlite_file **ret, struct err *e)
{
	struct sqlite_file *f = calloc(1, sizeof(*f));
	if (!f || !(f->path = plain_path(config->path))) {
		free(f);
		return err_set(e, ERR_NOMEM, "%s: out of memory", config->path);
	}
	f->config = *config;
	f->checkpoint_at_pages = config->checkpoint_pages;
	f->lock_fd = -1;
	pthread_mutex_init(&f->writer_lock, NULL);
	pthread_mutex_init(&f->pool_lock, NULL);
	pthread_cond_init(&f->pool_returned, NULL);
	int r = file_take(f, e);
	if (r == 0) {
		file_create(f->path);
		r = writer_open_locked(f, e);
	}
	for (size_t i = 0; i < SQLITE_FILE_READERS; i++) {
		if (r == 0)
			r = sqlite_conn_open_reader(&f->readers[i], config->layout, f->path, e);
		f->idle[f->idle_count++] = &f->readers[i];
	}
	if (r == 0)
		*ret = f;
	else
		sqlite_file_free(f);
	return r;
}

void sqlite_file_free(struct sqlite_file *f)
{
	if (!f)
		return;
	while (atomic_load_explicit(&f->calls, memory_order_acquire) > 0) /* pairs with call_leave */
		sched_yield();
	for (size_t i = 0; i < SQLITE_FILE_READERS; i++)
		sqlite_conn_close(&f->readers[i]);
	sqlite_conn_close(&f->writer); /* the last one: moves the log into the file and removes it */
	if (f->lock_fd >= 0)
		os_sys.close(f->lock_fd);
	pthread_cond_destroy(&f->pool_returned);
	pthread_mutex_destroy(&f->pool_lock);
	pthread_mutex_destroy(&f->writer_lock);
	free(f->path);
	free(f);
}
