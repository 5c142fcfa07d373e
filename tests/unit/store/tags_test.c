#include "base/buf.h"
#include "lib/test.h"
#include "store/tags.h"

static int gather(void *ctx, struct str name)
{
	struct buf *b = ctx;
	buf_str(b, name);
	buf_char(b, '|');
	return 0;
}

static void assert_names(struct str tags, const char *expected)
{
	CLEANUP(buf_release) struct buf names = {0};
	assert_int_equal(tags_each(tags, gather, &names), 0);
	buf_append(&names, "", 1);
	assert_string_equal(names.data, expected);
}

TEST(names_come_in_order_and_decoded)
{
	assert_names(STR("[\"a\",\"b\",\"a\"]"), "a|b|a|");
	assert_names(STR(" [ \"a\"\t,\r\n\"b\" ] "), "a|b|");
	assert_names(STR("[\"say \\\"hi\\\"\", \"\\\\ \\/ \\b\\f\\n\\r\\t\"]"),
	             "say \"hi\"|\\ / \b\f\n\r\t|");
	assert_names(STR("[\"\"]"), "|");
	assert_names(STR("[\"],[\"]"), "],[|");
}

TEST(any_character_may_be_written_as_its_number)
{
	assert_names(STR("[\"\\u0041\\u007f\\u0080\\u00e9\\u07FF\"]"), "A\x7f\xc2\x80\xc3\xa9\xdf\xbf|");
	assert_names(STR("[\"\\u0800\\uffff\"]"), "\xe0\xa0\x80\xef\xbf\xbf|");
	assert_names(STR("[\"\\ud800\\udc00\\uDBFF\\uDFFF\"]"), "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf|");
}

TEST(nothing_comes_after_what_does_not_belong_there)
{
	static const char *const broken[] = {"",
	                                     "[]",
	                                     "[   ]",
	                                     "{\"k\":\"v\"}",
	                                     "\"text\"",
	                                     "text",
	                                     "[1,\"b\"]",
	                                     "[null]",
	                                     "[[\"deep\"]]",
	                                     "[\"open",
	                                     "[\"\\",
	                                     "[\"\\x\"]",
	                                     "[\"\\u\"]",
	                                     "[\"\\u00g0\"]",
	                                     "[\"\\u123\"]",
	                                     "[\"\\ud800\"]",
	                                     "[\"\\udc00\"]",
	                                     "[\"\\ud800\\u0041\"]",
	                                     "[\"\\ud800x\"]"};
	assert_names(STR_NULL, "");
	for (size_t i = 0; i < ARRAY_LEN(broken); i++)
		assert_names(str_of(broken[i]), "");
	assert_names(STR("[\"\\\0\"]"), "");
	assert_names(STR("[\"a\",7,\"b\"]"), "a|");
	assert_names(STR("[\"a\" \"b\"]"), "a|");
	assert_names(STR("[\"a\",]"), "a|");
}

static int stop_at_b(void *ctx, struct str name)
{
	int *calls = ctx;
	(*calls)++;
	return str_eq(name, STR("b")) ? 42 : 0;
}

TEST(the_first_answer_that_is_not_zero_ends_it)
{
	int calls = 0;
	assert_int_equal(tags_each(STR("[\"a\",\"b\",\"c\"]"), stop_at_b, &calls), 42);
	assert_int_equal(calls, 2);
}

TEST_MAIN()
