/* Units of time and the steps of a series, in UTC. Pure functions for all backends of the role `sink`. */
#pragma once

#include "sink/sink.h"

#define SECOND_MS 1000LL
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS   (60 * MINUTE_MS)
#define DAY_MS    (24 * HOUR_MS)

static inline int64_t time_floor(int64_t ms, int64_t unit_ms)
{
	int64_t rest = ms % unit_ms;
	return ms - (rest < 0 ? rest + unit_ms : rest);
}

static inline int64_t time_ceil(int64_t ms, int64_t unit_ms)
{
	return time_floor(ms + unit_ms - 1, unit_ms);
}

static inline int64_t day_of(int64_t ms)
{
	return time_floor(ms, DAY_MS) / DAY_MS;
}

/* Sizes of rollup cells. Backends that fold rollups start with minutes and fold them into larger cells. */
enum cell_level { CELL_MINUTE, CELL_HOUR, CELL_DAY, CELL_LEVELS };
extern const int64_t cell_level_ms[CELL_LEVELS];
enum { LINK_ALL = 0, LINK_ORPHANS = -1 }; /* cells that are not of a single link */

/* The number of the step that contains a time, and the start of a step. */
int64_t step_of(enum stats_step step, int64_t ms);
int64_t step_start_ms(enum stats_step step, int64_t number);

/* The length of a step; for months, a day. */
int64_t step_unit_ms(enum stats_step step);
