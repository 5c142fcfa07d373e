/*
 * Timers of one loop: a wheel of slots, each one tick wide. Setting, moving and cancelling cost a list
 * operation. A timer further ahead than one round stays in its slot until its round comes. A timer never
 * fires early, and at most one tick late (plus the length of a turn).
 */
#pragma once

#include "base/list.h"

enum { TIMER_TICK_MS = 32, TIMER_SLOTS = 1024 };

struct timer {
	struct list link;
	int64_t at_ms; /* monotonic; meaningful while armed */
	bool armed;
	void (*fire)(struct timer *); /* may set it again, or free its memory */
};

struct timers {
	struct list slots[TIMER_SLOTS];
	uint64_t occupied[TIMER_SLOTS / 64]; /* a set bit may be stale, a clear one is true */
	int64_t tick;                        /* the last slot that was run */
	size_t armed_count;
};

void timers_init(struct timers *w, int64_t now_ms);
void timer_init(struct timer *t, void (*fire)(struct timer *));
void timer_set(struct timers *w, struct timer *t, int64_t at_ms); /* moves it when it is armed */
void timer_cancel(struct timers *w, struct timer *t);             /* fine when it is not armed */

void timers_run(struct timers *w, int64_t now_ms);

/* How long a loop may sleep: milliseconds, or -1 when no timer is armed. */
int timers_sleep_ms(struct timers *w, int64_t now_ms);
