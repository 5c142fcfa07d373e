/*
 * A thread's own log buffer: one writer (the thread), one reader (the flusher), no lock between them. The
 * writer copies an entry behind `head` and publishes it by moving `head`; the reader takes from `tail`.
 *
 * A thread's first line claims a ring. Rings are never freed: when a thread ends, its ring stays listed and
 * is drained like any other. Once it is empty, the next new thread reuses it.
 */
#pragma once

#include "obs/log_format.h"

#include <stdatomic.h>

enum { LOG_RING_BYTES = 65536 }; /* a power of two */

struct log_ring {
	_Alignas(CACHE_LINE_BYTES) _Atomic uint64_t head; /* bytes ever written */
	_Atomic bool busy;                                /* the writer is at work: see log.c */
	_Atomic uint64_t lost;                            /* lines that did not fit, not yet logged */
	_Alignas(CACHE_LINE_BYTES) _Atomic uint64_t tail; /* bytes ever taken */
	struct log_ring *next;                            /* fixed once the ring is listed */
	bool owned;                                       /* by a living thread; under the list's lock */
	_Alignas(CACHE_LINE_BYTES) char data[LOG_RING_BYTES];
};

/* The calling thread's ring; NULL when memory ran out. */
struct log_ring *log_ring_own(void);

/* The newest ring; `next` leads through all of them. Sequentially consistent. */
struct log_ring *log_ring_first(void);

/* False when the entry does not fit, or when entries were lost and a quarter of the ring is not yet free
 * again: `lost` is one more. Only by the owning thread. */
bool log_ring_push(struct log_ring *r, const struct log_entry *entry);

/* False when the ring is empty. `ret->text` lies in `text`; `*ret_lost` lines were lost just before it.
 * Only by the flusher. */
bool log_ring_pop(struct log_ring *r, struct log_entry *ret, char text[LOG_TEXT_MAX], uint64_t *ret_lost);

/* How many lines were lost after the last one; resets the count. */
uint64_t log_ring_take_lost(struct log_ring *r);
