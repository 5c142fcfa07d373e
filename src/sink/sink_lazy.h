/*
 * A sink that could not be opened when the process started, for processes that only query it. A query tries
 * to open it, at most every two seconds and one thread at a time. Other queries get ERR_UNAVAILABLE at once
 * until it is open, and `ping` says why. It accepts no commits.
 */
#pragma once

#include "sink/sink.h"

struct sink_lazy_config {
	int (*open)(void *ctx, struct sink **ret, struct err *e);
	void *ctx; /* outlives the sink */
};

int sink_lazy_new(const struct sink_lazy_config *config, struct sink **ret, struct err *e);
