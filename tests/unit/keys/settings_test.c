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

TEST(a_low_mark_above_its_high_one_is_refused_by_name)
{
	char *of_shards[] = {"--keys-low=6000"}, *of_stocks[] = {"--keys-db-high=5"};
	struct keys_settings s;
	struct err e = {""};
	load(&s, of_shards, 1);
	assert_int_equal(keys_settings_check(&s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "keys.low"));
	release(&s);
	load(&s, of_stocks, 1);
	assert_int_equal(keys_settings_check(&s, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "keys.db_low"));
	release(&s);
}

TEST_MAIN()
