/*
 * Budgets: how many links a user may create in a period, and how many redirects the user's links may serve.
 * A user's budget covers sessions and all API keys without limits of their own; an API key with its own
 * limits has its own budget. A period begins with the first use after the previous one ended, and allows
 * exactly its limit.
 *
 * A meter is one atomic word, shared by all workers without a lock: the period's start and the count change
 * together by compare-and-swap. The limits are separate, and may change at any time.
 *
 * If servers share budgets (quota_sync.h), a meter has a share: how far this server may count in the
 * period, and when the period ends for all servers. The share names its period by the start. In a period
 * that was not synced yet, meter_initial_grant applies. A request beyond that waits for the sync
 * (meter_wait_for_grant), usually a millisecond or two.
 */
#pragma once

#include "os/task.h"

#include <stdatomic.h>

/* State shared by workers and the sync task. */
struct quota {
	/* lock-free stack of shares to sync: pushed with release, taken whole with acquire */
	_Atomic(struct meter_share *) queued;
	struct task task;         /* the sync task; zeroed without one */
	_Atomic uint32_t servers; /* servers that share budgets; 0: unknown yet */
	_Atomic uint32_t until;   /* in 1/16 s: grants are void after this, unless the task has run */
};

/* Each word has two halves: the period's start in 1/16 s, and a number that is valid in that period only. */
struct meter_share {
	_Atomic uint64_t grant;          /* the count that this server may reach */
	_Atomic uint64_t end;            /* when the period ends, in 1/16 s */
	_Atomic uint64_t used_elsewhere; /* what other servers have used or been granted */
	_Atomic uint64_t sync_at;        /* the count at which to sync again */
	_Atomic bool is_queued;
	_Atomic bool has_refused; /* since the last sync */
	struct meter_share *next_queued;
	struct quota *quota;
	struct meter *meter;
	uint64_t owner;
	char what;                   /* 'c' creates, 'r' redirects */
	struct synced_meter *synced; /* sync task only; NULL: nothing to sync */
};

struct meter {
	_Atomic uint64_t state;     /* start in 1/16 s (32 bits) | count (32 bits) */
	_Atomic uint32_t max;       /* 0: no limit */
	_Atomic uint32_t period_ms; /* at least 1000 */
	struct meter_share *share;  /* NULL: not shared; never changes */
};

/* For the response to the client. */
struct meter_reading {
	uint32_t limit; /* 0: no limit */
	uint32_t remaining;
	uint32_t reset_ms; /* until the period ends */
	uint32_t period;   /* the period it was taken from, for a refund */
	bool unsynced;     /* refused, but a sync was requested and may allow it: meter_wait_for_grant */
};

/* The start (1/16 s) and count of the current period; false: there is none. The count may be 0 after
 * refunds. */
bool meter_now(const struct meter *m, int64_t mono_ms, uint32_t *ret_start, uint32_t *ret_count);

enum { METER_UNITS = 16 }; /* per second */

/* A time in 1/16 s: 32 bits last eight years of uptime. */
static inline uint32_t meter_units(int64_t mono_ms)
{
	return (uint32_t)(mono_ms * METER_UNITS / 1000);
}

/* Builds a word of a share. */
static inline uint64_t meter_pack(uint32_t start, uint32_t number)
{
	return (uint64_t)start << 32 | number;
}

enum { INITIAL_SHARE = 20, SERVERS_MIN = 2, LIMIT_REFRESH_MS_MAX = 50 };

/* One server's fair share. At least two servers are assumed: one may be starting, or may have crashed. */
static inline uint64_t meter_fair_share(uint64_t whole, uint32_t servers)
{
	servers = MAX(servers, (uint32_t)SERVERS_MIN);
	return (whole + servers - 1) / servers;
}

/* How far a server may count in a period that was not synced yet, so that the first requests need not wait.
 * If other servers may have used the budget, all together get a twentieth: nothing of a small limit. */
static inline uint32_t meter_initial_grant(uint32_t max, uint32_t servers)
{
	uint64_t part = meter_fair_share(max, servers);
	return (uint32_t)(servers < SERVERS_MIN ? part : part / INITIAL_SHARE);
}

/* Takes one. False: the period has none left, and nothing was taken. `ret` may be NULL. */
bool meter_take(struct meter *m, int64_t mono_ms, struct meter_reading *ret);

/* If meter_take would refuse for lack of a sync: requests one, and waits for it, until `until_ms`
 * (monotonic) at most. Not on an event loop. */
void meter_wait_for_grant(struct meter *m, int64_t until_ms);

/* Returns one that was not used after all, unless its period has ended. */
void meter_refund(struct meter *m, const struct meter_reading *taken);

struct budget {
	uint64_t owner;      /* API key id, or budget_of_user */
	_Atomic bool is_set; /* limits are set */
	struct meter creates;
	struct meter redirects;
};

/* 0: no limit. */
struct budget_limits {
	uint64_t creates_max;
	uint64_t redirects_max;
	uint64_t period_ms;
};

/* The id of a user's budget, distinct from API key ids. */
static inline uint64_t budget_of_user(uint64_t user)
{
	return user | 1ULL << 63;
}

/* All budgets. The address of a budget is stable as long as the table: cache entries point to it. */
struct budgets;
struct budgets *budgets_new(void);
void budgets_free(struct budgets *b);

/* Makes all budgets shared. Call before the first is created; `s` outlives the table. */
void budgets_share(struct budgets *b, struct quota *s);

/* Default limits of users, and of API keys that leave some of theirs open; none if not called. Call before
 * the first budget is created. */
void budgets_limit(struct budgets *b, const struct budget_limits *limits);

/* A user's budget (users without limits share one), and the budget of an API key with its own limits, which
 * never change. NULL: out of memory. */
struct budget *budgets_of_user(struct budgets *b, uint64_t user);
struct budget *budgets_of_key(struct budgets *b, uint64_t key, const struct budget_limits *own);

/* The budget of an owner, created without limits if it is new; NULL: out of memory. Any thread; takes a
 * lock, so not on the redirect path. */
struct budget *budgets_of(struct budgets *b, uint64_t owner);
void budget_set(struct budget *b, uint64_t creates_max, uint64_t redirects_max, uint64_t period_ms);
