/* Retention: how long counts are kept, and at which granularity. For every backend of the role `sink`. */
#pragma once

#include "config/config.h"

struct sink_settings {
	uint64_t minutes_ms;     /* rollups of visits by the minute */
	uint64_t hours_ms;       /* … by the hour */
	uint64_t days_ms;        /* … by the day, and of impressions by the hour; 0: for ever */
	uint64_t visits_ms;      /* rows of single visits */
	uint64_t impressions_ms; /* rows of impressions, and their rollups by the second and minute */
	uint64_t seen_ms;        /* the window in which an equal fingerprint is a duplicate */
};

extern const struct conf_row sink_rows[];
extern const size_t sink_row_count;

/* Makes the settings consistent: finer data never outlives coarser data. */
struct sink_settings sink_settings_normalize(const struct sink_settings *from);
