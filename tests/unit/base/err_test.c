#include "base/err.h"
#include "lib/test.h"

TEST(set_fills_the_sentence_and_returns_the_code)
{
	struct err e;
	assert_int_equal(err_set(&e, ERR_LIMIT, "at most %d, not %s", 3, "four"), ERR_LIMIT);
	assert_string_equal(e.text, "at most 3, not four");
}

TEST(set_without_a_place_for_the_sentence_still_returns_the_code)
{
	assert_int_equal(err_set(NULL, ERR_BUSY, "%s", "nobody reads this"), ERR_BUSY);
}

TEST(a_sentence_too_long_is_cut_and_ends_in_nul)
{
	struct err e;
	memset(&e, 'x', sizeof(e));
	err_set(&e, ERR_INVALID, "%0600d", 1);
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
}

TEST(a_sentence_is_not_cut_within_a_character)
{
	struct err e;
	err_set(&e, ERR_INVALID, "%0510d\u00fc", 1);
	assert_int_equal(strlen(e.text), sizeof(e.text) - 2);
}

TEST(every_code_has_its_own_name)
{
	assert_string_equal(err_name(0), "ok");
	assert_string_equal(err_name(ERR_NOT_FOUND), "not-found");
	assert_string_equal(err_name(ERR_UNCERTAIN), "uncertain");
	assert_string_equal(err_name(-1000), "unknown");
	assert_string_equal(err_name(1), "unknown");
	for (int a = 0; a >= ERR_NOMEM; a--) {
		assert_string_not_equal(err_name(a), "unknown");
		for (int b = 0; b > a; b--)
			assert_string_not_equal(err_name(a), err_name(b));
	}
}

TEST_MAIN()
