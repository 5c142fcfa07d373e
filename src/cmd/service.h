/* What the services without a listener have in common: settings, the log, and running until a signal comes.
 */
#pragma once

#include "cmd/settings.h"

struct service {
	const char *usage;
	/* Prints a line when it is ready. On failure everything is as before. */
	int (*start)(void *ctx, const struct settings *settings, struct err *e);
	void (*stop)(void *ctx);
	void *ctx;
};

/* Until SIGTERM or SIGINT; the exit status. */
int service_run(const struct service *service, int argc, char **argv);
