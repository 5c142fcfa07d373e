/* Files and folders as a whole, for the control plane. Error messages name the path and the fix. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Appends the file's bytes to `out`; ERR_LIMIT beyond `bytes_max`, ERR_NOT_FOUND when there is none. */
int file_read(const char *path, size_t bytes_max, struct buf *out, struct err *e);

/* Replaces the file in one step that survives power loss: temporary, fsync, rename, fsync of the folder.
 * Readers see the old file or the new one, never a part. */
int file_write_atomic(const char *path, struct str data, mode_t mode, struct err *e);

int dir_create(const char *path, mode_t mode, struct err *e); /* and its parents; an existing one is fine */
int dir_sync(const char *path, struct err *e);

/* Takes an exclusive flock on `path`, creating it; ERR_BUSY when another process has it. The lock
 * lives as long as the returned descriptor. */
int file_lock(const char *path, int *ret_fd, struct err *e);
