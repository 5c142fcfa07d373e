/*
 * The limiter interface: budgets across several servers. Each server meters by itself (link/budget.h). From
 * time to time it reports its use and its grant here, and gets a new grant.
 *
 * All numbers are counts since the period began, never differences: repeated or lost reports do no harm. A
 * server's grant counts as used for the others while it keeps syncing; afterwards only its actual use
 * counts. Only the limiter raises a grant; only its server lowers it, and obeys the lower one before it
 * reports it. So no lost answer lets two servers use the same units.
 *
 * A limiter that lost its data gets it back from the servers: they restore the current period. Until all
 * have had time to do so (LIMITER_CALM_MS), no grant grows. Of two reported periods the earlier one is
 * kept.
 */
#pragma once

#include "base/err.h"

enum {
	LIMITER_SERVER_MS = 3000, /* a server without a sync for so long is gone */
	LIMITER_CALM_MS = 2500,
	LIMITER_TAIL_MS = 250, /* a period with less time left is not restored */
};

struct limiter_use {
	uint64_t owner;     /* in: owner of the budget (struct budget) */
	char what;          /* in: 'c' creates, 'r' redirects */
	uint32_t period_ms; /* in */
	uint64_t max;       /* in: the limit */
	uint64_t used;      /* in: by this server in the period */
	uint64_t want;      /* in: wanted grant beyond `used`, if there is enough for all */
	/* in: as this server knows it; out: as it is. */
	uint64_t grant; /* how far this server may count; never lowered, unless it was below `used` */
	/* start time as the period's id; 0: none known, or none current. A higher one than before: that
	 * period has ended, and the report was not counted */
	uint64_t period;
	uint64_t left_ms; /* until the end of the period */
	/* out */
	bool synced;     /* false: unknown; the report may have been counted or not */
	uint64_t others; /* used by, or granted to, other servers */
};

struct limiter {
	const struct limiter_ops *ops;
};

struct limiter_ops {
	void (*free)(struct limiter *);
	/* Syncs all uses in one batch; one thread at a time. A period begins with the first use after the
	 * previous one ended. *ret_servers: servers that synced in the last LIMITER_SERVER_MS, including
	 * this one; not set if unknown. ERR_UNAVAILABLE: some were not synced (limiter_use.synced). */
	int (*sync)(struct limiter *, struct limiter_use *uses, size_t n, unsigned *ret_servers);
	int (*ping)(struct limiter *, struct err *e); /* any thread */
};
