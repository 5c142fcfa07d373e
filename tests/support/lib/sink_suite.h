/*
 * The conformance suite of the role `sink`: every promise of sink/sink.h as a test, most of them against a
 * model that keeps everything in plain arrays and counts anew for each question. A backend passes by running
 * it from tests/conformance/sink_test.c.
 */
#pragma once

#include "sink/settings.h"
#include "sink/sink.h"

struct sink_backend {
	const char *name;
	struct sink *(*open)(const struct sink_settings *settings); /* a fresh one with nothing in it */
	struct sink *(*reopen)(struct sink *, const struct sink_settings *settings); /* closes it first */
	void (*close)(struct sink *); /* and forgets what was kept */
};

/* How many tests failed. */
int sink_suite_run(const struct sink_backend *backend);
