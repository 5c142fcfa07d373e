/* What a service without an API tells about itself over HTTP: /healthz, /readyz and /metrics. */
#pragma once

#include "base/buf.h"
#include "http/conn.h"

struct status;

struct status_config {
	const char *listen; /* HOST:PORT */
	const struct http_settings *http;
	/* A check: its name, and 0 or why it is not well. False: there is no such check. On the listener's
	 * thread, as is the next one: they do not block. */
	bool (*check)(void *ctx, size_t number, const char **ret_name, int *ret, struct err *why);
	/* Appends to the counters of all threads. */
	void (*gauges)(void *ctx, struct buf *out);
	void *ctx;
};

int status_start(const struct status_config *config, struct status **ret, struct err *e);
void status_stop(struct status *s); /* NULL is fine */

/* Where it listens. */
const char *status_address(const struct status *s);
