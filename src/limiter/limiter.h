/*
 * The role `limiter`: budgets that hold over several servers. Each server meters by itself (link/budget.h);
 * from time to time it says here how far it has come and how far it may go, and hears how far it may go now.
 *
 * All numbers are counts since the period began, never differences: what is told twice, or told and not
 * answered, does no harm. A server's grant counts as gone for the others while it settles; of one that
 * settles no more only what it has used counts. A grant grows here, and is lowered by its server alone, which
 * keeps to the lower one before it says so. So no answer that is lost lets two servers use the same.
 *
 * A limiter that has forgotten everything is told it again: who knows of a period under way brings it back.
 * Until all have had time for that (LIMITER_CALM_MS) no grant grows. Of two periods that are both said to be
 * under way the one that began first is kept.
 */
#pragma once

#include "base/err.h"

enum {
	LIMITER_SERVER_MS = 3000, /* a server that has not settled for so long has gone */
	LIMITER_CALM_MS = 2500,
	LIMITER_TAIL_MS = 250, /* a period with less than this left is not brought back */
};

struct limiter_use {
	uint64_t owner;     /* in: whose budget (struct budget) */
	char what;          /* in: 'c' creations, 'r' redirections */
	uint32_t period_ms; /* in */
	uint64_t max;       /* in: the limit */
	uint64_t used;      /* in: by this server in the period */
	uint64_t want;      /* in: by how much its grant should exceed that, if there is enough for all */
	/* in: as far as this server knows; out: what holds. */
	uint64_t
	    grant; /* how far this server may count; not lower than it was, unless that was below `used` */
	uint64_t
	    period; /* names the period by when it began; 0: this server knows of none, or none is under way.
	             * A higher one than before: that one is over, and what was told was not counted */
	uint64_t left_ms; /* until it ends */
	/* out */
	bool synced;    /* false: nobody knows; what was told may have been counted or not */
	uint64_t others; /* what the other servers have used or may */
};

struct limiter {
	const struct limiter_ops *ops;
};

struct limiter_ops {
	void (*free)(struct limiter *);
	/* All at once; one thread at a time. A period begins with the first use after the last one ended.
	 * `ret_servers`: how many have settled in the last LIMITER_SERVER_MS, this one included; not set when
	 * nobody knows. ERR_UNAVAILABLE: some were not settled (see there). */
	int (*sync)(struct limiter *, struct limiter_use *uses, size_t n, unsigned *ret_servers);
	int (*ping)(struct limiter *, struct err *e); /* any thread */
};
