#include "sink/ads.h"

#include <stdlib.h>

const int64_t ad_level_ms[AD_LEVELS] = {SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS};

static int ad_compare(const void *a, const void *b)
{
	const struct ad_count *x = a, *y = b;
	return str_order(x->ad, y->ad);
}

size_t ads_merge(struct ad_count *ads, size_t count)
{
	size_t kept = 0;
	qsort(ads, count, sizeof(*ads), ad_compare);
	for (size_t i = 0; i < count; i++) {
		if (kept > 0 && str_eq(ads[kept - 1].ad, ads[i].ad))
			ads[kept - 1].count += ads[i].count;
		else
			ads[kept++] = ads[i];
	}
	return kept;
}

/* --- windows --- */

struct part_list {
	struct window_part *parts;
	size_t count;
};

static void part_add(struct part_list *s, int level, int64_t from_ms, int64_t to_ms)
{
	if (from_ms >= to_ms)
		return;
	ASSERT(s->count < WINDOW_PARTS_MAX);
	s->parts[s->count++] = (struct window_part){.level = level, .from_ms = from_ms, .to_ms = to_ms};
}

/* Splits into the largest whole buckets, up to `level`; the rest at both edges is split further. */
static void split(struct part_list *s, int level, int64_t from_ms, int64_t to_ms)
{
	if (from_ms >= to_ms)
		return;
	int64_t first_ms = to_ms, last_ms = from_ms;
	for (; level >= 0 && first_ms >= last_ms; level--) {
		first_ms = time_ceil(from_ms, ad_level_ms[level]);
		last_ms = time_floor(to_ms, ad_level_ms[level]);
	}
	if (first_ms >= last_ms) {
		part_add(s, -1, from_ms, to_ms);
		return;
	}
	part_add(s, level + 1, first_ms, last_ms);
	split(s, level, from_ms, first_ms);
	split(s, level, last_ms, to_ms);
}

size_t window_split(const struct window_query *q, int64_t kept_ms, struct window_part ret[WINDOW_PARTS_MAX])
{
	const int64_t limit_ms = 1LL << 48;
	struct part_list s = {.parts = ret};
	int64_t from_ms = MAX(MIN(q->from_ms, limit_ms) + 1, 0), to_ms = MIN(q->to_ms, limit_ms - 1) + 1;
	if (from_ms < kept_ms)
		split(&s, AD_DAY, time_ceil(from_ms, HOUR_MS), time_ceil(MIN(to_ms, kept_ms), HOUR_MS));
	split(&s, AD_DAY, MAX(from_ms, kept_ms), to_ms);
	return s.count;
}
