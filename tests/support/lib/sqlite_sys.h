/*
 * SQLite's system calls and memory in the hands of a test: fail the N-th, or watch what is written and
 * synced. SQLite calls fdatasync directly, so a test that uses this defines it:
 *
 *	int fdatasync(int fd) { return sqlite_sys_fdatasync(fd); }
 *
 * That holds for all suites of its folder, which are one program: their files are not synced. For tests with
 *one thread.
 */
#pragma once

#include "base/def.h"

enum sqlite_sys_call {
	SQLITE_SYS_OPEN,
	SQLITE_SYS_READ,
	SQLITE_SYS_WRITE,
	SQLITE_SYS_SYNC,
	SQLITE_SYS_TRUNCATE,
	SQLITE_SYS_MALLOC,
	SQLITE_SYS_CALLS,
};

struct sqlite_fault {
	enum sqlite_sys_call call;
	unsigned long at; /* the N-th call from now, from 1 */
	bool for_good;    /* and all that follow */
	bool half;        /* WRITE: half of the bytes are written first */
	int error;        /* errno; not for MALLOC */
};

/* What SQLite did to a file. `path` and `data` are gone after the call. */
struct sqlite_event {
	enum { SQLITE_EVENT_WRITE, SQLITE_EVENT_TRUNCATE, SQLITE_EVENT_SYNC, SQLITE_EVENT_UNLINK } kind;
	const char *path;
	off_t at; /* of a write; the new length of a truncation */
	const void *data;
	size_t len;
};

void sqlite_sys_install(void); /* before SQLite is used for the first time */
void sqlite_sys_fail(const struct sqlite_fault *fault);
unsigned long sqlite_sys_clear(void); /* no fault; how many calls of its kind there were */
void sqlite_sys_watch(void (*seen)(const struct sqlite_event *)); /* NULL: nobody watches */
int sqlite_sys_fdatasync(int fd);

/* How far apart the faults of an enumeration are. Under a sanitizer, which is slow and sees the same in most
 * of them, five times as far as in the release build (`make check`), unless CURT_TEST_LONG is in the
 * environment. */
unsigned long sqlite_sys_stride(unsigned long stride);
