/*
 * When to retry what has failed: exponential backoff with jitter. The pause doubles from min_ms to max_ms,
 * and is shortened by up to a quarter at random, so that clients that failed together do not retry together.
 *
 *	struct retry retry = {0};
 *	do
 *		r = work();
 *	while (r == ERR_BUSY && retry_wait(&retry, &policy));
 */
#pragma once

#include "base/hash.h"
#include "os/clock.h"

struct retry_policy {
	int64_t min_ms, max_ms; /* the first pause, and the longest */
	unsigned tries_max;     /* with the first; 0: any number */
	int64_t timeout_ms;     /* from the first failure to the last try; 0: for ever */
};

/* Zeroed: nothing has failed. */
struct retry {
	int64_t first_ms; /* the first failure */
	int64_t pause_ms; /* the last one, without jitter */
	int64_t next_ms;  /* no try before then */
	unsigned failures;
};

/* Notes a failure; does not wait. False: that was the last try. */
static inline bool retry_failed(struct retry *r, const struct retry_policy *policy, int64_t now_ms)
{
	r->first_ms = r->failures ? r->first_ms : now_ms;
	r->pause_ms = r->failures ? MIN(r->pause_ms * 2, policy->max_ms) : policy->min_ms;
	r->failures++;
	uint64_t random = hash_u64((uint64_t)now_ms ^ (uintptr_t)r, r->failures);
	r->next_ms = now_ms + r->pause_ms - (int64_t)(random % ((uint64_t)r->pause_ms / 4 + 1));
	return r->failures != policy->tries_max &&
	       (policy->timeout_ms == 0 || r->next_ms - r->first_ms <= policy->timeout_ms);
}

/* Notes a failure, and sleeps until the next try. False: that was the last one. */
static inline bool retry_wait(struct retry *r, const struct retry_policy *policy)
{
	int64_t now_ms = clock_mono_ms();
	if (!retry_failed(r, policy, now_ms))
		return false;
	struct timespec until = clock_mono_after((uint64_t)(r->next_ms - now_ms));
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
		continue;
	return true;
}
