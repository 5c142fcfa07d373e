/* Names of ads. Anybody can make them up, so they are bounded. */
#pragma once

#include "sink/calendar.h"

/* Beyond them, a new ad counts as ADS_OTHER. */
enum { ADS_MAX = 50000, NEW_ADS_PER_DAY = 10000 };
#define ADS_OTHER "(other)"

/* From here on names go that older counts still mention. */
enum { ADS_CROWDED = ADS_MAX / 5 * 4 };

/* Sorts by name and joins those of the same, as several may be ADS_OTHER; how many are left. */
size_t ads_settle(struct ad_count *ads, size_t count);

/* Counts of each ad are kept by these. */
enum ad_level { AD_SECOND, AD_MINUTE, AD_HOUR, AD_DAY, AD_LEVELS };
extern const int64_t ad_level_ms[AD_LEVELS];

/* A part of a window, from <= time < to. */
struct window_part {
	int level; /* whole buckets of that enum ad_level; -1: by rows */
	int64_t from_ms, to_ms;
};
enum { WINDOW_PARTS_MAX = 24 };

/* The largest whole buckets of a window, and rows at its edges. Before `kept_ms`, a whole hour, there are
 * hours and days only: an hour counts when its start is inside. How many. */
size_t window_split(const struct window_query *q, int64_t kept_ms, struct window_part ret[WINDOW_PARTS_MAX]);
