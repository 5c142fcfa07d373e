/*
 * The role `limiter`: budgets that hold over several servers. Each server meters by itself (link/budget.h);
 * from time to time it says here what it has let through, and hears what all of them have.
 */
#pragma once

#include "base/err.h"

enum { LIMITER_SERVER_MS = 5000 };

struct limiter_use {
	uint64_t owner;     /* in: whose budget (struct budget) */
	char what;          /* in: 'c' creations, 'r' redirections */
	uint32_t period_ms; /* in */
	int64_t delta;      /* in: let through since the last time; below 0: given back */
	/* out; all 0 while no period is under way, which a delta of 0 or less does not begin */
	bool settled;     /* false: nobody knows, and the rest is not set */
	uint64_t used;    /* by all servers in the period under way; never below 0 */
	uint64_t left_ms; /* until it ends */
	uint64_t period;  /* names the period: another number, another period */
};

struct limiter {
	const struct limiter_ops *ops;
};

struct limiter_ops {
	void (*free)(struct limiter *);
	/* All at once. A period begins with the first use after the last one ended. `ret_servers`: how many
	 * have settled in the last LIMITER_SERVER_MS, this one included. ERR_UNAVAILABLE: some were not
	 * settled (see there); what was told of them may have been counted. */
	int (*settle)(struct limiter *, struct limiter_use *uses, size_t n, unsigned *ret_servers);
	int (*ping)(struct limiter *, struct err *e);
};
