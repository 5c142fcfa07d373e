/*
 * A SQLite file that this process owns: one writing connection, a few that read, and what holds when the disk
 * fails. What is in the file is the owner's business, in a `struct sqlite_layout` (client/sqlite.h).
 *
 * Connections. One connection writes and checkpoints; all others are read-only, because SQLite before 3.51.3
 * can lose pages when a write meets a checkpoint from another connection. For the same reason, and because
 * caches would miss each other's changes, a lock on FILE.lock keeps other processes out.
 *
 * Threads. Any thread may call. Writes take turns: `writer_lock` is held from write_begin to write_end.
 * Readers come from a pool of SQLITE_FILE_READERS; a call waits when all of them are lent out. Lock order:
 * `writer_lock` and `pool_lock` are never held together inside this module, and no thread begins a second
 * read or write before it has ended the first. `free` waits until calls under way have ended.
 *
 * The log. The file is in WAL mode. When the log has reached `checkpoint_pages` after a commit, it is moved
 * into the file, and the writer waits up to a millisecond for readers to leave it, so that the next write
 * starts it anew: without that wait, steady reading would let it grow without end. A log that could not be
 * moved whole is tried again after a tenth more. A failed checkpoint loses nothing: the log is kept, and a
 * later try writes all its pages again instead of trusting a second fsync.
 *
 * Errors of writes:
 *   ERR_UNAVAILABLE, ERR_NOMEM, ERR_CORRUPT   nothing was written, for good; may be retried
 *   ERR_UNCERTAIN                             as below: nothing can be seen of it, but a crash may change
 * that
 *
 * What a failed COMMIT means. BUSY: nothing was written. FULL: a write was cut short, so the log's last frame
 * does not match its checksum, and recovery ignores the transaction. Any other error may have come after the
 * last frame was written whole (from its fsync, or from the growth of the shared index). SQLite takes the
 * transaction back then, but its frames may lie in the log, and recovery after a crash would believe them.
 *
 * In this process nobody will: recovery runs only when the first connection opens a file, and the readers
 * stay open, so the shared index that says where the log ends outlives the writer. So write_end closes the
 * writing connection, whose fsync must not be trusted again, opens a new one, and overwrites the frames by a
 * durable write of no meaning, the seal. Once that is done, the transaction did not happen, for good, and its
 * own error is returned. If that fails as well, the answer is ERR_UNCERTAIN until a later write succeeds:
 * each begins where the failed one began. (With synchronous=NORMAL the seal is as durable as commits are:
 * from the next checkpoint on.)
 */
#pragma once

#include "client/sqlite.h"

enum { SQLITE_FILE_READERS = 4 };

struct sqlite_file_config {
	const char *path; /* copied; always a name in the file system, also ":memory:" and "file:x" */
	const struct sqlite_layout *layout;
	/* Length of the log, in pages of 4 KB, that starts a checkpoint. Larger moves a page that changes
	 * often less often; smaller keeps the log, and what a crash leaves to recover, short. */
	int checkpoint_pages;
	/* After a failed write, ping writes a seal to find out whether writing works again. For an owner that
	 * gets no writes while it is not ready. One that retries by itself does without: its own next write
	 * tells more. */
	bool ping_writes;
};

struct sqlite_file;

/* Makes the file when there is none, brings an older one up to its layout. ERR_BUSY: another process has it.
 * ERR_INVALID: it is not ours, and was not changed. */
int sqlite_file_open(const struct sqlite_file_config *config, struct sqlite_file **ret, struct err *e);
void sqlite_file_free(struct sqlite_file *f); /* moves the log into the file and removes it */

/*
 * A lent reader. Each statement sees what was committed before it began; in a snapshot all of them see the
 *same.
 *
 *	CLEANUP(sqlite_file_read_end) struct sqlite_read read = sqlite_file_snapshot_begin(f);
 *	return sqlite_error(read.rc ? read.rc : find(read.conn, …));
 */
struct sqlite_read {
	struct sqlite_file *file;
	struct sqlite_conn *conn;
	int rc; /* SQLITE_OK, or why the snapshot could not begin */
};

struct sqlite_read sqlite_file_read_begin(struct sqlite_file *f); /* rc is SQLITE_OK */
struct sqlite_read sqlite_file_snapshot_begin(struct sqlite_file *f);
void sqlite_file_read_end(struct sqlite_read *read); /* ends an open snapshot, too */

/*
 * A write transaction. When write_begin has succeeded, write_end must follow, by the same thread, with what
 *the transaction's statements came to: SQLITE_OK commits, anything else rolls back.
 *
 *	struct sqlite_conn *c;
 *	int r = sqlite_file_write_begin(f, &c);
 *	return r ? r : sqlite_file_write_end(f, insert(c, …));
 */
int sqlite_file_write_begin(struct sqlite_file *f, struct sqlite_conn **ret);
int sqlite_file_write_end(struct sqlite_file *f, int rc);

/* Moves the whole log into the file: after it, all that was committed survives power loss, also with
 * synchronous=NORMAL. ERR_UNAVAILABLE: not all of it, or not for certain. */
int sqlite_file_settle(struct sqlite_file *f);

/* 0 when the file can be read and the last write and checkpoint worked. A failed checkpoint is tried again, a
 * failed write when the config says so. */
int sqlite_file_ping(struct sqlite_file *f, struct err *e);
