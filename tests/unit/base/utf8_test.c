#include "base/utf8.h"
#include "lib/test.h"

static size_t encode(uint32_t c, char out[4])
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	for (size_t i = len; i-- > 1; c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)((0xf00 >> len) | c);
	return len;
}

TEST(every_character_is_well_formed_and_no_prefix_of_it_is)
{
	for (uint32_t c = 0; c < 0x110000; c++) {
		char text[4];
		size_t len = encode(c, text);
		bool surrogate = c >= 0xd800 && c < 0xe000;
		assert_int_equal(utf8_first(str_n(text, len)), surrogate ? 0 : len);
		for (size_t cut = 1; cut < len; cut++)
			assert_int_equal(utf8_first(str_n(text, cut)), 0);
	}
}

TEST(overlong_and_impossible_bytes_are_malformed)
{
	static const struct str bad[] = {
	    {"\x80", 1},
	    {"\xbf", 1},
	    {"\xc0\x80", 2},
	    {"\xc1\xbf", 2},
	    {"\xe0\x80\x80", 3},
	    {"\xe0\x9f\xbf", 3},
	    {"\xf0\x80\x80\x80", 4},
	    {"\xf0\x8f\xbf\xbf", 4},
	    {"\xf4\x90\x80\x80", 4},
	    {"\xf5\x80\x80\x80", 4},
	    {"\xff", 1},
	    {"\xc3\x28", 2},
	    {"\xe2\x82\x28", 3},
	    {"\xe2\x28\xa1", 3},
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(utf8_first(bad[i]), 0);
}

TEST(a_prefix_ends_with_a_whole_character)
{
	const struct str text = STR("a\u00fc\u20ac\U0001f600"); /* of 1, 2, 3 and 4 bytes */
	static const size_t lens[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
	for (size_t max = 0; max < ARRAY_LEN(lens); max++)
		assert_int_equal(utf8_prefix(text, max).len, lens[max]);
	assert_int_equal(utf8_prefix(STR_NULL, 5).len, 0);
}

TEST(what_a_message_repeats_is_short_and_printable)
{
	struct echo e;
#define TEN "aaaaaaaaaa"
	assert_string_equal(echo(&e, STR("")), "");
	assert_string_equal(echo(&e, STR("\u00fc")), "\u00fc");
	assert_string_equal(echo(&e, STR(TEN TEN TEN TEN)), TEN TEN TEN TEN);
	assert_string_equal(echo(&e, STR(TEN TEN TEN TEN "a")), TEN TEN TEN TEN "...");
	assert_string_equal(echo(&e, STR(TEN TEN TEN "aaaaaaaaa\u00fc")), TEN TEN TEN "aaaaaaaaa...");
	assert_string_equal(echo(&e, STR("a\nb")), "a...");
	assert_string_equal(echo(&e, STR("a\xff")), "a...");
}

TEST_MAIN()
