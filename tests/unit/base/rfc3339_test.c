#include "base/rfc3339.h"
#include "lib/test.h"

enum { MINUTE = 60000, DAY = 86400000 };

static int64_t parsed(const char *text)
{
	int64_t ms = -1;
	if (!rfc3339_parse(str_of(text), &ms))
		fail_msg("'%s' was refused", text);
	return ms;
}

static void assert_formats(int64_t ms, const char *expected)
{
	char text[RFC3339_BYTES];
	struct str s = rfc3339_format(ms, text);
	assert_string_equal(text, expected);
	assert_int_equal(s.len, strlen(expected));
	assert_ptr_equal(s.ptr, text);
}

TEST(known_instants_are_formatted)
{
	assert_formats(0, "1970-01-01T00:00:00Z");
	assert_formats(1, "1970-01-01T00:00:00.001Z");
	assert_formats(951782400000, "2000-02-29T00:00:00Z");
	assert_formats(1794718800123, "2026-11-15T05:00:00.123Z");
	assert_formats(253402300799999, "9999-12-31T23:59:59.999Z");
}

TEST(times_before_1970_are_formatted_too)
{
	assert_formats(-1, "1969-12-31T23:59:59.999Z");
	assert_formats(-DAY, "1969-12-31T00:00:00Z");
	assert_formats(-2208988800000, "1900-01-01T00:00:00Z");
}

TEST(the_most_extreme_numbers_give_text_of_the_usual_length)
{
	char text[RFC3339_BYTES], date[HTTP_DATE_BYTES];
	static const int64_t extremes[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX};
	for (size_t i = 0; i < ARRAY_LEN(extremes); i++) {
		assert_in_range(rfc3339_format(extremes[i], text).len, 20, 24);
		http_date_format(extremes[i], date);
	}
}

TEST(every_day_agrees_with_the_c_library)
{
	for (int64_t day = -40000; day < 2932896;
	     day += 13) { /* 1860 to 9999, in steps that meet all dates */
		time_t t = (time_t)(day * 86400 + 3661);
		struct tm tm;
		char expected[64], text[RFC3339_BYTES], date[HTTP_DATE_BYTES + 1] = "";
		gmtime_r(&t, &tm);
		strftime(expected, sizeof(expected), "%Y-%m-%dT%H:%M:%SZ", &tm);
		rfc3339_format((int64_t)t * 1000, text);
		assert_string_equal(text, expected);
		if (t >= 0)
			assert_int_equal(parsed(text), (int64_t)t * 1000);
		strftime(expected, sizeof(expected), "%a, %d %b %Y %H:%M:%S GMT", &tm);
		http_date_format((int64_t)t * 1000, date);
		assert_string_equal(date, expected);
	}
}

TEST(a_date_is_its_first_instant_in_utc)
{
	assert_int_equal(parsed("1970-01-01"), 0);
	assert_int_equal(parsed("1970-01-02"), DAY);
	assert_int_equal(parsed("2026-11-15"), parsed("2026-11-15T00:00:00Z"));
}

TEST(zones_are_taken_off)
{
	int64_t noon = parsed("2026-07-01T12:00:00Z");
	assert_int_equal(parsed("2026-07-01T14:00:00+02:00"), noon);
	assert_int_equal(parsed("2026-07-01T06:30:00-05:30"), noon);
	assert_int_equal(parsed("2026-07-02T11:59:00+23:59"), noon);
	assert_int_equal(parsed("2026-07-01T12:00:00-00:00"), noon);
	assert_int_equal(parsed("2026-07-01t12:00:00z"), noon);
	assert_int_equal(parsed("2026-07-01 12:00:00Z"), noon);
}

TEST(fractions_are_cut_to_milliseconds)
{
	assert_int_equal(parsed("1970-01-01T00:00:00.5Z"), 500);
	assert_int_equal(parsed("1970-01-01T00:00:00.05Z"), 50);
	assert_int_equal(parsed("1970-01-01T00:00:00.123Z"), 123);
	assert_int_equal(parsed("1970-01-01T00:00:00.123999999999999999999Z"), 123);
	assert_int_equal(parsed("1970-01-01T00:00:01.001+00:00"), 1001);
}

TEST(leap_days_exist_in_leap_years_only)
{
	int64_t ms;
	assert_int_equal(parsed("2000-02-29") + DAY, parsed("2000-03-01"));
	assert_int_equal(parsed("2024-02-29") + DAY, parsed("2024-03-01"));
	assert_int_equal(parsed("2400-02-29") + DAY, parsed("2400-03-01"));
	assert_int_equal(parsed("2023-02-28") + DAY, parsed("2023-03-01"));
	assert_int_equal(parsed("2100-02-28") + DAY, parsed("2100-03-01"));
	assert_false(rfc3339_parse(STR("2023-02-29"), &ms));
	assert_false(rfc3339_parse(STR("2100-02-29"), &ms));
	assert_false(rfc3339_parse(STR("2024-02-30"), &ms));
}

TEST(every_month_ends_where_it_should)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	for (int month = 1; month <= 12; month++) {
		char text[32];
		int64_t ms;
		snprintf(text, sizeof(text), "2026-%02d-%02d", month, days[month - 1]);
		assert_true(rfc3339_parse(str_of(text), &ms));
		snprintf(text, sizeof(text), "2026-%02d-%02d", month, days[month - 1] + 1);
		assert_false(rfc3339_parse(str_of(text), &ms));
	}
}

TEST(a_leap_second_counts_as_the_next_second)
{
	assert_int_equal(parsed("2016-12-31T23:59:60Z"), parsed("2017-01-01T00:00:00Z"));
}

TEST(the_last_instant_of_the_year_9999_is_the_last_one_taken)
{
	int64_t ms;
	assert_int_equal(parsed("9999-12-31T23:59:59.999Z"), 253402300799999);
	assert_int_equal(parsed("9999-12-31T23:59:59+00:01"), 253402300799000 - MINUTE);
	assert_false(rfc3339_parse(STR("9999-12-31T23:59:60Z"), &ms));
	assert_false(rfc3339_parse(STR("9999-12-31T23:59:59-00:01"), &ms));
	assert_false(rfc3339_parse(STR("10000-01-01"), &ms));
}

TEST(times_before_1970_are_refused)
{
	int64_t ms;
	assert_false(rfc3339_parse(STR("1969-12-31T23:59:59Z"), &ms));
	assert_false(rfc3339_parse(STR("1970-01-01T00:00:00+00:01"), &ms));
	assert_false(rfc3339_parse(STR("0000-01-01"), &ms));
	assert_int_equal(parsed("1970-01-01T00:01:00+00:01"), 0);
}

TEST(everything_else_is_refused_and_leaves_the_output)
{
	static const char *const bad[] = {
	    "",
	    "2026",
	    "2026-11",
	    "2026-11-1",
	    "2026-11-15T",
	    "2026-11-15Z",
	    "2026-11-15T05:00Z",
	    "2026-11-15T05:00:00",
	    "2026-11-15T05:00:00.Z",
	    "2026-11-15T05:00:00,5Z",
	    "2026-11-15T05:00:00ZZ",
	    "2026-11-15T05:00:00Z ",
	    " 2026-11-15T05:00:00Z",
	    "2026-11-15T24:00:00Z",
	    "2026-11-15T05:60:00Z",
	    "2026-11-15T05:00:61Z",
	    "2026-11-15T5:00:00Z",
	    "2026-11-15T05:00:00+24:00",
	    "2026-11-15T05:00:00+02:60",
	    "2026-11-15T05:00:00+0200",
	    "2026-11-15T05:00:00+02",
	    "2026-11-15T05:00:00 02:00",
	    "2026-00-15",
	    "2026-13-15",
	    "2026-11-00",
	    "2026-11-31",
	    "2026/11/15",
	    "20261115",
	    "-2026-11-15",
	    "+2026-11-15",
	    "2026-1a-15",
	    "now",
	};
	int64_t ms = 7;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (rfc3339_parse(str_of(bad[i]), &ms))
			fail_msg("'%s' was taken", bad[i]);
	}
	assert_false(rfc3339_parse(STR("2026-11-15\0"), &ms));
	assert_false(rfc3339_parse(STR("2026-11-15T05:00:00\0"), &ms));
	assert_false(rfc3339_parse(STR_NULL, &ms));
	assert_int_equal(ms, 7);
}

TEST(numbers_are_seconds_or_milliseconds_since_1970)
{
	static const struct {
		const char *text;
		int64_t ms; /* -1: not a time */
	} cases[] = {
	    {"0", 0},
	    {"1", -1},
	    {"3600", -1},
	    {"20261231", -1},
	    {"99999999", -1},
	    {"100000000", 100000000000},
	    {"1794718800", 1794718800000},
	    {"99999999999", 99999999999000},
	    {"100000000000", 100000000000},
	    {"1794718800123", 1794718800123},
	    {"253402300799999", 253402300799999},
	    {"253402300800000", -1},
	    {"1794718800123456", -1}, /* microseconds */
	    {"9223372036854775807", -1},
	    {"18446744073709551615", -1},
	    {"99999999999999999999", -1},
	    {"-1", -1},
	    {"+1794718800", -1},
	    {" 1794718800", -1},
	    {"1794718800.5", -1},
	    {"1e9", -1},
	    {"", -1},
	    {"2026-11-15T05:00:00.123Z", 1794718800123},
	    {"1970-01-02", DAY},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t ms = -1;
		assert_int_equal(time_parse(str_of(cases[i].text), &ms), cases[i].ms >= 0);
		assert_int_equal(ms, cases[i].ms);
	}
	int64_t ms = -1;
	assert_false(time_from_number(-1, &ms) || time_from_number(INT64_MIN, &ms));
	assert_int_equal(ms, -1);
}

TEST(no_prefix_of_a_time_is_read_beyond_its_end)
{
	const char whole[] = "2026-11-15T05:00:00.123+02:00";
	for (size_t len = 0; len < sizeof(whole) - 1; len++) {
		int64_t ms;
		assert_int_equal(rfc3339_parse(str_n(whole, len), &ms), len == strlen("2026-11-15"));
	}
}

TEST_MAIN()
