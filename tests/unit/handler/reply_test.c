#include "conn_double.h"
#include "handler/reply.h"
#include "lib/test.h"

TEST(no_json_is_ever_kept)
{
	struct http_conn c = {0};
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{}"));
	reply_json(&c, 200, &body, NULL, 0);
	assert_int_equal(c.status, 200);
	assert_string_equal(c.body, "{}\n");
	assert_string_equal(c.fields, "Cache-Control: private, no-store\n");
}

TEST(fields_of_the_answers_own_go_along)
{
	struct http_conn c = {0};
	struct buf CLEANUP(buf_release) body = {0};
	struct http_field fields[REPLY_FIELDS_MAX];
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		fields[i] = (struct http_field){STR("X"), str_n("abcdefg" + i, 1)};
	reply_json(&c, 201, &body, fields, ARRAY_LEN(fields));
	assert_string_equal(c.fields, "Cache-Control: private, no-store\n"
	                              "X: a\nX: b\nX: c\nX: d\nX: e\nX: f\nX: g\n");
}

TEST(a_body_that_did_not_fit_into_memory_is_a_failure)
{
	struct http_conn c = {0};
	struct buf CLEANUP(buf_release) body = {.failed = true};
	reply_json(&c, 200, &body, NULL, 0);
	assert_int_equal(c.status, 503);
}

TEST_MAIN()
