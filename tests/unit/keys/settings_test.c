#include "keys/settings.h"
#include "lib/test.h"

static void load(struct keys_settings *s, char **args, int count)
{
	const struct conf_group group = {keys_rows, keys_row_count, s};
	const struct conf_source from = {.args = args, .arg_count = count};
	MUST(conf_load(&group, 1, &from, &why));
}

static void release(struct keys_settings *s)
{
	const struct conf_group group = {keys_rows, keys_row_count, s};
	conf_release(&group, 1);
}

TEST(by_default_there_is_no_pipeline_and_the_marks_are_in_order)
{
	struct keys_settings s;
	load(&s, NULL, 0);
	assert_string_equal(s.url, "");
	assert_string_equal(s.db_url, "");
	assert_int_equal(s.low, 1000);
	assert_int_equal(s.high, 5000);
	assert_int_equal(s.db_low, 10000);
	assert_int_equal(s.db_high, 50000);
	assert_int_equal(s.batch, 64);
	assert_int_equal(s.sync_shards, 2);
	assert_int_equal(s.gen_stocks, 1);
	assert_int_equal(keys_settings_check(&s, NULL), 0);
	release(&s);
}

TEST(a_low_mark_above_its_high_one_is_refused_by_name)
{
	char *of_shards[] = {"--keys-low=6000"}, *of_stocks[] = {"--keys-stock-high=5"};
	struct keys_settings s;
	struct err e = {""};
	load(&s, of_shards, 1);
	assert_int_equal(keys_settings_check(&s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "keys.low"));
	release(&s);
	load(&s, of_stocks, 1);
	assert_int_equal(keys_settings_check(&s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "keys.stock_low"));
	release(&s);
}

TEST_MAIN()
