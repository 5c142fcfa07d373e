#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json_out.h"

#include <jansson.h>

static void assert_writes(struct str text, const char *expected)
{
	CLEANUP(buf_release) struct buf b = {0};
	json_out_str(&b, text);
	if (!str_eq(buf_view(&b), str_of(expected)))
		fail_msg("'%.*s' is not '%s'", STR_ARG(buf_view(&b)), expected);
}

static void plain_text_is_quoted(void **state)
{
	(void)state;
	assert_writes(STR(""), "\"\"");
	assert_writes(STR("https://example.com/?a=1&b=2"), "\"https://example.com/?a=1&b=2\"");
	assert_writes(STR("\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\x97"),
	              "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\x97\"");
}

static void quotes_backslashes_and_controls_are_escaped(void **state)
{
	(void)state;
	assert_writes(STR("a\"b\\c"), "\"a\\\"b\\\\c\"");
	assert_writes(STR("\n\r\t"), "\"\\n\\r\\t\"");
	assert_writes(STR("\0\x1f\x7f"), "\"\\u0000\\u001f\\u007f\"");
}

static void bytes_that_are_not_utf8_become_the_replacement_character(void **state)
{
	(void)state;
	assert_writes(STR("a\xff"), "\"a\xef\xbf\xbd\"");
	assert_writes(STR("\xe2\x82"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
	assert_writes(STR("\xc0\xaf"), "\"\xef\xbf\xbd\xef\xbf\xbd\"");
	assert_writes(STR("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

/* Whatever the bytes: the result is a JSON string to another implementation, the same one if it was UTF-8. */
static void any_three_bytes_give_valid_json(void **state)
{
	(void)state;
	static const unsigned char edges[] = {0x00, 0x1f, 0x20, '"',  '\\', 'a',  0x7f, 0x80, 0x8f, 0x90,
	                                      0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec,
	                                      0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
	enum { EDGES = ARRAY_LEN(edges) };
	for (unsigned i = 0; i < EDGES * EDGES * EDGES; i++) {
		const char text[3] = {(char)edges[i % EDGES], (char)edges[i / EDGES % EDGES],
		                      (char)edges[i / EDGES / EDGES]};
		struct buf b = {0};
		json_out_str(&b, str_n(text, 3));
		json_t *value = json_loadb(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
		assert_non_null(value);
		json_t *same = json_stringn(text, 3); /* NULL when the bytes are not UTF-8 */
		if (same)
			assert_true(json_equal(value, same));
		json_decref(value);
		json_decref(same);
		buf_release(&b);
	}
}

static void an_absent_string_is_null_and_an_empty_one_is_not(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	json_out_str_or_null(&b, STR_NULL);
	json_out_str_or_null(&b, STR(""));
	json_out_str_or_null(&b, STR("x"));
	assert_true(str_eq(buf_view(&b), STR("null\"\"\"x\"")));
}

static void a_time_is_rfc3339_and_zero_is_null(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	json_out_time(&b, 0);
	json_out_time(&b, 1794718800123);
	assert_true(str_eq(buf_view(&b), STR("null\"2026-11-15T05:00:00.123Z\"")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(plain_text_is_quoted),
	    cmocka_unit_test(quotes_backslashes_and_controls_are_escaped),
	    cmocka_unit_test(bytes_that_are_not_utf8_become_the_replacement_character),
	    cmocka_unit_test(any_three_bytes_give_valid_json),
	    cmocka_unit_test(an_absent_string_is_null_and_an_empty_one_is_not),
	    cmocka_unit_test(a_time_is_rfc3339_and_zero_is_null),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
