/* The backends of the role `seen`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "seen/seen.h"

struct seen_redis_config {
	const char *urls; /* redis:// or redis+sentinel://; several separated by commas are a ring */
	const char
	    *installation; /* the same for all that share a sink, another for others: letters and digits */
	uint64_t window_ms;
	bool is_fresh; /* the sink has no impression: what the filter does not know was never counted */
};

/* Connects to none of them: a filter that is away is no reason not to start. */
int seen_redis_open(const struct seen_redis_config *config, struct seen **ret, struct err *e);
