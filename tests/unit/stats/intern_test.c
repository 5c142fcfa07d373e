#include "lib/test.h"
#include "stats/intern.h"

static struct agents *agents;
static struct intern intern;

static int make(void **state)
{
	assert_int_equal(agents_new(64, &agents, NULL), 0);
	return intern_init(&intern, agents);
}

static int release(void **state)
{
	intern_release(&intern);
	agents_free(agents);
	return 0;
}

static void assert_word(uint32_t number, const char *want)
{
	struct str got = intern_text(&intern, number);
	if (!str_eq(got, str_of(want)) || !got.ptr != !want)
		fail_msg("'%.*s' instead of '%s'", STR_ARG(got), want ? want : "(none)");
}

static uint32_t numbered(unsigned number)
{
	char text[32];
	return intern_add(&intern, str_n(text, (size_t)snprintf(text, sizeof(text), "word %u", number)));
}

TEST(a_text_has_one_number)
{
	char text[] = "one";
	uint32_t one = intern_add(&intern, str_of(text));
	text[0] = 'X'; /* it keeps its own copy */
	assert_int_not_equal(one, INTERN_NONE);
	assert_word(one, "one");
	assert_int_not_equal(intern_add(&intern, STR("two")), one);
	assert_int_equal(intern_add(&intern, STR("one")), one);
	assert_int_equal(intern_add(&intern, STR("")), INTERN_NONE);
	assert_int_equal(intern_add(&intern, STR_NULL), INTERN_NONE);
	assert_word(INTERN_NONE, NULL);
}

TEST(an_agent_is_taken_apart)
{
	static const struct {
		const char *agent, *browser, *os, *device, *bot;
	} table[] = {
	    {"Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0", "Firefox", "Linux",
	     "Desktop", NULL},
	    {"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "Googlebot", "Other",
	     "Bot", "crawler"},
	    {"curl/7.88.1", "curl", "Other", "Bot", "http-library"},
	};
	for (int twice = 0; twice < 2; twice++) {
		for (size_t i = 0; i < ARRAY_LEN(table); i++) {
			const struct interned *w = intern_agent(&intern,
			                                        intern_add(&intern, str_of(table[i].agent)));
			assert_word(w->browser, table[i].browser);
			assert_word(w->os, table[i].os);
			assert_word(w->device, table[i].device);
			assert_word(w->bot, table[i].bot);
		}
		assert_word(intern_agent(&intern, INTERN_NONE)->bot, "no-user-agent");
	}
	assert_int_equal(agents_read_stats(agents).misses, ARRAY_LEN(table)); /* each was asked about once */
}

TEST(a_referrer_has_its_host)
{
	static const struct {
		const char *referrer, *host;
	} table[] = {
	    {"https://News.Example/path?q#f", "news.example"},
	    {"http://a.example", "a.example"},
	    {"https://a.example:8443/", "a.example"},
	    {"https://me:secret@a.example/", "a.example"},
	    {"https://a.example?x@b.example", "a.example"},
	    {"https://a.example\\@b.example/", "a.example"},
	    {"https://[2001:DB8::1]:80/x", "[2001:db8::1]"},
	    {"https://[2001:db8::1]", "[2001:db8::1]"},
	    {"https://[2001:db8::1", NULL},
	    {"https://", NULL},
	    {"https:///path", NULL},
	    {"https://user@", NULL},
	    {"https://:80/", NULL},
	    {"https://b\xc3\xbc"
	     "cher.example/",
	     NULL},
	    {"https://a b.example/", NULL},
	    {"android-app://com.example", NULL},
	    {"ftp://a.example/", NULL},
	    {"a.example", NULL},
	    {"h", NULL},
	};
	for (int twice = 0; twice < 2; twice++) {
		for (size_t i = 0; i < ARRAY_LEN(table); i++)
			assert_word(intern_host(&intern, intern_add(&intern, str_of(table[i].referrer))),
			            table[i].host);
	}
	char url[400];
	for (size_t len = 250; len < 258; len++) {
		memset(url, 'a', sizeof(url));
		memcpy(url, "http://", 7);
		uint32_t host = intern_host(&intern, intern_add(&intern, str_n(url, 7 + len)));
		assert_int_equal(intern_text(&intern, host).len, len <= 253 ? len : 0);
	}
	assert_int_equal(intern_host(&intern, INTERN_NONE), INTERN_NONE);
}

TEST(a_preference_has_its_language)
{
	static const struct {
		const char *preference, *language;
	} table[] = {
	    {"en", "en"},    {"de-AT", "de"}, {"ZH-Hant-TW", "zh"}, {"gsw-CH", "gsw"}, {"haw", "haw"},
	    {"*", NULL},     {"e", NULL},     {"i-klingon", NULL},  {"engl", NULL},    {"e1", NULL},
	    {"en_US", NULL}, {"-", NULL},     {"x\xff", NULL},      {"english", NULL},
	};
	for (int twice = 0; twice < 2; twice++) {
		for (size_t i = 0; i < ARRAY_LEN(table); i++)
			assert_word(
			    intern_language(&intern, intern_add(&intern, str_of(table[i].preference))),
			    table[i].language);
	}
	assert_int_equal(intern_language(&intern, INTERN_NONE), INTERN_NONE);
}

TEST(too_many_words_are_refused_until_a_reset)
{
	unsigned n = 0;
	bool were_many = false;
	for (; numbered(n) != INTERN_NONE; n++) {
		assert_int_equal(intern_is_full(&intern), n + 1 > INTERN_MAX / 2);
		were_many |= intern_is_full(&intern);
	}
	assert_true(were_many);
	assert_int_equal(n, INTERN_MAX - 1);
	assert_int_not_equal(numbered(5), INTERN_NONE); /* known ones still are */
	intern_reset(&intern);
	assert_false(intern_is_full(&intern));
	assert_int_equal(numbered(n + 1), 1);
	assert_word(1, "word 65536");
}

TEST(too_many_bytes_are_refused_until_a_reset)
{
	enum { LONG = 64 * 1024 };
	char *text = malloc(LONG);
	unsigned n = 0;
	memset(text, 'x', LONG);
	do
		memcpy(text, &n, sizeof(n));
	while (intern_add(&intern, str_n(text, LONG)) != INTERN_NONE && ++n < 10000);
	assert_int_equal(n, INTERN_BYTES_MAX / LONG);
	assert_true(intern_is_full(&intern));
	intern_reset(&intern);
	assert_int_not_equal(intern_add(&intern, str_n(text, LONG)), INTERN_NONE);
	free(text);
}

TEST(a_reset_forgets_what_was_made_of_words)
{
	static const char curl[] = "curl/7.88.1";
	assert_word(intern_agent(&intern, INTERN_NONE)->bot, "no-user-agent");
	assert_word(intern_agent(&intern, intern_add(&intern, str_of(curl)))->browser, "curl");
	intern_reset(&intern);
	assert_int_equal(intern_add(&intern, STR("https://a.example/")), 1);
	assert_word(intern_host(&intern, 1), "a.example");
	assert_word(intern_agent(&intern, intern_add(&intern, str_of(curl)))->browser, "curl");
	assert_word(intern_agent(&intern, INTERN_NONE)->bot, "no-user-agent");
}

TEST(without_time_new_agents_are_other_until_there_is_more)
{
	uint32_t curl = intern_add(&intern, STR("curl/7.88.1")), wget = intern_add(&intern, STR("Wget/1.21"));
	intern_allow(&intern, 1);
	assert_word(intern_agent(&intern, curl)->browser, "curl"); /* which takes longer than that */
	assert_word(intern_agent(&intern, wget)->browser, "Other");
	assert_word(intern_agent(&intern, curl)->browser, "curl");
	assert_word(intern_agent(&intern, INTERN_NONE)->bot, "no-user-agent");
	intern_allow(&intern, INT64_MAX);
	assert_word(intern_agent(&intern, wget)->browser, "Wget");
}

TEST_MAIN(.setup = make, .teardown = release)
