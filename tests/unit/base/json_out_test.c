#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json_out.h"

static void expect(struct str in, const char *out)
{
	struct buf b = {0};
	json_out_str(&b, in);
	buf_char(&b, '\0');
	assert_string_equal(b.data, out);
	buf_release(&b);
}

static void plain_text_stands_as_it_is(void **state)
{
	(void)state;
	expect(STR(""), "\"\"");
	expect(STR("hello, world/"), "\"hello, world/\"");
	expect(STR("\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80"), "\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80\"");
}

static void what_json_cannot_hold_is_escaped(void **state)
{
	(void)state;
	expect(STR("a\"b\\c"), "\"a\\\"b\\\\c\"");
	expect(STR("\n\r\t\x01\x1f\x7f"), "\"\\n\\r\\t\\u0001\\u001f\\u007f\"");
	expect(STR("a\0b"), "\"a\\u0000b\"");
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
	(void)state;
	expect(STR("\xff"), "\"\xef\xbf\xbd\"");
	expect(STR("a\xc3"), "\"a\xef\xbf\xbd\"");
	expect(STR("\xc0\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");                 /* overlong */
	expect(STR("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* surrogate */
	expect(STR("\xf4\x90\x80\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
	expect(STR("\xe2\x82z"), "\"\xef\xbf\xbd\xef\xbf\xbdz\"");
}

static void absent_strings_and_times_are_null(void **state)
{
	(void)state;
	struct buf b = {0};
	json_out_str_or_null(&b, STR_NULL);
	json_out_str_or_null(&b, STR(""));
	json_out_time(&b, 0);
	json_out_time(&b, 1500);
	buf_char(&b, '\0');
	assert_string_equal(b.data, "null\"\"null\"1970-01-01T00:00:01.500Z\"");
	buf_release(&b);
}

static void items_and_members_are_separated_by_commas(void **state)
{
	(void)state;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(plain_text_stands_as_it_is),
	    cmocka_unit_test(what_json_cannot_hold_is_escaped),
	    cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
	    cmocka_unit_test(absent_strings_and_times_are_null),
	    cmocka_unit_test(items_and_members_are_separated_by_commas),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
