#include "config/names.h"
#include "lib/test.h"

TEST(a_row_has_a_flag_and_a_variable)
{
	char name[CONF_NAME_BYTES];
	const struct conf_row row = {.section = "events", .name = "flush_ms"};
	conf_flag_name(&row, name);
	assert_string_equal(name, "--events-flush-ms");
	conf_env_name(&row, name);
	assert_string_equal(name, "CURT_EVENTS_FLUSH_MS");
	conf_short_flag_name(&row, name);
	assert_string_equal(name, "");
}

TEST(rows_of_serve_have_a_short_flag_too)
{
	char name[CONF_NAME_BYTES];
	const struct conf_row row = {.section = "serve", .name = "base_url"};
	conf_flag_name(&row, name);
	assert_string_equal(name, "--serve-base-url");
	conf_short_flag_name(&row, name);
	assert_string_equal(name, "--base-url");
}

static const char *nearest(struct str typed)
{
	static const char *const known[] = {"url", "low", "high", "length", "alphabet", "flush_ms"};
	static struct conf_nearest n;
	conf_nearest_init(&n, typed);
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		conf_nearest_offer(&n, known[i]);
	return n.best;
}

TEST(a_mistyped_name_finds_the_one_that_was_meant)
{
	assert_string_equal(nearest(STR("ulr2")), "");
	assert_string_equal(nearest(STR("ur")), "url");
	assert_string_equal(nearest(STR("urll")), "url");
	assert_string_equal(nearest(STR("uri")), "url");
	assert_string_equal(nearest(STR("lenght")), "length");
	assert_string_equal(nearest(STR("alpabet")), "alphabet");
	assert_string_equal(nearest(STR("flush-ms")), "flush_ms");
	assert_string_equal(nearest(STR("flushms")), "flush_ms");
	assert_string_equal(nearest(STR("hihg")), "");
	assert_string_equal(nearest(STR("hig")), "high");
}

TEST(what_resembles_nothing_finds_nothing)
{
	char long_name[500];
	assert_string_equal(nearest(STR("zzz")), "");
	assert_string_equal(nearest(STR("something_else_entirely")), "");
	assert_string_equal(nearest(STR("")), "");
	memset(long_name, 'u', sizeof(long_name));
	assert_string_equal(nearest(str_n(long_name, sizeof(long_name))), "");
}

TEST_MAIN()
