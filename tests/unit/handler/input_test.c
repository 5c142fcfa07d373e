#include "base/buf.h"
#include "handler/input.h"
#include "lib/test.h"

#include <stdio.h>

static struct arena arena;
static struct input_err e;

struct values {
	struct str text, maybe, list;
	bool flag;
	uint64_t number;
	int64_t when;
	bool when_given;
};

static int read_values(const char *body, struct values *v)
{
	*v = (struct values){0};
	const struct input_field fields[] = {
	    {"text", FIELD_TEXT, &v->text, .required = true, .bytes_max = 5},
	    {"maybe", FIELD_STRING, &v->maybe, .may_be_null = true},
	    {"flag", FIELD_BOOL, &v->flag},
	    {"number", FIELD_NUMBER, &v->number},
	    {"when", FIELD_TIME, &v->when, .ret_given = &v->when_given},
	    {"list", FIELD_TAGS, &v->list},
	};
	e = (struct input_err){0};
	return input_read(str_of(body), fields, ARRAY_LEN(fields), &arena, &e);
}

static int clean(void **state)
{
	arena_release(&arena);
	return 0;
}

TEST(every_type_is_read)
{
	struct values v;
	assert_int_equal(read_values("{\"text\":\"abc\",\"maybe\":null,\"flag\":true,\"number\":42,"
	                             "\"when\":\"1970-01-01T00:00:01Z\",\"list\":[\"a\", \"b\\\"c\"]}",
	                             &v),
	                 0);
	assert_true(str_eq(v.text, STR("abc")));
	assert_null(v.maybe.ptr);
	assert_true(v.flag);
	assert_int_equal(v.number, 42);
	assert_int_equal(v.when, 1000);
	assert_true(v.when_given);
	assert_true(str_eq(v.list, STR("[\"a\",\"b\\\"c\"]")));
	assert_int_equal(read_values("{\"text\":\"\"}", &v), 0);
	assert_non_null(v.text.ptr);
	assert_false(v.when_given);
	assert_int_equal(read_values("{\"text\":\"x\",\"when\":\"1970-01-01T00:00:00Z\"}", &v), 0);
	assert_true(v.when > 0); /* long ago, and not "none" */
	assert_int_equal(read_values("{\"text\":\"x\",\"when\":null}", &v), 0);
	assert_true(v.when_given);
	assert_int_equal(v.when, 0);
}

/* Each wrong body, the field that is named, and words of the sentence. */
TEST(what_is_wrong_is_named)
{
	static const struct {
		const char *body, *field, *says;
	} wrong[] = {
	    {"", "", "the body is empty"},
	    {" \n", "", "the body is empty"},
	    {"{", "", "cannot be read as JSON: at line 1, column 2"},
	    {"{\"text\":\"a\"} x", "", "cannot be read as JSON: at line 1, column 14, the text must end"},
	    {"{\"text\":\"\xff\"}", "", "column 10, a string has a byte that is not UTF-8"},
	    {"{\"text\":\"\\ud800\"}", "", "half of a surrogate pair"},
	    {"\xef\xbb\xbf{}", "", "byte order mark"},
	    {"{\"text\":\"a\",}", "", "a name in double quotes was expected"},
	    {"[]", "", "must be a JSON object, not an array"},
	    {"\"text\"", "", "must be a JSON object, not a string"},
	    {"5", "", "must be a JSON object, not a number"},
	    {"-0", "", "must be a JSON object, not a number"},
	    {"null", "", "must be a JSON object, not null"},
	    {"true", "", "must be a JSON object, not a boolean"},
	    {"{\"text\":\"a\",\"text\":\"b\"}", "text", "'text' appears twice"},
	    {"{\"text\":\"a\",\"\\u0074ext\":\"b\"}", "text", "'text' appears twice"},
	    {"{}", "text", "'text' is missing"},
	    {"{\"maybe\":\"x\"}", "text", "'text' is missing"},
	    {"{\"text\":1}", "text", "'text' must be a string, not a number"},
	    {"{\"text\":{\"a\":1,\"a\":2}}", "text", "'text' must be a string, not an object"},
	    {"{\"text\":null}", "text", "'text' must be a string, not null"},
	    {"{\"text\":\"a\\u001b\"}", "text", "control character"},
	    {"{\"text\":\"a\\u009b\"}", "text", "control character"},
	    {"{\"text\":\"a\\u0000\"}", "text", "'text' must not contain a NUL character"},
	    {"{\"text\":\"a\",\"maybe\":\"\\u0000\"}", "maybe", "'maybe' must not contain a NUL character"},
	    {"{\"text\":\"a\",\"list\":[\"\\u0007\"]}", "list", "control character"},
	    {"{\"text\":\"a\",\"list\":[\"a\",\"\\u0000\"]}", "list", "entry 2 of the field 'list' must not"},
	    {"{\"text\":\"abcdef\"}", "text", "'text' has 6 bytes"},
	    {"{\"text\":\"a\",\"maybe\":[]}", "maybe", "'maybe' must be a string or null, not an array"},
	    {"{\"text\":\"a\",\"flag\":\"true\"}", "flag", "'flag' must be true or false, not a string"},
	    {"{\"text\":\"a\",\"flag\":1}", "flag", "'flag' must be"},
	    {"{\"text\":\"a\",\"number\":1.5}", "number",
	     "'number' is 1.5; it must be a whole number from 0"},
	    {"{\"text\":\"a\",\"number\":-1}", "number", "'number' is -1; it must be a whole number from 0"},
	    {"{\"text\":\"a\",\"number\":99999999999999999999}", "number",
	     "'number' is 99999999999999999999;"},
	    {"{\"text\":\"a\",\"number\":1e400}", "number", "'number' is 1e400; it must be a whole number"},
	    {"{\"text\":\"a\",\"number\":\"1\"}", "number", "'number' must be a whole number, not a string"},
	    {"{\"text\":\"a\",\"when\":5}", "when", "'when' is not a time"},
	    {"{\"text\":\"a\",\"when\":\"tomorrow\"}", "when", "'when' is not a time"},
	    {"{\"text\":\"a\",\"when\":\"2026-02-30\"}", "when", "'when' is not a time"},
	    {"{\"text\":\"a\",\"list\":\"a\"}", "list", "'list' must be an array"},
	    {"{\"text\":\"a\",\"list\":[1]}", "list", "entry 1 of the field 'list'"},
	    {"{\"text\":\"a\",\"list\":[\"a\",\"\"]}", "list", "entry 2 of the field 'list'"},
	    {"{\"text\":\"a\",\"other\":1}", "other", "unknown field 'other'"},
	    {"{\"text\":\"a\",\"Text\":\"b\"}", "Text", "unknown field 'Text'"},
	    {"{\"text\":\"a\",\"text\\u0000\":\"b\"}", "text...", "unknown field 'text...'"},
	    {"{\"\":1}", "", "unknown field ''"},
	};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct values v;
		assert_int_equal(read_values(wrong[i].body, &v), ERR_INVALID);
		if (!strstr(e.sentence.text, wrong[i].says))
			fail_msg("%s said: %s", wrong[i].body, e.sentence.text);
		assert_string_equal(e.field, wrong[i].field);
		assert_string_equal(e.code, e.has_field ? "invalid-field" : "invalid-body");
	}
}

TEST(numbers_are_whole_however_they_are_written)
{
	static const struct {
		const char *text;
		uint64_t value;
	} cases[] = {{"-0", 0}, {"0.0", 0}, {"1.0", 1}, {"1e3", 1000}, {"2.50E+1", 25}, {"30e-1", 3}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct values v;
		char body[64];
		snprintf(body, sizeof(body), "{\"text\":\"a\",\"number\":%s}", cases[i].text);
		assert_int_equal(read_values(body, &v), 0);
		assert_int_equal(v.number, cases[i].value);
	}
}

TEST(escapes_are_decoded_in_names_and_values)
{
	struct values v;
	assert_int_equal(
	    read_values("{\"te\\u0078t\":\"\\u00e9\\n\", \"list\" : [ \"\\ud83d\\ude00\" ] }", &v), 0);
	assert_string_equal(v.text.ptr, "\xc3\xa9\n");
	assert_string_equal(v.list.ptr, "[\"\xf0\x9f\x98\x80\"]");
	assert_true(str_eq(input_peek(STR("{\"a\":[{\"b\":1}],\"b\":\"\\u0078\"}"), "b", &arena), STR("x")));
	assert_null(input_peek(STR("{\"b\":5}"), "b", &arena).ptr);
	assert_true(input_has(STR("{\"b\":null}"), "b"));
	assert_false(input_has(STR("{\"a\":{\"b\":1}}"), "b"));
}

TEST(an_unknown_field_lists_the_known_ones)
{
	struct values v;
	assert_int_equal(read_values("{\"txet\":\"a\"}", &v), ERR_INVALID);
	assert_non_null(strstr(e.sentence.text, "text, maybe, flag, number, when, list"));
	/* A name with an escape is decoded, and there is only so much room for it. */
	assert_int_equal(
	    read_values("{\"\\u0061aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":1}",
	                &v),
	    ERR_INVALID);
	assert_non_null(strstr(e.sentence.text, "a field has a name of more than 64 bytes"));
	assert_false(e.has_field);
}

TEST(too_many_or_too_long_entries_are_refused)
{
	struct values v;
	struct buf body = {0};
	buf_printf(&body, "{\"text\":\"a\",\"list\":[\"a\"");
	for (int i = 0; i < INPUT_STRINGS_MAX; i++)
		buf_printf(&body, ",\"a\"");
	buf_append(&body, "]}", 3);
	assert_int_equal(read_values(body.data, &v), ERR_INVALID);
	assert_non_null(strstr(e.sentence.text, "at most"));
	body.len = 0;
	buf_printf(&body, "{\"text\":\"a\",\"list\":[\"%065d\"]}", 0);
	buf_append(&body, "", 1);
	assert_int_equal(read_values(body.data, &v), ERR_INVALID);
	buf_release(&body);
}

TEST(deep_nesting_is_an_error_and_not_a_crash)
{
	struct values v;
	struct buf body = {0};
	buf_printf(&body, "{\"list\":");
	for (int i = 0; i < 100000; i++)
		buf_char(&body, '[');
	buf_char(&body, '\0');
	assert_int_equal(read_values(body.data, &v), ERR_INVALID);
	buf_release(&body);
}

TEST_MAIN(.teardown = clean)
