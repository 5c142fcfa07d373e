/*
 * Health checks of backends. Each check runs in its own task, so one that hangs delays neither the others nor
 * the request. A check that is still running is not started again: callers wait for its result up to its
 * timeout, and then get ERR_UNAVAILABLE.
 */
#pragma once

#include "base/err.h"

enum { HEALTH_CHECKS_MAX = 8 };

struct health_check {
	const char *name;                     /* of the task: at most 15 bytes */
	int (*run)(void *ctx, struct err *e); /* may block; on the check's task */
	void *ctx;
	uint64_t timeout_ms; /* how long a caller waits for it */
};

struct health_result {
	int code;
	struct err why; /* if code is negative */
};

struct health_checks;

int health_checks_new(const struct health_check *list, size_t n, struct health_checks **ret, struct err *e);
void health_checks_free(struct health_checks *c); /* waits for running checks; NULL is fine */

/* Fills one result for each check of the list. Blocks; any thread but a loop's. */
void health_checks_run(struct health_checks *c, struct health_result *ret);
