#include "lib/test.h"
#include "sink/ads.h"

static const int64_t start_ms = 1790000000000 / 86400000 * 86400000;

static uint64_t random_state = 88172645463325252u;

static int64_t random_below(int64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (int64_t)(random_state % (uint64_t)n);
}

/* How often that time is in the parts. */
static int times_in(const struct window_part *parts, size_t count, int64_t ms)
{
	int n = 0;
	for (size_t i = 0; i < count; i++)
		n += ms >= parts[i].from_ms && ms < parts[i].to_ms;
	return n;
}

TEST(every_moment_of_a_window_is_in_one_part_and_no_other_is)
{
	for (int round = 0; round < 2000; round++) {
		int64_t unit_ms = round % 3 ? 1 : ad_level_ms[round % AD_LEVELS];
		int64_t a = random_below(40 * DAY_MS) / unit_ms * unit_ms;
		int64_t b = a + random_below(round % 2 ? 3 * DAY_MS : 3000);
		struct window_query q = {.from_ms = start_ms + a, .to_ms = start_ms + b};
		struct window_part parts[WINDOW_PARTS_MAX];
		size_t count = window_split(&q, 0, parts);
		assert_int_equal(times_in(parts, count, q.from_ms), 0);
		assert_int_equal(times_in(parts, count, q.to_ms + 1), 0);
		if (a < b) {
			assert_int_equal(times_in(parts, count, q.from_ms + 1), 1);
			assert_int_equal(times_in(parts, count, q.to_ms), 1);
			assert_int_equal(times_in(parts, count, q.from_ms + 1 + random_below(b - a)), 1);
		}
		for (size_t i = 0; i < count; i++) {
			int64_t unit = parts[i].level < 0 ? 1 : ad_level_ms[parts[i].level];
			assert_int_equal(parts[i].from_ms % unit, 0);
			assert_int_equal(parts[i].to_ms % unit, 0);
			if (parts[i].level < 0) /* there is no whole second in it */
				assert_true(parts[i].to_ms - parts[i].from_ms < 2 * SECOND_MS);
		}
	}
}

TEST(before_what_is_kept_an_hour_counts_when_its_start_is_inside)
{
	struct window_part parts[WINDOW_PARTS_MAX];
	int64_t kept_ms = start_ms + 10 * HOUR_MS;
	struct window_query q = {.from_ms = start_ms + 1, .to_ms = start_ms + 5 * HOUR_MS + 1};
	size_t count = window_split(&q, kept_ms, parts);
	assert_int_equal(count, 1);
	assert_int_equal(parts[0].level, AD_HOUR);
	assert_int_equal(parts[0].from_ms, start_ms + HOUR_MS);
	assert_int_equal(parts[0].to_ms, start_ms + 6 * HOUR_MS);
	q.to_ms = kept_ms + 1500;
	count = window_split(&q, kept_ms, parts);
	assert_int_equal(times_in(parts, count, kept_ms - 1), 1);
	assert_int_equal(times_in(parts, count, kept_ms), 1);
	assert_int_equal(times_in(parts, count, kept_ms + 1500), 1);
	assert_int_equal(times_in(parts, count, kept_ms + 1501), 0);
}

TEST(a_window_without_end_has_few_parts)
{
	struct window_part parts[WINDOW_PARTS_MAX];
	struct window_query q = {.from_ms = INT64_MIN, .to_ms = INT64_MAX};
	size_t count = window_split(&q, start_ms, parts);
	assert_true(count > 0);
	assert_int_equal(times_in(parts, count, 0), 1);
	assert_int_equal(times_in(parts, count, start_ms + 12345), 1);
	q.to_ms = INT64_MIN;
	assert_int_equal(window_split(&q, start_ms, parts), 0);
}

TEST(counts_of_one_name_become_one_and_names_are_in_order)
{
	struct ad_count ads[] = {{STR("b"), 1}, {STR(ADS_OTHER), 2}, {STR("ab"), 3},
	                         {STR("b"), 4}, {STR("a"), 5},       {STR(ADS_OTHER), 6}};
	assert_int_equal(ads_merge(ads, ARRAY_LEN(ads)), 4);
	assert_true(str_eq(ads[0].ad, STR(ADS_OTHER)));
	assert_int_equal(ads[0].count, 8);
	assert_true(str_eq(ads[1].ad, STR("a")));
	assert_true(str_eq(ads[2].ad, STR("ab")));
	assert_int_equal(ads[3].count, 5);
	assert_int_equal(ads_merge(ads, 0), 0);
}

TEST_MAIN()
