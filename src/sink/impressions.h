/* Impressions in the file: written by commits, added up by windows. SQLite's codes. */
#pragma once

#include "sink/layout.h"

/* Those that count, at least one. Counts new ads in the book, whose kept_ms says which need no rows. */
int impressions_write(struct sqlite_conn *c, struct book *book,
                      const struct sink_impression *const *impressions, size_t count);

int impressions_window(struct sqlite_conn *c, struct window_query *q);
