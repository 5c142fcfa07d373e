/*
 * A sink that was away when this process started, for processes that only ask it: it is opened with one of
 * the first questions after it is back. Until then every question is ERR_UNAVAILABLE, and `ping` says why. It
 * takes no commits. Whoever tries to open it waits for as long as that takes, one at a time, not more often
 * than every two seconds; the others are answered at once.
 */
#pragma once

#include "sink/sink.h"

struct sink_lazy_config {
	int (*open)(void *ctx, struct sink **ret, struct err *e);
	void *ctx; /* outlives the sink */
};

int sink_lazy_new(const struct sink_lazy_config *config, struct sink **ret, struct err *e);
