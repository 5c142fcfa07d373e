/*
 * The conformance suite of the role `store`: every promise of store/store.h as a test. A backend passes by
 * running it from tests/conformance/store_test.c.
 */
#pragma once

#include "store/store.h"

struct store_backend {
	const char *name;
	struct store *(*open)(void);             /* a fresh one with nothing in it */
	struct store *(*reopen)(struct store *); /* closes it and opens what was kept; NULL: nothing is */
	void (*close)(struct store *);           /* and forgets what was kept */
	bool has_feed;
	bool deletes_first; /* a link that gives way is gone also when the new one's row turns out to be taken
	                     */
	bool has_parts;     /* several stores in one: a row's number is looked for in its key's part only */
};

/* How many tests failed. */
int store_suite_run(const struct store_backend *backend);
