/*
 * Keeps budgets together over several servers, through the role `limiter`.
 *
 * What a server may let through, it has reserved before: the limiter's number is what all servers have used
 * or hold, and a server's meter goes no further than its reservation. So the sum never goes past the limit,
 * however fast requests come. What is free is divided: each time, a server holds as much as makes it one
 * among equals (its own and what is free, by the number of servers), so a single busy one gets nearly all,
 * and one that is idle gives back what others need.
 *
 * Two cases are not covered by a reservation. In a period of which this server has not heard yet it may use
 * its fair part, the limit by the number of servers: so the first request need not wait. When all of them
 * begin together, that comes to the limit and at most one more for each server; one that joins later goes
 * over by what it lets through until it has heard, which is a round trip. And while the limiter is away each
 * server goes on with what it holds, or its fair part if that is more.
 *
 * A meter is settled at once when a period begins and when half of what it holds is used; else every
 * SETTLE_MS, and less often while nothing happens. The period ends for all servers when the limiter says so,
 * here a moment later than there (SETTLE_PAD_MS).
 */
#pragma once

#include "limiter/limiter.h"
#include "link/budget.h"

enum { SETTLE_MS = 100, SETTLE_PAD_MS = 63 };

struct settler;

struct settler_stats {
	unsigned servers;
	uint64_t rounds, failures; /* calls of the limiter, and those that failed */
	uint64_t meters;           /* that are being settled */
};

/* `limiter` outlives the settler, which outlives the budgets that share its settling (budgets_share). */
int settler_new(struct limiter *limiter, struct settler **ret, struct err *e);
void settler_free(struct settler *s);
struct settling *settler_settling(struct settler *s);

int settler_start(struct settler *s, struct err *e);
void settler_stop(struct settler *s); /* gives back what is held; also when it was never started */

/* One round, as the thread makes them. For tests, instead of settler_start. */
void settler_round(struct settler *s, int64_t mono_ms);

struct settler_stats settler_stats(struct settler *s); /* any thread */
