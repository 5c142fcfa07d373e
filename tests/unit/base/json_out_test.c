#include "base/json_out.h"
#include "lib/test.h"

static void expect(struct str in, const char *out)
{
	struct buf b = {0};
	json_out_str(&b, in);
	buf_char(&b, '\0');
	assert_string_equal(b.data, out);
	buf_release(&b);
}

TEST(plain_text_stands_as_it_is)
{
	expect(STR(""), "\"\"");
	expect(STR("hello, world/"), "\"hello, world/\"");
	expect(STR("\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80"), "\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80\"");
}

TEST(what_json_cannot_hold_is_escaped)
{
	expect(STR("a\"b\\c"), "\"a\\\"b\\\\c\"");
	expect(STR("\n\r\t\x01\x1f\x7f"), "\"\\n\\r\\t\\u0001\\u001f\\u007f\"");
	expect(STR("a\0b"), "\"a\\u0000b\"");
}

TEST(bytes_that_are_not_utf8_are_replaced)
{
	expect(STR("\xff"), "\"\xef\xbf\xbd\"");
	expect(STR("a\xc3"), "\"a\xef\xbf\xbd\"");
	expect(STR("\xc0\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");                 /* overlong */
	expect(STR("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* surrogate */
	expect(STR("\xf4\x90\x80\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
	expect(STR("\xe2\x82z"), "\"\xef\xbf\xbd\xef\xbf\xbdz\"");
}

TEST(absent_strings_and_times_are_null)
{
	struct buf b = {0};
	json_out_str_or_null(&b, STR_NULL);
	json_out_str_or_null(&b, STR(""));
	json_out_time(&b, 0);
	json_out_time(&b, 1500);
	buf_char(&b, '\0');
	assert_string_equal(b.data, "null\"\"null\"1970-01-01T00:00:01.500Z\"");
	buf_release(&b);
}

TEST(items_and_members_are_separated_by_commas)
{
	struct buf b = {0};
	json_out_begin(&b, NULL, '{');
	json_out_name_u64(&b, "a", 1);
	json_out_name_str(&b, "b", STR("{"));
	json_out_begin(&b, "c", '[');
	json_out_begin(&b, NULL, '{');
	json_out_name_time(&b, "d", 0);
	buf_char(&b, '}');
	json_out_next(&b);
	json_out_u64(&b, 2);
	buf_str(&b, STR("]}"));
	buf_char(&b, '\0');
	assert_string_equal(b.data, "{\"a\":1,\"b\":\"{\",\"c\":[{\"d\":null},2]}");
	buf_release(&b);
}

TEST_MAIN()
