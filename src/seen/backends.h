/* The backends of the role `seen`, for the composition root (src/server/) and tests only. */
#pragma once

#include "seen/seen.h"

struct seen_redis_config {
	const char *urls; /* redis:// or redis+sentinel://; several, separated by commas, form a ring */
	const char *installation; /* the same for all that share a sink, and unique: letters and digits */
	uint64_t window_ms;
	/* 1: the sink has no fingerprint at all, so the filter misses nothing; 0: it has some; an error
	 * counts as 0. On the thread that calls `check`. */
	int (*sink_is_empty)(void *ctx);
	void *ctx;
};

/* Connects to no server yet: an unavailable filter does not prevent the start. */
int seen_redis_open(const struct seen_redis_config *config, struct seen **ret, struct err *e);
