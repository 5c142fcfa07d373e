/*
 * Shares budgets between servers, through the limiter (limiter/limiter.h).
 *
 * A server only allows what it was granted before. Its meter stops at its grant, and the limiter counts a
 * grant as used for the other servers. So the sum stays within the limit, however fast requests come. A
 * server holds a few times what it needs between two syncs; after a refusal, an equal share of what is free
 * plus its own, at most half. So a single busy server gets nearly all, and an idle one returns what others
 * need.
 *
 * Two cases have no grant. In a period that was not synced yet, a server starts with a small part
 * (meter_initial_grant); if that is 0, the request waits for a sync. If the limiter has not answered for a
 * second, a server takes its fair share of what was free at the last sync, or of the limit if the period
 * was never synced. If the number of servers is unknown, two are assumed.
 *
 * A killed server has reported its use up to the last sync; the rest of its grant is free again after
 * LIMITER_SERVER_MS. A server that was stopped for so long (process or machine) allows nothing until it has
 * synced again. A server cut off from the limiter, while others reach it, cannot know that: it continues
 * with its fair share, while others are granted what it held.
 *
 * A meter is synced at once when a period begins, when half of its grant is used, and after each fortieth
 * of the limit; otherwise every SYNC_MS, and less often while unused. A period ends for all servers when
 * the limiter says so; here SYNC_PAD_MS later.
 */
#pragma once

#include "limiter/limiter.h"
#include "link/budget.h"

enum { SYNC_MS = 100, SYNC_PAD_MS = 63 };

struct quota_sync;

struct quota_sync_stats {
	uint64_t servers;         /* 0: unknown */
	uint64_t syncs, failures; /* calls of the limiter, and failed ones */
	uint64_t meters;          /* with a current period */
};

/* `limiter` outlives this, which outlives the budgets that use its state (budgets_share). */
int quota_sync_new(struct limiter *limiter, struct quota_sync **ret, struct err *e);
void quota_sync_free(struct quota_sync *s);
struct quota *quota_sync_state(struct quota_sync *s);

int quota_sync_start(struct quota_sync *s, struct err *e);
void quota_sync_stop(struct quota_sync *s); /* reports the final use; also if never started */

/* One sync, for tests instead of quota_sync_start. */
void quota_sync_once(struct quota_sync *s, int64_t mono_ms);

struct quota_sync_stats quota_sync_stats(struct quota_sync *s); /* any thread */
