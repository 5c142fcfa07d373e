/*
 * Click limits. A link with max_clicks has a counter of all its clicks. Every redirect first takes one
 * click by compare-and-swap, so the limit is exact under concurrency, at the speed of the cache.
 *
 * The event log is authoritative: a click is logged before its response leaves, so it survives a crash. A
 * counter therefore starts uncounted, and refuses every click until it was set from the log and the sink
 * (redirect/click_count.c).
 *
 * Holders pin a counter: cache entries, running lookups, responses that wait for their log record. There is
 * room for CLICK_LIMITS_MAX; when it is used up, unpinned counters are evicted, and counted again on the
 * next request.
 */
#pragma once

#include "base/def.h"

#include <stdatomic.h>

enum { CLICK_LIMITS_MAX = 1 << 20 };

struct click_limit {
	uint64_t link;
	_Atomic int64_t used; /* negative: uncounted, -used is the round */
	_Atomic uint32_t pins;
	uint32_t rounds; /* counting rounds; under the table's lock */
};

struct click_limits;

struct click_limits *click_limits_new(void); /* NULL: out of memory */
void click_limits_free(struct click_limits *g);

/* The counter of the link, pinned; a new one is uncounted. NULL: out of memory, or all are pinned. Pool
 * threads; takes a lock. */
struct click_limit *click_limits_get(struct click_limits *g, uint64_t link);

/* The link was just created: it has no clicks. Pool threads; takes a lock. */
void click_limits_begin(struct click_limits *g, uint64_t link);

/* Adds a pin (by a holder of one), removes a pin. Both take NULL. */
void click_limit_pin(struct click_limit *limit);
void click_limit_unpin(struct click_limit *limit);

/* The limit was changed: before, the link may have had none, and clicks were not counted. So it must be
 * counted again. Link 0: all of them, if the link is unknown. Pool threads; takes a lock. */
void click_limits_uncount(struct click_limits *g, uint64_t link);

/* Any thread, without a lock. */
bool click_limit_is_counted(const struct click_limit *limit);
bool click_limit_is_spent(const struct click_limit *limit, uint64_t max); /* false while uncounted */

/* Counting: read the round, wait until all earlier redirects are in the sink, read the total. `count` sets
 * it, unless the counter was counted or uncounted meanwhile. Round 0: it is counted. */
int64_t click_limit_round(const struct click_limit *limit);
void click_limit_count(struct click_limit *limit, int64_t round, uint64_t used);

/* Takes one click. False: none is left, or uncounted. put_back: the response was not sent; does nothing
 * while uncounted. */
bool click_limit_take(struct click_limit *limit, uint64_t max);
void click_limit_put_back(struct click_limit *limit);
