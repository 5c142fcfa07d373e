/* Names of ads, and the split of a window into buckets. Clients choose the names, so their number is
 * bounded. */
#pragma once

#include "sink/calendar.h"

/* Beyond these bounds a new ad counts as ADS_OTHER. */
enum { ADS_MAX = 50000, NEW_ADS_PER_DAY = 10000 };
#define ADS_OTHER "(other)"

/* From this many on, names are dropped although older counts still refer to them. */
enum { ADS_CROWDED = ADS_MAX / 5 * 4 };

/* Sorts by name and adds up equal names (several may be ADS_OTHER). Returns how many are left. */
size_t ads_merge(struct ad_count *ads, size_t count);

/* Sizes of the buckets that ads are counted in. */
enum ad_level { AD_SECOND, AD_MINUTE, AD_HOUR, AD_DAY, AD_LEVELS };
extern const int64_t ad_level_ms[AD_LEVELS];

/* A part of a window, from <= time < to. */
struct window_part {
	int level; /* whole buckets of that enum ad_level; -1: single rows */
	int64_t from_ms, to_ms;
};
enum { WINDOW_PARTS_MAX = 24 };

/* Splits a window into the largest whole buckets, and rows at its edges. Before `kept_ms`, a full hour, only
 * hours and days exist: an hour counts if its start is inside. Returns the number of parts. */
size_t window_split(const struct window_query *q, int64_t kept_ms, struct window_part ret[WINDOW_PARTS_MAX]);
