#include "os/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* open() is variadic and accept4() takes a transparent union: their addresses do not fit the table. */
static int sys_open(const char *path, int flags, mode_t mode)
{
	return open(path, flags, mode);
}

static int sys_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return accept4(fd, addr, len, flags);
}

#define REAL_CALLS                                                                                      \
	{                                                                                               \
		.open = sys_open, .close = close, .read = read, .write = write, .pread = pread,         \
		.pwritev = pwritev, .fsync = fsync, .fdatasync = fdatasync, .ftruncate = ftruncate,     \
		.rename = rename, .unlink = unlink, .accept4 = sys_accept4, .recv = recv, .send = send, \
		.epoll_wait = epoll_wait, .clock_gettime = clock_gettime,                               \
	}

struct os_sys os_sys = REAL_CALLS;
const struct os_sys os_sys_real = REAL_CALLS;
