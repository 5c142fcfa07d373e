/* Folding old rollups and dropping what is past its time. For sink_sqlite.c only; SQLite's codes. */
#pragma once

#include "sink/layout.h"
#include "sink/settings.h"

/* Of a dictionary, once a day, some at a time. */
struct sweep {
	int64_t day;  /* all have been swept on it */
	int64_t upto; /* the last one looked at */
};

/* What it remembers between steps; losing it costs time only. */
struct tidy {
	size_t next; /* the kind of step to begin with, so that each has its turn */
	struct sweep texts, ads;
};

/* One step, in the transaction that the caller has begun: *ret_more says whether it did anything. A clock
 * that runs ahead of the commits is not believed: nothing goes that an hour after the last commit would not.
 */
int tidy_step(struct tidy *t, struct sqlite_conn *c, const struct sink_settings *s, int64_t now_ms,
              bool *ret_more);
