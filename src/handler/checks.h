/*
 * Questions to what the server stands on, each asked by a task of its own, so that one that is not answered
 * holds up neither the others nor whoever wants to know. One that is under way is not asked again: whoever
 * comes meanwhile waits for the same answer, as long as the question allows, and then is told that there is
 * none.
 */
#pragma once

#include "base/err.h"

enum { CHECKS_MAX = 8 };

struct check {
	const char *name;                     /* of the task: at most 15 bytes */
	int (*ask)(void *ctx, struct err *e); /* may block; any thread */
	void *ctx;
	uint64_t patience_ms; /* of who wants to know */
};

struct check_result {
	int code;
	struct err why; /* when it is below 0 */
};

struct checks;

int checks_new(const struct check *list, size_t n, struct checks **ret, struct err *e);
void checks_free(struct checks *c); /* waits for what is under way; NULL is fine */

/* `ret` has a result for each of the list; ERR_UNAVAILABLE also when there was no answer in time. */
void checks_ask(struct checks *c, struct check_result *ret);
