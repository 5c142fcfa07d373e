#include "sink/settings.h"

#include "sink/calendar.h"

#define YEARS_MS (100LL * 366 * DAY_MS)

#define FIELD(f) offsetof(struct sink_settings, f)

const struct conf_row sink_rows[] = {
    {"sink", "minutes_time", CONF_DURATION, FIELD(minutes_ms), "2d", MINUTE_MS, YEARS_MS,
     .help = "How long visits are counted by the minute; after that, by the hour."},
    {"sink", "hours_time", CONF_DURATION, FIELD(hours_ms), "60d", MINUTE_MS, YEARS_MS,
     .help = "How long visits are counted by the hour; after that, by the day."},
    {"sink", "days_time", CONF_DURATION, FIELD(days_ms), "0ms", 0, YEARS_MS,
     .help = "How long counts of visits and impressions are kept, at least as long as counts by the hour. "
             "0ms: forever."},
    {"sink", "visits_time", CONF_DURATION, FIELD(visits_ms), "90d", MINUTE_MS, YEARS_MS,
     .help = "How long single visits can be listed."},
    {"sink", "impressions_time", CONF_DURATION, FIELD(impressions_ms), "35d", MINUTE_MS, YEARS_MS,
     .help = "How long single impressions are kept, with counts exact to the millisecond; after that, they "
             "are counted by the hour."},
    {"seen", "window", CONF_DURATION, FIELD(seen_ms), "24h", 1000, 366 * DAY_MS,
     .help = "How long an impression's id is remembered; the same id within this time is a duplicate."},
};
const size_t sink_row_count = ARRAY_LEN(sink_rows);

struct sink_settings sink_settings_normalize(const struct sink_settings *from)
{
	struct sink_settings s = *from;
	if (s.days_ms > 0) {
		s.days_ms = MAX(s.days_ms, MAX(s.hours_ms, s.minutes_ms));
		s.visits_ms = MIN(s.visits_ms, s.days_ms);
		s.impressions_ms = MIN(s.impressions_ms, s.days_ms);
	}
	return s;
}
