/*
 * When to try again what has failed. The pause doubles from min_ms to max_ms. Up to a quarter of it is left
 * out at random, so that those who failed together do not come back together. Knows no clock and does not
 * wait: the caller says what time it is and sleeps as it can.
 *
 *	struct retry retry = {0};
 *	while (work() == ERR_BUSY && (pause_ms = retry_failed(&retry, &policy, clock_mono_ms())) >= 0)
 *		usleep(pause_ms * 1000);
 */
#pragma once

#include "base/hash.h"

struct retry_policy {
	int64_t min_ms, max_ms;
	unsigned tries_max; /* with the first; 0: as many as it takes */
};

/* Zeroed: nothing has failed. */
struct retry {
	int64_t pause_ms; /* the last one, with nothing left out */
	int64_t next_ms;  /* not before then */
	unsigned failures;
};

/* Notes a failure: the pause until the next try, or -1 when there is to be none. */
static inline int64_t retry_failed(struct retry *r, const struct retry_policy *policy, int64_t now_ms)
{
	if (++r->failures == policy->tries_max)
		return -1;
	r->pause_ms = r->pause_ms ? MIN(r->pause_ms * 2, policy->max_ms) : policy->min_ms;
	uint64_t random = hash_u64((uint64_t)now_ms ^ (uintptr_t)r, r->failures);
	r->next_ms = now_ms + r->pause_ms - (int64_t)(random % ((uint64_t)r->pause_ms / 4 + 1));
	return r->next_ms - now_ms;
}
