#include "lib/test.h"
#include "sink/name_table.h"

static struct str text_of(unsigned i, char out[16])
{
	snprintf(out, 16, "name-%u", i);
	return str_of(out);
}

TEST(names_are_found_however_many_there_are)
{
	enum { NAMES = 5000 };
	struct name_table t = {0};
	char text[16];
	assert_null(name_table_find(&t, 1, STR("name-0")));
	for (unsigned i = 0; i < NAMES; i++) /* many have the same hash */
		assert_int_equal(name_table_put(&t, (struct name_entry){i % 100, text_of(i, text), i + 1}),
		                 0);
	for (unsigned i = 0; i < NAMES; i++)
		assert_int_equal(name_table_find(&t, i % 100, text_of(i, text))->id, i + 1);
	assert_null(name_table_find(&t, 0, STR("name-5000")));
	assert_null(name_table_find(&t, 1, STR("name-0"))); /* with another one's hash */
	assert_int_equal(t.count, NAMES);
	name_table_forget(&t);
	assert_null(name_table_find(&t, 0, STR("name-0")));
}

TEST(one_that_is_there_keeps_its_number_and_gets_a_later_day)
{
	struct name_table t = {0};
	assert_int_equal(name_table_put(&t, (struct name_entry){7, STR("x"), 1, .day = 5}), 0);
	assert_int_equal(name_table_put(&t, (struct name_entry){7, STR("x"), 2, .day = 9}), 0);
	assert_int_equal(name_table_put(&t, (struct name_entry){7, STR("x"), 3, .day = 3}), 0);
	assert_int_equal(name_table_find(&t, 7, STR("x"))->id, 1);
	assert_int_equal(name_table_find(&t, 7, STR("x"))->day, 9);
	assert_int_equal(t.count, 1);
	name_table_forget(&t);
}

TEST_MAIN()
