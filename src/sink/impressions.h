/* Impressions in the file: written by commits, added up by windows. SQLite's codes. */
#pragma once

#include "sink/layout.h"

enum { ADS_MAX = 50000, NEW_ADS_PER_DAY = 10000 }; /* beyond them, a new ad counts as "(other)" */

/* Those that count, at least one. Counts new ads in the book, whose kept_ms says which need no rows. */
int impressions_write(struct sqlite_conn *c, struct book *book,
                      const struct sink_impression *const *impressions, size_t count);

int impressions_window(struct sqlite_conn *c, struct window_query *q);
