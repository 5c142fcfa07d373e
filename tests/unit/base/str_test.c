#include "base/str.h"
#include "lib/test.h"

TEST(equality_compares_bytes_and_length)
{
	assert_true(str_eq(STR("abc"), STR("abc")));
	assert_false(str_eq(STR("abc"), STR("abd")));
	assert_false(str_eq(STR("abc"), STR("ab")));
	assert_false(str_eq(STR("a\0b"), STR("a\0c")));
	assert_true(str_eq(STR_NULL, STR("")));
	assert_true(str_eq(STR_NULL, STR_NULL));
}

TEST(of_takes_a_c_string_or_null)
{
	assert_int_equal(str_of("four").len, 4);
	assert_null(str_of(NULL).ptr);
	assert_non_null(str_of("").ptr);
}

TEST(nocase_equality_folds_ascii_letters_only)
{
	assert_true(str_eq_nocase(STR("Content-Length"), STR("cONTENT-lENGTH")));
	assert_false(str_eq_nocase(STR("["), STR("{")));
	assert_false(str_eq_nocase(STR("@"), STR("`")));
	assert_false(str_eq_nocase(STR("\xc4"), STR("\xe4")));
	assert_false(str_eq_nocase(STR("a"), STR("ab")));
	assert_true(str_eq_nocase(STR_NULL, STR("")));
}

TEST(starts_and_ends_look_at_whole_prefixes_and_suffixes)
{
	assert_true(str_starts(STR("CURT_X"), STR("CURT_")));
	assert_false(str_starts(STR("CUR"), STR("CURT_")));
	assert_true(str_starts(STR("x"), STR("")));
	assert_true(str_starts(STR_NULL, STR("")));
	assert_true(str_ends(STR("a.log"), STR(".log")));
	assert_false(str_ends(STR("log"), STR(".log")));
	assert_false(str_ends(STR("a.log2"), STR(".log")));
	assert_true(str_ends(STR_NULL, STR("")));
}

TEST(trim_takes_spaces_and_tabs_from_both_ends)
{
	assert_true(str_eq(str_trim(STR(" \t a b\t ")), STR("a b")));
	assert_true(str_eq(str_trim(STR("a")), STR("a")));
	assert_int_equal(str_trim(STR(" \t ")).len, 0);
	assert_true(str_eq(str_trim(STR("\na\r")), STR("\na\r")));
	assert_int_equal(str_trim(STR_NULL).len, 0);
}

TEST(cut_walks_over_separated_parts)
{
	const char *const expected[] = {"a", "", "b", ""};
	struct str rest = STR("a,,b,");
	size_t i = 0;
	while (rest.ptr) {
		assert_in_range(i, 0, ARRAY_LEN(expected) - 1);
		assert_true(str_eq(str_cut(&rest, ','), str_of(expected[i++])));
	}
	assert_int_equal(i, ARRAY_LEN(expected));
}

TEST(cut_without_a_separator_takes_all)
{
	struct str rest = STR("whole");
	assert_true(str_eq(str_cut(&rest, ','), STR("whole")));
	assert_null(rest.ptr);

	rest = STR("");
	struct str part = str_cut(&rest, ',');
	assert_non_null(part.ptr);
	assert_int_equal(part.len, 0);
	assert_null(rest.ptr);

	rest = STR_NULL;
	assert_null(str_cut(&rest, ',').ptr);
}

TEST(u64_takes_plain_digits_up_to_the_largest_number)
{
	uint64_t n = 0;
	assert_true(str_u64(STR("0"), &n));
	assert_int_equal(n, 0);
	assert_true(str_u64(STR("00042"), &n));
	assert_int_equal(n, 42);
	assert_true(str_u64(STR("18446744073709551615"), &n));
	assert_true(n == UINT64_MAX);
}

TEST(u64_refuses_everything_else_and_leaves_the_output)
{
	static const char *const bad[] = {
	    "",
	    "+1",
	    "-1",
	    " 1",
	    "1 ",
	    "1x",
	    "0x1",
	    "1.0",
	    "/",
	    ":",
	    "18446744073709551616",
	    "99999999999999999999",
	    "184467440737095516150",
	};
	uint64_t n = 7;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(str_u64(str_of(bad[i]), &n));
	assert_false(str_u64(STR_NULL, &n));
	assert_false(str_u64(STR("1\0"), &n));
	assert_int_equal(n, 7);
}

TEST(a_list_of_urls_is_cut_where_a_scheme_follows_a_comma)
{
	struct str list = STR("redis+sentinel://a:1,b:2/x, redis://c ,postgres://d");
	assert_true(str_eq(str_cut_url(&list), STR("redis+sentinel://a:1,b:2/x")));
	assert_true(str_eq(str_cut_url(&list), STR("redis://c")));
	assert_true(str_eq(str_cut_url(&list), STR("postgres://d")));
	assert_null(list.ptr);
	list = STR(" a,b, ");
	assert_true(str_eq(str_cut_url(&list), STR("a,b,")));
	assert_null(list.ptr);
}

TEST(percent_escapes_are_decoded_and_nothing_else)
{
	char out[32];
	size_t len = 99;
	assert_true(str_percent_decode(STR("a%20b+c%2F%c3%A4%7f%0a"), out, &len));
	assert_int_equal(len, 10);
	assert_memory_equal(out, "a b+c/\xc3\xa4\x7f\n", 10);
	assert_true(str_percent_decode(STR(""), out, &len));
	assert_int_equal(len, 0);
	static const char *const bad[] = {"%",   "%4",  "a%",    "%zz",  "%4g",
	                                  "%g4", "%00", "a%00b", "%%20", "% 1"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(str_percent_decode(str_of(bad[i]), out, &len));
}

/* For those who are lenient: a malformed escape stays where it is. */
TEST(one_byte_is_taken_decoded)
{
	struct str s = STR("a%2f+%00%zz");
	const int bytes[] = {'a', '/', '+', 0, -1, -1};
	for (size_t i = 0; i < ARRAY_LEN(bytes); i++)
		assert_int_equal(str_take_decoded(&s), bytes[i]);
	assert_true(str_eq(s, STR("%zz")));
	s = STR("%2");
	assert_int_equal(str_take_decoded(&s), -1);
}

TEST_MAIN()
