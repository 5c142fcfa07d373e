/* How long what was counted is kept, and how finely. For every backend of the role `sink`. */
#pragma once

#include "config/config.h"

struct sink_settings {
	uint64_t minutes_ms;     /* rollups of visits by the minute */
	uint64_t hours_ms;       /* ... by the hour */
	uint64_t days_ms;        /* ... by the day, and of impressions by the hour; 0: for ever */
	uint64_t visits_ms;      /* rows of single visits */
	uint64_t impressions_ms; /* rows of impressions, and their rollups by the second and minute */
	uint64_t seen_ms;        /* an impression of the same fingerprint within it is a duplicate */
};

extern const struct conf_row sink_rows[];
extern const size_t sink_row_count;

/* As a sink goes by them: rows and hours are of no use without the days that lead to them. */
struct sink_settings sink_settings_settle(const struct sink_settings *from);
