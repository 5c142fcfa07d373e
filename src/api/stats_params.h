/* The parameters of statistics: ?from=&to=&by=&bots=&browser=… */
#pragma once

#include "http/request.h"
#include "sink/sink.h"

enum { SHARES_DEFAULT = 10, SHARES_MAX = 1000 };

/* Fills the query's range, step, dimensions, filters and limits. ERR_INVALID with a message. Strings go to
 * the query's arena. */
int stats_params_read(struct str query, int64_t now_ms, struct stats_query *ret, struct err *e);

/* Only `from` and `to`; without them the last 30 days. */
int stats_range_read(struct str query, int64_t now_ms, struct arena *arena, int64_t *ret_from_ms,
                     int64_t *ret_to_ms, struct err *e);

const char *stats_step_name(enum stats_step s);
