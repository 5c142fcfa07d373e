#include "os/file.h"

#include "os/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 65536 };

struct fault {
	int error;
	int code;
	const char *advice;
};

/* The code for the caller, and advice for the operator. Any other errno is UNAVAILABLE. */
static const struct fault faults[] = {
    {ENOENT, ERR_NOT_FOUND, "check the path"},
    {EACCES, ERR_UNAVAILABLE, "give this user access to it"},
    {EPERM, ERR_UNAVAILABLE, "give this user access to it"},
    {EROFS, ERR_UNAVAILABLE, "use a writable folder"},
    {ENOSPC, ERR_UNAVAILABLE, "free some space"},
    {EDQUOT, ERR_UNAVAILABLE, "free some space or raise the quota"},
    {EMFILE, ERR_UNAVAILABLE, "raise the limit on open files (ulimit -n)"},
    {ENFILE, ERR_UNAVAILABLE, "raise the system's limit on open files (fs.file-max)"},
    {EIO, ERR_UNAVAILABLE, "the device failed: see the kernel's log"},
    {ENOTDIR, ERR_INVALID, "a part of the path is not a folder"},
    {EISDIR, ERR_INVALID, "name a file, not a folder"},
    {ENAMETOOLONG, ERR_INVALID, "use a shorter path"},
    {ELOOP, ERR_INVALID, "its symbolic links form a loop"},
    {ENOMEM, ERR_NOMEM, "free some memory"},
};

static int fail(struct err *e, int error, const char *verb, const char *path)
{
	const char *reason = strerrordesc_np(error);
	if (!reason)
		reason = "unknown error";
	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		if (faults[i].error == error)
			return err_set(e, faults[i].code, "cannot %s %s: %s; %s", verb, path, reason,
			               faults[i].advice);
	}
	return err_set(e, ERR_UNAVAILABLE, "cannot %s %s: %s", verb, path, reason);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		os_sys.close(*fd);
}

static int open_retry(const char *path, int flags, mode_t mode)
{
	int fd;
	do
		fd = os_sys.open(path, flags | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return fd;
}

static int read_all(int fd, const char *path, size_t bytes_max, struct buf *out, struct err *e)
{
	size_t start = out->len;
	for (;;) {
		/* One byte more than allowed, to notice a file that is too long. */
		size_t room = MIN((size_t)READ_BYTES, bytes_max - (out->len - start)) + 1;
		char *to = buf_reserve(out, room);
		if (!to)
			return err_set(e, ERR_NOMEM, "cannot read %s: memory ran out", path);
		ssize_t n = os_sys.read(fd, to, room);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(e, errno, "read", path);
		if (n == 0)
			return 0;
		out->len += (size_t)n;
		if (out->len - start > bytes_max)
			return err_set(e, ERR_LIMIT, "%s is longer than %zu bytes: shorten it", path,
			               bytes_max);
	}
}

int file_read(const char *path, size_t bytes_max, struct buf *out, struct err *e)
{
	CLEANUP(close_fd) int fd = open_retry(path, O_RDONLY, 0);
	if (fd < 0)
		return fail(e, errno, "open", path);
	size_t start = out->len;
	int r = read_all(fd, path, bytes_max, out, e);
	if (r < 0)
		out->len = start;
	return r;
}

/* The folder that holds `path`; false when the path is too long for the system anyway. */
static bool parent_of(const char *path, char out[PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 1;
	if (len >= PATH_MAX)
		return false;
	if (!slash)
		out[0] = '.';
	else if (len == 0)
		out[len++] = '/';
	else
		memcpy(out, path, len);
	out[len] = '\0';
	return true;
}

static int write_all(int fd, struct str data)
{
	while (data.len > 0) {
		ssize_t n = os_sys.write(fd, data.ptr, data.len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		if (n == 0)
			return ENOSPC;
		data = str_n(data.ptr + n, data.len - (size_t)n);
	}
	return 0;
}

/* Writes and syncs a file that did not exist; returns 0 or an errno. */
static int write_new(const char *path, struct str data, mode_t mode)
{
	int fd = open_retry(path, O_WRONLY | O_CREAT | O_EXCL, mode);
	if (fd < 0)
		return errno;
	int error = write_all(fd, data);
	if (!error && os_sys.fsync(fd) < 0)
		error = errno; /* never retried: the kernel may have marked the pages clean */
	os_sys.close(fd);
	return error;
}

int file_write_atomic(const char *path, struct str data, mode_t mode, struct err *e)
{
	char folder[PATH_MAX], temporary[PATH_MAX];
	/* A thread id is unique in the system, so no two writers share a temporary. One that a killed process
	 * left under this name is removed first. */
	int len = snprintf(temporary, sizeof(temporary), "%s.%d.tmp", path, (int)gettid());
	if (len < 0 || (size_t)len >= sizeof(temporary) || !parent_of(path, folder))
		return fail(e, ENAMETOOLONG, "write", path);
	os_sys.unlink(temporary);
	int error = write_new(temporary, data, mode);
	if (!error && os_sys.rename(temporary, path) < 0)
		error = errno;
	if (error) {
		os_sys.unlink(temporary);
		return fail(e, error, "write", path);
	}
	struct err why;
	if (dir_sync(folder, &why) < 0)
		return err_set(e, ERR_UNCERTAIN, "%s is written but may not survive a power loss: %.300s",
		               path, why.text);
	return 0;
}

int dir_sync(const char *path, struct err *e)
{
	CLEANUP(close_fd) int fd = open_retry(path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fail(e, errno, "open the folder", path);
	if (os_sys.fsync(fd) < 0 && errno != EINVAL) /* EINVAL: this file system syncs names by itself */
		return fail(e, errno, "sync the folder", path);
	return 0;
}

static int dir_create_one(const char *path, mode_t mode, struct err *e)
{
	if (mkdir(path, mode) < 0) {
		int error = errno;
		struct stat st;
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			return 0;
		return fail(e, error == EEXIST ? ENOTDIR : error, "create the folder", path);
	}
	char folder[PATH_MAX];
	if (!parent_of(path, folder))
		return fail(e, ENAMETOOLONG, "create the folder", path);
	return dir_sync(folder, e); /* otherwise power loss could take the folder and all inside */
}

int dir_create(const char *path, mode_t mode, struct err *e)
{
	char part[PATH_MAX];
	size_t len = strlen(path);
	if (len == 0)
		return err_set(e, ERR_INVALID, "cannot create a folder without a name");
	if (len >= sizeof(part))
		return fail(e, ENAMETOOLONG, "create the folder", path);
	for (size_t i = 1; i <= len; i++) {
		if ((path[i] != '/' && path[i] != '\0') || path[i - 1] == '/')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		int r = dir_create_one(part, mode, e);
		if (r < 0)
			return r;
	}
	return 0;
}

int file_lock(const char *path, int *ret_fd, struct err *e)
{
	int fd = open_retry(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return fail(e, errno, "open", path);
	int r;
	do
		r = flock(fd, LOCK_EX | LOCK_NB);
	while (r < 0 && errno == EINTR);
	if (r < 0) {
		int error = errno;
		os_sys.close(fd);
		if (error == EWOULDBLOCK)
			return err_set(e, ERR_BUSY,
			               "%s is locked by another process: stop that one or use another folder",
			               path);
		return fail(e, error, "lock", path);
	}
	*ret_fd = fd;
	return 0;
}
