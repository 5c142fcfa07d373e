/* Constructors of the counters backends. Only the composition root and tests include this. */
#pragma once

#include "counters/counters.h"

struct counters_redis_config {
	const char *urls; /* redis:// or redis+sentinel://; several separated by commas form a ring */
	/* identifies the store: letters and digits, the same for all its servers and workers */
	const char *installation;
	uint64_t stream_links_max; /* links per stream; the rest is dropped once the store has it */
};

/* Does not connect: counters that are down must not prevent a start. */
int counters_redis_open(const struct counters_redis_config *config, struct counters **ret, struct err *e);
