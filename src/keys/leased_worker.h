/* A task that works on some of several resources, each under its own lease, beside other processes that do
 * the same. It takes up to held_max leases, and visits its resources in turn. It releases a resource when
 * its lease is in doubt or a visit fails, and retries later. Stopping releases all at once. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "lease/lease.h"

enum { LEASE_NAME_BYTES = 65 };

struct leased_worker_ops {
	/* The lease of a resource: the service, and its name (see leased_worker_name). An error: not now. */
	int (*lease)(void *ctx, size_t resource, struct leases **ret, char name[LEASE_NAME_BYTES],
	             struct err *e);

	/* The lease was just taken: publishes the fencing number. An error releases it. */
	int (*begin)(void *ctx, size_t resource, uint64_t fence, struct err *e);

	/* A bounded piece of work: 1 if there is more to do at once, 0 if not, or an error, which releases
	 * the resource. */
	int (*visit)(void *ctx, size_t resource, uint64_t fence, struct err *e);

	/* Logs the status. `ms` since the last call. */
	void (*status)(void *ctx, const bool *held, uint64_t ms);

	struct str (*address)(void *ctx, size_t resource); /* for log lines */
};

struct leased_worker_config {
	const struct leased_worker_ops *ops;
	void *ctx;
	const char *task; /* name of the task */
	const char *what; /* kind of resource, for log lines */
	size_t resources;
	size_t held_max;
	uint64_t lease_ms;
};

struct leased_worker;

int leased_worker_start(const struct leased_worker_config *config, struct leased_worker **ret, struct err *e);
void leased_worker_stop(struct leased_worker *r); /* takes NULL */

/* Writes "service:name" with the characters that lease names may have. */
void leased_worker_name(const char *service, struct str name, char out[LEASE_NAME_BYTES]);
