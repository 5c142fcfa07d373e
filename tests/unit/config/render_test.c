#include "config/config.h"
#include "lib/test.h"

struct target {
	char *url;
	uint64_t number;
};

static const char *const modes[] = {"slow", "fast", NULL};

static const struct conf_row first_rows[] = {
    {"serve", "base_url", CONF_STRING, 0, "", .help = "The address in short links."},
    {"store", "pool_max", CONF_UINT, 0, "8", 1, 512, .help = "Connections at most."},
};
static const struct conf_row second_rows[] = {
    {"serve", "mode", CONF_ENUM, 0, "fast", .choices = modes, .flags = CONF_RELOADABLE,
     .help = "How | fast."},
    {"store", "password", CONF_STRING, 0, "nowhere:", .flags = CONF_SECRET, .help = "The way in."},
    {"store", "verify", CONF_BOOL, 0, "yes", .help = "Whether to look twice."},
    {"cache", "memory", CONF_BYTES, 0, "64m", 1 << 20, .help = "What the cache may use."},
};

static struct target target;
static const struct conf_group groups[] = {
    {first_rows, ARRAY_LEN(first_rows), &target},
    {second_rows, ARRAY_LEN(second_rows), &target},
};

static char *rendered(void (*render)(const struct conf_group *, size_t, struct buf *))
{
	static struct buf b;
	b.len = 0;
	render(groups, ARRAY_LEN(groups), &b);
	buf_char(&b, '\0');
	assert_false(b.failed);
	return b.data;
}

static void assert_says(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in: %s", part, text);
}

static size_t occurrences(const char *text, const char *part)
{
	size_t count = 0;
	while ((text = strstr(text, part))) {
		count++;
		text += strlen(part);
	}
	return count;
}

TEST(help_has_every_flag_sentence_and_default)
{
	const char *text = rendered(conf_help);
	assert_says(text, "  --base-url VALUE");
	assert_says(text, "--store-pool-max VALUE");
	assert_says(text, "  --mode VALUE");
	assert_says(text, "--store-password VALUE");
	assert_says(text, "--store-verify [true|false]");
	assert_says(text, "--cache-memory VALUE");
	assert_says(text, "The address in short links.");
	assert_says(text, "a whole number from 1 to 512; default 8\n");
	assert_says(text, "one of slow, fast; default fast\n");
	assert_says(text, "default 64m\n");
}

TEST(markdown_has_every_row_with_all_its_names)
{
	const char *text = rendered(conf_markdown);
	assert_says(text, "\n### serve.base_url\n\nThe address in short links.\n\n"
	                  "- Flag `--base-url`, variable `CURT_SERVE_BASE_URL`\n"
	                  "- Value: text without control characters\n");
	assert_says(text, "\n### store.pool_max\n\nConnections at most.\n\n"
	                  "- Flag `--store-pool-max`, variable `CURT_STORE_POOL_MAX`\n"
	                  "- Value: a whole number from 1 to 512\n"
	                  "- Default: `8`\n");
	assert_says(text, "How | fast. SIGHUP applies a change without a restart.\n");
	assert_says(text, "- Value: true or false\n- Default: `yes`\n");
	assert_says(text, "`CURT_CACHE_MEMORY`");
}

TEST(flags_are_listed_with_a_space_between_them)
{
	assert_string_equal(rendered(conf_flags), "--base-url --store-pool-max --mode --store-password "
	                                          "--store-verify --cache-memory");
}

TEST(text_is_wrapped_between_words)
{
	static struct buf b;
	conf_wrap(&b, STR("one two three\nfour unbreakable-word"), 4, 2, 12);
	buf_char(&b, '\0');
	assert_string_equal(b.data, "one two\n  three\n  four\n  unbreakable-word\n");
	buf_release(&b);
}

TEST(every_section_stands_once_with_the_rows_of_all_groups)
{
	const char *text = rendered(conf_markdown);
	assert_int_equal(occurrences(text, "\n## ["), 3);
	assert_int_equal(occurrences(text, "\n## [serve]\n"), 1);
	assert_int_equal(occurrences(text, "\n## [store]\n"), 1);
	const char *store = strstr(text, "## [store]"), *cache = strstr(text, "## [cache]");
	assert_true(strstr(text, "serve.mode") < store);
	assert_true(strstr(text, "store.verify") > store);
	assert_true(strstr(text, "store.verify") < cache);
	assert_int_equal(occurrences(rendered(conf_help), "\n[serve]\n"), 1);
}

TEST(the_default_of_a_secret_is_public)
{
	assert_says(rendered(conf_help), "default nowhere:");
	const char *text = rendered(conf_markdown);
	assert_says(text, "The way in. Secret: curt never prints the value.\n");
	assert_says(text, "- Default: `nowhere:`\n");
}

TEST_MAIN()
