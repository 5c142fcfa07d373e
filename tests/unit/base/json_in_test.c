#include "base/json_in.h"
#include "lib/test.h"

#include <jansson.h>
#include <stdio.h>

static bool is_json(struct str text)
{
	struct json_in in = json_in_begin(text);
	return json_in_skip(&in) && json_in_at_end(&in);
}

static const char *const good[] = {
    "null",
    "true",
    "false",
    " 1 ",
    "-0",
    "0",
    "12.5",
    "1e9",
    "-1.25E-3",
    "\"\"",
    "\"a\"",
    "\"\\u00e9\"",
    "\"\\n\\\"\"",
    "[]",
    "[1,2]",
    "[[],[{}]]",
    "{}",
    "{\"a\":1}",
    "[\n1\r,\t2 ]",
    "{\"a\":{\"b\":[1,\"x\",null]},\"c\":true}",
    "\"\\ud83d\\ude00\"",
    "\"\xc3\xa9\"",
    "\"/\\/\"",
    "\"\\u0000\"",
    "123123e100000",
    "-0.0E-99999999999999999999",
};

static const char *const bad[] = {
    "",
    " ",
    "nul",
    "truee",
    "01",
    "-",
    "1.",
    ".5",
    "1e",
    "+1",
    "\"",
    "\"a",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\u00g0\"",
    "\"\n\"",
    "[",
    "[1",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{a:1}",
    "{1:1}",
    "{}{}",
    "[]]",
    "1 2",
    "\"\\ud83d\"",
    "\"\\ude00\"",
    "\"\\ud83d\\n\"",
    "\"\xff\"",
    "\xef\xbb\xbf{}",
    "\"\xc3\"",
    "\"\xed\xa0\x80\"",
    "]",
    "}",
    "[}",
    "{]",
    "'a'",
    "NaN",
    "\"a\":1",
};

TEST(what_is_json_is_taken_and_nothing_else)
{
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		if (!is_json(str_of(good[i])))
			fail_msg("refused: %s", good[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (is_json(str_of(bad[i])))
			fail_msg("taken: %s", bad[i]);
	}
}

/* Every text that differs from a good one in one byte: jansson is the judge. */
TEST(it_agrees_with_jansson_about_texts_with_one_wrong_byte)
{
	size_t tried = 0;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		char text[64];
		size_t len = strlen(good[i]);
		for (size_t at = 0; at < len; at++) {
			for (int byte = 1; byte < 256; byte++) { /* jansson takes a NUL for the end */
				memcpy(text, good[i], len);
				text[at] = (char)byte;
				json_error_t e;
				json_t *theirs = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
				bool overflow = json_error_code(&e) == json_error_numeric_overflow;
				if (is_json(str_n(text, len)) != (theirs != NULL) && !overflow)
					fail_msg("'%.*s' (byte %zu is %d): jansson says %s", (int)len, text,
					         at, byte, theirs ? "yes" : e.text);
				json_decref(theirs);
				tried++;
			}
		}
	}
	assert_true(tried > 30000);
}

TEST(texts_that_are_cut_are_refused)
{
	const char *text = "{\"a\":{\"b\":[1,\"x\\u00e9y\",null]},\"c\":true}";
	for (size_t len = 0; len < strlen(text); len++)
		assert_false(is_json(str_n(text, len)));
	assert_true(is_json(str_of(text)));
}

TEST(nesting_has_a_bound)
{
	char text[2 * JSON_IN_DEPTH_MAX + 2];
	memset(text, '[', JSON_IN_DEPTH_MAX);
	memset(text + JSON_IN_DEPTH_MAX, ']', JSON_IN_DEPTH_MAX);
	assert_true(is_json(str_n(text, 2 * JSON_IN_DEPTH_MAX)));
	memset(text, '[', JSON_IN_DEPTH_MAX + 1);
	memset(text + JSON_IN_DEPTH_MAX + 1, ']', JSON_IN_DEPTH_MAX + 1);
	assert_false(is_json(str_n(text, 2 * JSON_IN_DEPTH_MAX + 2)));
}

TEST(members_come_one_by_one)
{
	struct json_in in = json_in_begin(STR(" { \"id\" : \"x\" , \"n\":42,\"rest\":[1,{}] } "));
	bool first = true, whole;
	char scratch[8];
	struct str name, value;
	int64_t number = 0;
	assert_int_equal(json_in_peek(&in), JSON_IN_OBJECT);
	assert_true(json_in_enter(&in, '{'));
	assert_true(json_in_more(&in, '{', &first));
	assert_true(json_in_name(&in, scratch, sizeof(scratch), &name));
	assert_true(str_eq(name, STR("id")));
	assert_true(json_in_string(&in, scratch, sizeof(scratch), &value, &whole));
	assert_true(str_eq(value, STR("x")) && whole);
	assert_true(json_in_more(&in, '{', &first));
	assert_true(json_in_name(&in, scratch, sizeof(scratch), &name));
	assert_int_equal(json_in_number(&in, &number), JSON_IN_INTEGER);
	assert_int_equal(number, 42);
	assert_true(json_in_more(&in, '{', &first));
	assert_true(json_in_name(&in, scratch, sizeof(scratch), &name));
	assert_true(json_in_skip(&in));
	assert_false(json_in_more(&in, '{', &first));
	assert_true(json_in_at_end(&in));
	assert_null(in.wrong);
}

TEST(escapes_are_decoded_and_long_strings_are_cut)
{
	struct {
		const char *text, *value;
		bool whole;
	} cases[] = {
	    {"\"plain and longer than the scratch\"", "plain and longer than the scratch", true},
	    {"\"\\u00e9\\n\"", "\xc3\xa9\n", true},
	    {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", true},
	    {"\"a\\tb\\/c\"", "a\tb/c", true},
	    {"\"a\\u0000b\"", NULL, true}, /* below */
	    {"\"12345678\\n\"", NULL, false},
	    {"\"\\n123456789\"", NULL, false},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char scratch[8];
		struct str value;
		bool whole;
		struct json_in in = json_in_begin(str_of(cases[i].text));
		assert_true(json_in_string(&in, scratch, sizeof(scratch), &value, &whole));
		assert_int_equal(whole, cases[i].whole);
		assert_true(json_in_at_end(&in));
		if (cases[i].value)
			assert_true(str_eq(value, str_of(cases[i].value)));
		else if (whole)
			assert_true(str_eq(value, STR("a\0b")));
	}
}

TEST(integers_are_told_from_other_numbers)
{
	struct {
		const char *text;
		enum json_in_kind kind;
		int64_t value;
	} cases[] = {
	    {"0", JSON_IN_INTEGER, 0},
	    {"-7", JSON_IN_INTEGER, -7},
	    {"9223372036854775807", JSON_IN_INTEGER, INT64_MAX},
	    {"9223372036854775808", JSON_IN_NUMBER, 0},
	    {"99999999999999999999999", JSON_IN_NUMBER, 0},
	    {"-0", JSON_IN_INTEGER, 0},
	    {"-0.0e5", JSON_IN_INTEGER, 0},
	    {"1.0", JSON_IN_INTEGER, 1},
	    {"-3.000", JSON_IN_INTEGER, -3},
	    {"1e3", JSON_IN_INTEGER, 1000},
	    {"1E+3", JSON_IN_INTEGER, 1000},
	    {"1.5e1", JSON_IN_INTEGER, 15},
	    {"1200e-2", JSON_IN_INTEGER, 12},
	    {"0.00003e5", JSON_IN_INTEGER, 3},
	    {"0e999999999999999999999", JSON_IN_INTEGER, 0},
	    {"922337203685477580.7e1", JSON_IN_INTEGER, INT64_MAX},
	    {"922337203685477580.8e1", JSON_IN_NUMBER, 0},
	    {"1.5", JSON_IN_NUMBER, 0},
	    {"1.0000000000000000000001", JSON_IN_NUMBER, 0},
	    {"1e-1", JSON_IN_NUMBER, 0},
	    {"1e19", JSON_IN_NUMBER, 0},
	    {"1e400", JSON_IN_NUMBER, 0},
	    {"1e-999999999999999999999", JSON_IN_NUMBER, 0},
	    {"1e999999999999999999999", JSON_IN_NUMBER, 0},
	    {"x", JSON_IN_NONE, 0},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct json_in in = json_in_begin(str_of(cases[i].text));
		int64_t value = 0;
		assert_int_equal(json_in_number(&in, &value), cases[i].kind);
		assert_int_equal(value, cases[i].value);
	}
}

/* What a person gets to read: where it is wrong, and what was expected. */
TEST(an_error_has_a_place)
{
	static const struct {
		const char *text;
		size_t line, column;
		const char *what;
	} cases[] = {
	    {"", 1, 1, "a value was expected, not the end"},
	    {"{\"a\":1,\n  b:2}", 2, 3, "a name in double quotes was expected"},
	    {"{\"\xc3\xa9\" 1}", 1, 6, "a colon was expected"}, /* columns count characters */
	    {"[1 2]", 1, 4, "a comma or a closing bracket was expected"},
	    {"[1", 1, 3, "a comma or a closing bracket was expected"},
	    {"{", 1, 2, "the closing bracket is missing"},
	    {"{} x", 1, 4, "the text must end after the value"},
	    {"[\n\n01]", 3, 1, "a number must not begin with 0"},
	    {"-x", 1, 2, "a digit was expected"},
	    {"1.", 1, 3, "a number needs a digit after its point"},
	    {"1ex", 1, 3, "a number needs a digit in its exponent"},
	    {"\"ab\xff\"", 1, 4, "a string has a byte that is not UTF-8"},
	    {"\"a\\ud800b\"", 1, 3, "a \\u escape is half of a surrogate pair"},
	    {"\"\\u12x4\"", 1, 6, "a \\u escape needs four hexadecimal digits"},
	    {"\xef\xbb\xbf{}", 1, 1, "a byte order mark must be removed"},
	    {"nul", 1, 1, "a value was expected"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct json_in in = json_in_begin(str_of(cases[i].text));
		struct err e;
		char said[128];
		assert_false(json_in_skip(&in) && json_in_finish(&in));
		assert_int_equal(json_in_err(&in, "it", &e), ERR_INVALID);
		snprintf(said, sizeof(said), "it cannot be read as JSON: at line %zu, column %zu, %s",
		         cases[i].line, cases[i].column, cases[i].what);
		assert_string_equal(e.text, said);
	}
}

TEST(the_first_error_sticks)
{
	struct json_in in = json_in_begin(STR("[1 2]"));
	assert_false(json_in_skip(&in));
	const char *wrong = in.wrong;
	assert_non_null(wrong);
	assert_false(json_in_skip(&in));
	assert_int_equal(json_in_peek(&in), JSON_IN_NONE);
	assert_false(json_in_at_end(&in));
	assert_ptr_equal(in.wrong, wrong);
}

TEST_MAIN()
