/* Folding old rollups and dropping what is past its time. For sink_sqlite.c only; SQLite's codes. */
#pragma once

#include "sink/layout.h"
#include "sink/settings.h"

/* What it remembers between steps; losing it costs time only. */
struct tidy {
	int64_t swept_day;  /* texts have been swept on it */
	int64_t swept_text; /* up to this one */
};

/* One step, in the transaction that the caller has begun: *ret_more says whether it did anything. */
int tidy_step(struct tidy *t, struct sqlite_conn *c, const struct sink_settings *s, int64_t now_ms,
              bool *ret_more);
