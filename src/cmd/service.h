/* What every command has in common that runs until a signal: settings, the log, signals. */
#pragma once

#include "cmd/command.h"
#include "server/settings.h"

struct service {
	struct settings *settings; /* to load into; NULL: service_run has its own */
	/* Prints a line when it is ready. */
	int (*start)(void *ctx, const struct settings *settings, struct err *e);
	void (*stop)(void *ctx); /* also after a start that failed */
	/* On SIGHUP: applies the settings that may change. NULL: none may. */
	void (*reload)(void *ctx, const struct args *a);
	void *ctx;
};

/* Runs until SIGTERM or SIGINT; returns the exit status. */
int service_run(const struct service *service, const struct args *a);
