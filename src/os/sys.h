/*
 * The seam between curt and the system. Every system call whose failure must be testable goes
 * through this table; tests replace single entries (tests/support/lib/os_fault.h) before threads start.
 * The signatures and errno are the system's own.
 */
#pragma once

#include "base/def.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

struct os_sys {
	int (*open)(const char *path, int flags, mode_t mode);
	int (*close)(int fd);
	ssize_t (*read)(int fd, void *data, size_t len);
	ssize_t (*write)(int fd, const void *data, size_t len);
	ssize_t (*pread)(int fd, void *data, size_t len, off_t at);
	ssize_t (*pwritev)(int fd, const struct iovec *iov, int count, off_t at);
	int (*fsync)(int fd);
	int (*fdatasync)(int fd);
	int (*ftruncate)(int fd, off_t len);
	int (*rename)(const char *from, const char *to);
	int (*unlink)(const char *path);
	int (*accept4)(int fd, struct sockaddr *addr, socklen_t *len, int flags);
	ssize_t (*recv)(int fd, void *data, size_t len, int flags);
	ssize_t (*send)(int fd, const void *data, size_t len, int flags);
	int (*epoll_wait)(int fd, struct epoll_event *events, int max, int timeout_ms);
	int (*clock_gettime)(clockid_t clock, struct timespec *ret);
};

extern struct os_sys os_sys;

/* The table as it is without tests. */
extern const struct os_sys os_sys_real;
