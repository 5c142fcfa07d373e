#include "lib/test.h"
#include "sink/settings.h"

static int load(struct sink_settings *s, char *arg)
{
	struct conf_group group = {sink_rows, sink_row_count, s};
	char *args[] = {arg};
	struct conf_source from = {.args = args, .arg_count = arg ? 1 : 0};
	return conf_load(&group, 1, &from, NULL);
}

TEST(years_are_allowed)
{
	struct sink_settings s = {0};
	assert_int_equal(load(&s, "--sink-visits-time=3650d"), 0);
	assert_int_equal(s.visits_ms, 3650ULL * 86400000);
	assert_int_equal(load(&s, "--seen-window=12h"), 0);
	assert_int_equal(s.seen_ms, 12ULL * 3600000);
}

TEST(nothing_is_kept_for_no_time)
{
	struct sink_settings s = {0};
	assert_int_equal(load(&s, "--sink-minutes-time=0ms"), ERR_INVALID);
	assert_int_equal(load(&s, "--seen-window=0ms"), ERR_INVALID);
	assert_int_equal(load(&s, "--sink-days-time=0ms"), 0);
}

TEST_MAIN()
