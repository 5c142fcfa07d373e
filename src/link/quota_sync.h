/*
 * Keeps budgets together over several servers, through the role `limiter`.
 *
 * What a server may let through, it has been granted before: its meter goes no further than its grant, and
 * the limiter takes what one server was granted as gone for the others. So the sum stays within the limit,
 * however fast requests come. A server holds a few times what it needs between two looks, and when it has
 * refused somebody as much as makes it one among equals (its own and what is free, by the number of servers,
 * and never more than half). So a single busy one gets nearly all, and one that is idle gives back what
 * others need.
 *
 * Two cases are not covered by a grant. In a period of which this server has not heard yet it begins with a
 * small part (meter_opening), so that the first request need not wait; of a small limit that is nothing, and
 * the request waits until the settler has asked. And when nobody has answered for
 * a second it takes its part of what was free when it last heard; of a period of which it has not heard,
 * its part of the limit. Who has never heard how many servers there are takes it that there are two.
 *
 * A server that is killed has told what it used up to the last look; what it was granted beyond that is free
 * again after LIMITER_SERVER_MS. One that stood still for so long (its process or machine was stopped) lets
 * nobody through until it has settled again. One that is cut off from the limiter, which others reach, cannot
 * know that: it goes on as if nobody had an answer, and others have what it held.
 *
 * A meter is settled at once when a period begins, when half of what it holds is used, and when a fortieth of
 * the limit is; else every SETTLE_MS, and less often while nothing happens. The period ends for all servers
 * when the limiter says so, here a moment later than there (SETTLE_PAD_MS).
 */
#pragma once

#include "limiter/limiter.h"
#include "link/budget.h"

enum { SETTLE_MS = 100, SETTLE_PAD_MS = 63 };

struct quota_sync;

struct quota_sync_stats {
	uint64_t servers;         /* 0: it has never heard */
	uint64_t syncs, failures; /* calls of the limiter, and those that failed */
	uint64_t meters;          /* that are being settled */
};

/* `limiter` outlives the settler, which outlives the budgets that share its settling (budgets_share). */
int quota_sync_new(struct limiter *limiter, struct quota_sync **ret, struct err *e);
void quota_sync_free(struct quota_sync *s);
struct quota *quota_sync_state(struct quota_sync *s);

int quota_sync_start(struct quota_sync *s, struct err *e);
void quota_sync_stop(struct quota_sync *s); /* says what was used; also when it was never started */

/* One round, as the thread makes them. For tests, instead of quota_sync_start. */
void quota_sync_once(struct quota_sync *s, int64_t mono_ms);

struct quota_sync_stats quota_sync_stats(struct quota_sync *s); /* any thread */
