#include "http/form.h"
#include "lib/test.h"

static struct arena arena;

static int stop(void **state)
{
	arena_release(&arena);
	arena = (struct arena){0};
	return 0;
}

static struct str field(const char *body, const char *name)
{
	return http_form_field(str_of(body), str_of(name), &arena);
}

static void assert_text(struct str got, const char *wanted)
{
	assert_non_null(got.ptr);
	assert_int_equal(got.len, strlen(wanted));
	assert_string_equal(got.ptr, wanted); /* it ends in NUL, too */
}

static bool is_form(const char *type)
{
	struct http_request req = {.field_count = type ? 1 : 0};
	if (type)
		req.fields[0] = (struct http_field){STR("Content-Type"), str_of(type)};
	return http_is_form(&req);
}

TEST(a_form_says_so_in_its_content_type)
{
	assert_true(is_form("application/x-www-form-urlencoded"));
	assert_true(is_form("Application/X-WWW-Form-URLEncoded; charset=UTF-8"));
	assert_true(is_form("application/x-www-form-urlencoded ;charset=UTF-8"));
	assert_false(is_form(NULL));
	assert_false(is_form(""));
	assert_false(is_form("application/json"));
	assert_false(is_form("application/x-www-form-urlencoded2"));
	assert_false(is_form("text/plain; application/x-www-form-urlencoded"));
}

TEST(a_json_object_is_no_form_whatever_it_is_called)
{
	struct http_request req = {.field_count = 1, .body = STR(" {\"a\":1}")};
	req.fields[0] = (struct http_field){STR("Content-Type"), STR("application/x-www-form-urlencoded")};
	assert_false(http_is_form(&req));
	req.body = STR("a={");
	assert_true(http_is_form(&req));
}

TEST(a_field_is_found_wherever_it_stands)
{
	assert_text(field("a=1&b=2&c=3", "a"), "1");
	assert_text(field("a=1&b=2&c=3", "b"), "2");
	assert_text(field("a=1&b=2&c=3", "c"), "3");
	assert_text(field("&&a=1&", "a"), "1");
	assert_text(field("ab=1&a=2", "a"), "2");
	assert_null(field("ab=1", "a").ptr);
	assert_null(field("a=1", "ab").ptr);
	assert_null(field("A=1", "a").ptr);
	assert_null(field("", "a").ptr);
	assert_null(http_form_field(STR_NULL, STR("a"), &arena).ptr);
}

TEST(the_first_of_several_is_taken)
{
	assert_text(field("a=1&a=2", "a"), "1");
	assert_null(field("a=%zz&a=2", "a").ptr);
}

TEST(a_value_may_be_empty)
{
	assert_text(field("a=&b=2", "a"), "");
	assert_text(field("a&b=2", "a"), "");
	assert_text(field("a=b=c", "a"), "b=c");
}

TEST(plus_is_a_space_and_escapes_are_decoded)
{
	assert_text(field("a=b+c%2B%26%3d%25%2f", "a"), "b c+&=%/");
	assert_text(field("a=%C3%A4%ff", "a"), "\xc3\xa4\xff");
	assert_text(field("%61%2b+=1", "a+ "), "1");
}

TEST(what_is_malformed_is_not_there)
{
	assert_null(field("a=%", "a").ptr);
	assert_null(field("a=%4", "a").ptr);
	assert_null(field("a=%4g", "a").ptr);
	assert_null(field("a=%%41", "a").ptr);
	assert_null(field("a=%00", "a").ptr);
	assert_null(http_form_field(str_n("a=b\0c", 5), STR("a"), &arena).ptr);
	assert_null(field("%=1", "a").ptr);
	/* nor does an escape reach into what follows the body */
	assert_null(http_form_field(str_n("a=%41", 4), STR("a"), &arena).ptr);
	assert_text(field("b=%zz&a=1", "a"), "1");
}

TEST_MAIN(.teardown = stop)
