/*
 * Words that the whole tree uses: assertions for our own bugs, scope-bound cleanup, and the few
 * compiler hints that pay. Depends on libc only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ARRAY_LEN(a)     (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)        ((a) < (b) ? (a) : (b))
#define MAX(a, b)        ((a) > (b) ? (a) : (b))
#define CACHE_LINE_BYTES 64

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define NORETURN               __attribute__((noreturn))
#define MUST_CHECK             __attribute__((warn_unused_result))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* A local that is released when it leaves scope: CLEANUP(buf_release) struct buf b = {0}; */
#define CLEANUP(fn) __attribute__((cleanup(fn)))

/* For strings: CLEANUP(freep) char *text = …; */
void freep(char **p);

/* Hands a pointer on and clears its source, so that the CLEANUP of the source does nothing. */
#define steal(ptr)                               \
	({                                       \
		__typeof__(ptr) stolen_ = (ptr); \
		(ptr) = NULL;                    \
		stolen_;                         \
	})

/*
 * ASSERT is for our own bugs and stays on in release builds: a process that has lost its invariants
 * must not go on acknowledging work. The world's faults are errors (err.h), never asserts.
 */
NORETURN void assert_failed(const char *what, const char *file, int line);
#define ASSERT(x) (LIKELY(x) ? (void)0 : assert_failed(#x, __FILE__, __LINE__))
