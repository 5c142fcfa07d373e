/*
 * What a user may still do in a period, by session and by all API keys that have no limits of their own; or
 * an API key that has: so many creations, so many redirections of its links. A period begins with the first
 * use after the last one ended, and allows exactly its number.
 *
 * A meter is one atomic word, shared by all workers without a lock: the period's start and the count within
 * it change together by compare-and-swap. The bounds are stored apart and may change at any time.
 */
#pragma once

#include "base/def.h"

#include <stdatomic.h>

struct meter {
	_Atomic uint64_t state;     /* start in 1/16 s (32 bits) | count (32 bits) */
	_Atomic uint32_t max;       /* 0: no bound */
	_Atomic uint32_t period_ms; /* of at least 1000 */
};

/* What to tell the client. */
struct meter_reading {
	uint32_t limit; /* 0: there is no bound */
	uint32_t remaining;
	uint32_t reset_ms; /* until the period ends and all is there again */
	uint32_t period;   /* which one it was taken from, for a refund */
};

/* Takes one. False when the period has none left (nothing is taken then). `ret` may be NULL. */
bool meter_take(struct meter *m, int64_t mono_ms, struct meter_reading *ret);

/* Gives one back that was taken for something which then did not happen, unless its period is over. */
void meter_refund(struct meter *m, const struct meter_reading *taken);

struct budget {
	uint64_t owner;          /* an API key's id, or budget_of_user */
	_Atomic int64_t used_ms; /* when the API key was last used; real time, 0: never */
	struct meter creates;
	struct meter redirects;
};

/* The name of a user's own budget, for all that is not done with an API key that has limits of its own. */
static inline uint64_t budget_of_user(uint64_t user)
{
	return user | 1ULL << 63;
}

/* The budgets of all API keys and users. A budget's address stays good as long as the table: cache entries
 * point at it. */
struct budgets;
struct budgets *budgets_new(void);
void budgets_free(struct budgets *b);

/* The owner's budget, made without bounds when there is none yet; NULL when memory ran out. Any thread; takes
 * a lock, so not on the redirect path. */
struct budget *budgets_of(struct budgets *b, uint64_t owner);
void budget_set(struct budget *b, uint64_t creates_max, uint64_t redirects_max, uint64_t period_ms);
