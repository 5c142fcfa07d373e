#include "lib/sqlite_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FILES_MAX = 1024, PATH_BYTES = 512 };

static struct sqlite_fault fault;
static bool armed;
static unsigned long calls[SQLITE_SYS_CALLS];
static void (*watcher)(const struct sqlite_event *);
static char paths[FILES_MAX][PATH_BYTES]; /* by descriptor */
static sqlite3_mem_methods real_memory;

/* Counts the call; true when it shall fail. */
static bool fails(enum sqlite_sys_call call)
{
	unsigned long number = ++calls[call];
	return armed && fault.call == call && (fault.for_good ? number >= fault.at : number == fault.at);
}

static void tell(int kind, const char *path, off_t at, const void *data, size_t len)
{
	struct sqlite_event event = {.path = path, .at = at, .data = data, .len = len};
	event.kind = kind;
	if (watcher)
		watcher(&event);
}

static const char *path_of(int fd)
{
	return fd >= 0 && fd < FILES_MAX ? paths[fd] : "";
}

static int sys_open(const char *path, int flags, int mode)
{
	if (fails(SQLITE_SYS_OPEN)) {
		errno = fault.error;
		return -1;
	}
	int fd = open(path, flags, mode);
	if (fd >= 0 && fd < FILES_MAX)
		snprintf(paths[fd], PATH_BYTES, "%s", path);
	return fd;
}

static ssize_t sys_pread(int fd, void *data, size_t len, off_t at)
{
	if (fails(SQLITE_SYS_READ)) {
		errno = fault.error;
		return -1;
	}
	return pread(fd, data, len, at);
}

static ssize_t sys_read(int fd, void *data, size_t len)
{
	if (fails(SQLITE_SYS_READ)) {
		errno = fault.error;
		return -1;
	}
	return read(fd, data, len);
}

static ssize_t sys_pwrite(int fd, const void *data, size_t len, off_t at)
{
	if (fails(SQLITE_SYS_WRITE)) {
		if (fault.half && len > 1) { /* and the rest fails, when SQLite asks for it */
			fault.half = false;
			fault.at++;
			return pwrite(fd, data, len / 2, at);
		}
		errno = fault.error;
		return -1;
	}
	ssize_t written = pwrite(fd, data, len, at);
	if (written > 0)
		tell(SQLITE_EVENT_WRITE, path_of(fd), at, data, (size_t)written);
	return written;
}

static ssize_t sys_write(int fd, const void *data, size_t len)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	ssize_t written = sys_pwrite(fd, data, len, at);
	if (written > 0)
		lseek(fd, at + written, SEEK_SET);
	return written;
}

static int sys_ftruncate(int fd, off_t len)
{
	if (fails(SQLITE_SYS_TRUNCATE)) {
		errno = fault.error;
		return -1;
	}
	tell(SQLITE_EVENT_TRUNCATE, path_of(fd), len, NULL, 0);
	return ftruncate(fd, len);
}

static int sys_unlink(const char *path)
{
	tell(SQLITE_EVENT_UNLINK, path, 0, NULL, 0);
	return unlink(path);
}

int sqlite_sys_fdatasync(int fd)
{
	if (fails(SQLITE_SYS_SYNC)) {
		errno = fault.error;
		return -1;
	}
	tell(SQLITE_EVENT_SYNC, path_of(fd), 0, NULL, 0);
	return 0; /* no test cuts the power of this machine */
}

unsigned long sqlite_sys_stride(unsigned long stride)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	if (!getenv("CURT_TEST_LONG"))
		return 5 * stride;
#endif
	return stride;
}

static void *memory_malloc(int bytes)
{
	return fails(SQLITE_SYS_MALLOC) ? NULL : real_memory.xMalloc(bytes);
}

static void *memory_realloc(void *memory, int bytes)
{
	return fails(SQLITE_SYS_MALLOC) ? NULL : real_memory.xRealloc(memory, bytes);
}

static void must(bool done, const char *what)
{
	if (done)
		return;
	fprintf(stderr, "sqlite_sys: %s is not possible here\n", what);
	abort();
}

void sqlite_sys_install(void)
{
	static const struct {
		const char *name;
		sqlite3_syscall_ptr replacement;
	} table[] = {
	    {"open", (sqlite3_syscall_ptr)sys_open},           {"read", (sqlite3_syscall_ptr)sys_read},
	    {"pread", (sqlite3_syscall_ptr)sys_pread},         {"pread64", (sqlite3_syscall_ptr)sys_pread},
	    {"write", (sqlite3_syscall_ptr)sys_write},         {"pwrite", (sqlite3_syscall_ptr)sys_pwrite},
	    {"pwrite64", (sqlite3_syscall_ptr)sys_pwrite},     {"unlink", (sqlite3_syscall_ptr)sys_unlink},
	    {"ftruncate", (sqlite3_syscall_ptr)sys_ftruncate},
	};
	must(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_memory) == SQLITE_OK, "reading the allocator");
	sqlite3_mem_methods memory = real_memory;
	memory.xMalloc = memory_malloc;
	memory.xRealloc = memory_realloc;
	must(sqlite3_config(SQLITE_CONFIG_MALLOC, &memory) == SQLITE_OK, "replacing the allocator");
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	must(vfs && vfs->iVersion >= 3 && vfs->xSetSystemCall, "replacing system calls");
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		vfs->xSetSystemCall(vfs, table[i].name, table[i].replacement);
}

void sqlite_sys_fail(const struct sqlite_fault *what)
{
	fault = *what;
	calls[fault.call] = 0;
	armed = true;
}

unsigned long sqlite_sys_clear(void)
{
	armed = false;
	return calls[fault.call];
}

void sqlite_sys_watch(void (*seen)(const struct sqlite_event *))
{
	watcher = seen;
}
