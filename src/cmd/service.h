/* What all that runs until a signal comes has in common: settings, the log, signals. */
#pragma once

#include "server/settings.h"

struct service {
	const char *usage;
	struct settings *settings; /* zeroed; loaded before the start, and released at the end */
	/* Prints a line when it is ready. */
	int (*start)(void *ctx, const struct settings *settings, struct err *e);
	void (*stop)(void *ctx); /* also after a start that failed */
	/* On SIGHUP: takes what can be changed of the settings. NULL: all of them take a restart. */
	void (*reload)(void *ctx, int argc, char **argv);
	void *ctx;
};

/* Until SIGTERM or SIGINT; the exit status. */
int service_run(const struct service *service, int argc, char **argv);

/* Prints the usage and all settings; the exit status. */
int service_help(const char *usage);
