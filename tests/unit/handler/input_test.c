#include "base/buf.h"
#include "handler/input.h"
#include "lib/test.h"

static struct arena arena;
static struct err e;

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
	e.text[0] = '\0';
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

/* Each wrong body, and a word that the sentence must have. */
TEST(what_is_wrong_is_named)
{
	static const struct {
		const char *body, *says;
	} wrong[] = {
	    {"", "empty"},
	    {"{", "not JSON"},
	    {"{\"text\":\"a\"} x", "not JSON"},
	    {"{\"text\":\"a\",\"text\":\"b\"}", "not JSON"},
	    {"{\"text\":\"\xff\"}", "not JSON"},
	    {"[]", "an array"},
	    {"\"text\"", "not JSON"}, /* the parser takes objects and arrays alone */
	    {"{}", "'text' is missing"},
	    {"{\"maybe\":\"x\"}", "'text' is missing"},
	    {"{\"text\":1}", "'text' must be a string, not a number"},
	    {"{\"text\":null}", "'text' must be a string, not null"},
	    {"{\"text\":\"a\\u001b\"}", "control character"},
	    {"{\"text\":\"a\\u009b\"}", "control character"},
	    {"{\"text\":\"a\",\"list\":[\"\\u0007\"]}", "control character"},
	    {"{\"text\":\"abcdef\"}", "'text' has 6 bytes"},
	    {"{\"text\":\"a\",\"maybe\":[]}", "'maybe' must be a string or null, not an array"},
	    {"{\"text\":\"a\",\"flag\":\"true\"}", "'flag' must be true or false, not a string"},
	    {"{\"text\":\"a\",\"flag\":1}", "'flag' must be"},
	    {"{\"text\":\"a\",\"number\":1.5}", "'number' must be a whole number"},
	    {"{\"text\":\"a\",\"number\":-1}", "'number' is -1; it must not be negative"},
	    {"{\"text\":\"a\",\"number\":\"1\"}", "'number' must be"},
	    {"{\"text\":\"a\",\"when\":5}", "'when' is not a time"},
	    {"{\"text\":\"a\",\"when\":\"tomorrow\"}", "'when' is not a time"},
	    {"{\"text\":\"a\",\"when\":\"2026-02-30\"}", "'when' is not a time"},
	    {"{\"text\":\"a\",\"list\":\"a\"}", "'list' must be an array"},
	    {"{\"text\":\"a\",\"list\":[1]}", "entry 1 of the field 'list'"},
	    {"{\"text\":\"a\",\"list\":[\"a\",\"\"]}", "entry 2 of the field 'list'"},
	    {"{\"text\":\"a\",\"other\":1}", "unknown field 'other'"},
	    {"{\"text\":\"a\",\"Text\":\"b\"}", "unknown field 'Text'"},
	};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct values v;
		assert_int_equal(read_values(wrong[i].body, &v), ERR_INVALID);
		if (!strstr(e.text, wrong[i].says))
			fail_msg("%s said: %s", wrong[i].body, e.text);
	}
}

TEST(an_unknown_field_lists_the_known_ones)
{
	struct values v;
	assert_int_equal(read_values("{\"txet\":\"a\"}", &v), ERR_INVALID);
	assert_non_null(strstr(e.text, "text, maybe, flag, number, when, list"));
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
	assert_non_null(strstr(e.text, "at most"));
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
