/* The backends of the role `seen`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "seen/seen.h"

struct seen_redis_config {
	const char *urls; /* redis:// or redis+sentinel://; several separated by commas are a ring */
	const char
	    *installation; /* the same for all that share a sink, another for others: letters and digits */
	uint64_t window_ms;
	/* 1: the sink could not recall any impression, whichever, so that nothing was ever counted that the
	 * filter should know; 0: it could. An error is no reason to stop. On the thread that asks. */
	int (*sink_is_empty)(void *ctx);
	void *ctx;
};

/* Connects to none of them: a filter that is away is no reason not to start. */
int seen_redis_open(const struct seen_redis_config *config, struct seen **ret, struct err *e);
