#include "config/suggest.h"
#include "lib/test.h"

static const char *nearest(struct str typed)
{
	static const char *const known[] = {"url", "low", "high", "length", "alphabet", "flush_ms"};
	static struct suggestion n;
	suggest_init(&n, typed);
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		suggest_offer(&n, known[i]);
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
	assert_string_equal(nearest(STR("hihg")), "high");
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

TEST(the_text_names_the_nearest_or_says_otherwise)
{
	struct suggestion s;
	suggest_init(&s, STR("lnk"));
	suggest_offer(&s, "stats");
	assert_string_equal(suggest_text(&s, "see the help"), "see the help");
	suggest_offer(&s, "link");
	assert_string_equal(suggest_text(&s, "see the help"), "did you mean link?");
}

TEST_MAIN()
