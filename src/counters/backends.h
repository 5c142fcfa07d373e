/* The backends of the role `counters`. Only the composition root (src/cmd/) and tests include this. */
#pragma once

#include "counters/counters.h"

struct counters_redis_config {
	const char *urls;          /* redis:// or redis+sentinel://; several separated by commas are a ring */
	const char *installation;  /* the same for all servers and workers on one store: letters and digits */
	uint64_t stream_links_max; /* more of a stream are forgotten when the store knows them */
};

/* Connects to none of them: counters that are away are no reason not to start. */
int counters_redis_open(const struct counters_redis_config *config, struct counters **ret, struct err *e);
