/*
 * The conformance suite of the role `sink`: every promise of sink/sink.h as a test, most of them against a
 * model that keeps everything in plain arrays and counts anew for each question. A backend passes by running
 * it from tests/conformance/sink_test.c.
 */
#pragma once

#include "sink/settings.h"
#include "sink/sink.h"

/* What not every backend does, or does otherwise: tests that are about it are for the others. */
enum sink_ability {
	SINK_POSITIONS = 1, /* keeps them: `resume` */
	SINK_TOTALS = 2,    /* knows which have changed: `totals` */
	SINK_FOLDING = 4,   /* counts more coarsely after a while */
	SINK_BOUNDS = 8,    /* bounds how many different texts it counts apart */
	SINK_BLOCKS = 16,   /* drops rows in the order of recording, not by their times */
	SINK_SHARED = 32,   /* several servers fill it */
};

struct sink_backend {
	const char *name;
	unsigned abilities;      /* bits */
	unsigned effort_divisor; /* so many times fewer questions, where each takes long; 0: as many as there
	                            are */
	bool (*is_there)(void);  /* NULL: it always is */
	struct sink *(*open)(const struct sink_settings *settings); /* a fresh one with nothing in it */
	struct sink *(*reopen)(struct sink *, const struct sink_settings *settings); /* closes it first */
	void (*close)(struct sink *); /* and forgets what was kept */
};

/* How many tests failed. */
int sink_suite_run(const struct sink_backend *backend);
