/*
 * The os layer's unreliable twin. A test arms it, and from then on the calls of os/sys.h are counted,
 * fail where they were told to, move fewer bytes than asked, and read a clock that the test turns.
 *
 * The first arming call of a test replaces the table, so it comes before threads start; later ones may
 * come at any time, and the counting is safe from all threads. A test ends with os_fault_reset().
 *
 * "For every N, the N-th call fails" is a loop:
 *
 *	for (uint64_t n = 1;; n++) {
 *		os_fault_fail(OS_WRITE, n, ENOSPC, OS_ONCE);
 *		int r = ...;
 *		bool reached = os_fault_hits(OS_WRITE) > 0;
 *		os_fault_reset();
 *		if (!reached)
 *			break;
 *	}
 */
#pragma once

#include "os/sys.h"

enum os_call {
	OS_OPEN,
	OS_CLOSE,
	OS_READ,
	OS_WRITE,
	OS_PREAD,
	OS_PWRITEV,
	OS_FSYNC,
	OS_FDATASYNC,
	OS_FTRUNCATE,
	OS_RENAME,
	OS_UNLINK,
	OS_ACCEPT4,
	OS_RECV,
	OS_SEND,
	OS_EPOLL_WAIT,
	OS_CLOCK_GETTIME,
	OS_CALLS,
};

enum os_span { OS_ONCE, OS_FOR_GOOD };

/* The `nth` call from now (1 is the next one) fails with `error` and has no effect; with OS_FOR_GOOD all
 * after it do so too. A failing close still closes, as on Linux. Replaces what was armed for `call`. */
void os_fault_fail(enum os_call call, uint64_t nth, int error, enum os_span span);

/* The `nth` call from now moves at most `bytes` (1 or more): for OS_READ, OS_WRITE, OS_PREAD, OS_PWRITEV,
 * OS_RECV and OS_SEND. May stand beside a failure of the same call, which is the stronger. */
void os_fault_short(enum os_call call, uint64_t nth, size_t bytes, enum os_span span);

/* Disarms one call and leaves the rest as it is. */
void os_fault_clear(enum os_call call);

/* How often `call` was made since the first arming, and how often it was made to fail or cut short. */
uint64_t os_fault_calls(enum os_call call);
uint64_t os_fault_hits(enum os_call call);

/* Stops both clocks at these times; they move only by os_fault_clock_advance. */
void os_fault_clock_set(int64_t real_ms, int64_t mono_ms);
void os_fault_clock_advance(int64_t ms);      /* both clocks, forward */
void os_fault_clock_advance_real(int64_t ms); /* the real one alone, either way: somebody turned it */

/* The monotonic clock goes so many times as fast from now on: what takes seconds to be given up is given up
 * sooner. Only when no other thread is in the table. */
void os_fault_clock_fast(unsigned times);

/* Everything as the system has it; counters at zero. Only when no other thread is in the table. */
void os_fault_reset(void);
