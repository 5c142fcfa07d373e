/*
 * What a user may still do in a period, by session and by all API keys that have no limits of their own; or
 * an API key that has: so many creations, so many redirections of its links. A period begins with the first
 * use after the last one ended, and allows exactly its number.
 *
 * A meter is one atomic word, shared by all workers without a lock: the period's start and the count within
 * it change together by compare-and-swap. The bounds are stored apart and may change at any time.
 *
 * When servers share the budgets (link/quota_sync.h), a meter has a share beside it: how far this server may
 * go in the period under way, and when that ends for all of them. It says for which period it holds, by the
 * period's start; for another one, of which nothing has been heard yet, meter_opening holds. Whoever finds
 * that used up asks, and waits for the answer (meter_needs_refresh): a matter of a millisecond or two.
 */
#pragma once

#include "os/task.h"

#include <stdatomic.h>

/* What workers and the settler have in common. */
struct quota {
	_Atomic(struct meter_share *) listed; /* pushed with release, taken whole with acquire */
	struct task task;                     /* the settler's; zeroed without one */
	_Atomic uint32_t servers;             /* that share the budgets; 0: this is not known yet */
	_Atomic uint32_t until; /* in 1/16 s: when grants end, unless the settler has gone on by then */
};

/* Words of two halves: the period's start in 1/16 s, and a number that holds for that period only. */
struct meter_share {
	_Atomic uint64_t grant;     /* ... the count that this server may reach */
	_Atomic uint64_t end;       /* ... when the period ends, in 1/16 s */
	_Atomic uint64_t elsewhere; /* ... what other servers have used, or hold */
	_Atomic uint64_t nudge;     /* ... the count at which the settler should look */
	_Atomic bool is_listed;
	_Atomic bool has_refused; /* since the settler last looked */
	struct meter_share *next_listed;
	struct quota *quota;
	struct meter *meter;
	uint64_t owner;
	char what; /* as in limiter.h */
	/* the settler's own */
	struct settled *settled; /* NULL: it has not heard of a use */
};

struct meter {
	_Atomic uint64_t state;     /* start in 1/16 s (32 bits) | count (32 bits) */
	_Atomic uint32_t max;       /* 0: no bound */
	_Atomic uint32_t period_ms; /* of at least 1000 */
	struct meter_share *share;  /* NULL: this server's alone; never changes */
};

/* What to tell the client. */
struct meter_reading {
	uint32_t limit; /* 0: there is no bound */
	uint32_t remaining;
	uint32_t reset_ms; /* until the period ends and all is there again */
	uint32_t period;   /* which one it was taken from, for a refund */
	bool unheard; /* none was taken, but the settler was asked and may know better: meter_needs_refresh */
};

/* The count of the period that is under way (0: all was given back), and its start in 1/16 s; false: none is.
 */
bool meter_now(const struct meter *m, int64_t mono_ms, uint32_t *ret_start, uint32_t *ret_count);

enum { METER_UNITS = 16 }; /* in a second */

/* A time in 1/16 s: 32 bits of them last eight years of uptime. */
static inline uint32_t meter_units(int64_t mono_ms)
{
	return (uint32_t)(mono_ms * METER_UNITS / 1000);
}

/* For a word of a share. */
static inline uint64_t meter_pack(uint32_t start, uint32_t number)
{
	return (uint64_t)start << 32 | number;
}

enum { OPENING_SHARE = 20, SERVERS_MIN = 2, LIMIT_REFRESH_MS_MAX = 50 };

/* What each of them may have. There may be one more than is known: one that starts, or whose last run died.
 */
static inline uint64_t meter_part(uint64_t whole, uint32_t servers)
{
	servers = MAX(servers, (uint32_t)SERVERS_MIN);
	return (whole + servers - 1) / servers;
}

/* How far a server may count before it has heard of the period, so that the first requests need not wait.
 * Where others may have used it all, they stay within a twentieth together: nothing when the limit is small.
 */
static inline uint32_t meter_opening(uint32_t max, uint32_t servers)
{
	uint64_t part = meter_part(max, servers);
	return (uint32_t)(servers < SERVERS_MIN ? part : part / OPENING_SHARE);
}

/* Takes one. False when the period has none left (nothing is taken then). `ret` may be NULL. */
bool meter_take(struct meter *m, int64_t mono_ms, struct meter_reading *ret);

/* Where one would be refused because the settler has not said yet how far this server may go: asks, and waits
 * for that until then (monotonic) at most. Not on a loop. */
void meter_needs_refresh(struct meter *m, int64_t until_ms);

/* Gives one back that was taken for something which then did not happen, unless its period is over. */
void meter_refund(struct meter *m, const struct meter_reading *taken);

struct budget {
	uint64_t owner;      /* an API key's id, or budget_of_user */
	_Atomic bool is_set; /* its bounds are known */
	struct meter creates;
	struct meter redirects;
};

/* 0: none. */
struct budget_limits {
	uint64_t creates_max;
	uint64_t redirects_max;
	uint64_t period_ms;
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

/* From now on budgets are made with shares. Before the first is made; `s` outlives the table. */
void budgets_share(struct budgets *b, struct quota *s);

/* The limits of every user, and of what an API key's own limits leave open; without it there are none. Before
 * the first is made. */
void budgets_limit(struct budgets *b, const struct budget_limits *limits);

/* A user's budget; users without limits share one. And that of an API key with limits of its own, which never
 * change. NULL when memory ran out. */
struct budget *budgets_of_user(struct budgets *b, uint64_t user);
struct budget *budgets_of_key(struct budgets *b, uint64_t key, const struct budget_limits *own);

/* The owner's budget, made without bounds when there is none yet; NULL when memory ran out. Any thread; takes
 * a lock, so not on the redirect path. */
struct budget *budgets_of(struct budgets *b, uint64_t owner);
void budget_set(struct budget *b, uint64_t creates_max, uint64_t redirects_max, uint64_t period_ms);
