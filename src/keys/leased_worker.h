/*
 * A task that looks after some of several places, each under a lease of its own, beside other processes
 * that do the same. It takes leases until it has as many as it may have, visits its places in turn, and gives
 * a place up as soon as its lease is in doubt or a visit fails; after a rest it tries again. Stopping gives
 * all of them up at once.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "lease/lease.h"

enum { LEASE_NAME_BYTES = 65 };

struct leased_worker_ops {
	/* The place's lease: who gives it, and its name (see leased_worker_name). An error: not now. */
	int (*lease)(void *ctx, size_t place, struct leases **ret, char name[LEASE_NAME_BYTES],
	             struct err *e);

	/* The lease was just taken: makes the fencing number known. An error gives it up. */
	int (*begin)(void *ctx, size_t place, uint64_t fence, struct err *e);

	/* A bounded piece of work: 1 when there is more to do at once, 0 when there is none for a while, or
	 * an error, after which the place is given up. */
	int (*visit)(void *ctx, size_t place, uint64_t fence, struct err *e);

	/* Now and then: says in the log how things are. `ms` passed since the last time. */
	void (*status)(void *ctx, const bool *held, uint64_t ms);

	struct str (*address)(void *ctx, size_t place); /* for people */
};

struct leased_worker_config {
	const struct leased_worker_ops *ops;
	void *ctx;
	const char *task; /* its name */
	const char *what; /* "stock": in the log */
	size_t places;
	size_t held_max;
	uint64_t lease_ms;
};

struct leased_worker;

int leased_worker_start(const struct leased_worker_config *config, struct leased_worker **ret, struct err *e);
void leased_worker_stop(struct leased_worker *r); /* NULL is fine */

/* "service:name" made of what names of leases are made of. */
void leased_worker_name(const char *service, struct str name, char out[LEASE_NAME_BYTES]);
