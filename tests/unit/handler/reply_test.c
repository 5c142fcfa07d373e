#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handler/reply.h"

#include <stdio.h>

/* A connection that only remembers what was answered. */
struct http_conn {
	int status;
	char fields[512], body[512];
};

void http_reply(struct http_conn *c, const struct http_response *r)
{
	size_t len = 0;
	c->status = r->status;
	snprintf(c->body, sizeof(c->body), "%.*s", STR_ARG(r->body));
	for (size_t i = 0; i < r->field_count && len < sizeof(c->fields); i++)
		len += (size_t)snprintf(c->fields + len, sizeof(c->fields) - len, "%.*s: %.*s\n",
		                        STR_ARG(r->fields[i].name), STR_ARG(r->fields[i].value));
}

static void no_json_is_ever_kept(void **state)
{
	(void)state;
	struct http_conn c = {0};
	struct buf CLEANUP(buf_release) body = {0};
	buf_str(&body, STR("{}"));
	reply_json(&c, 200, &body, NULL, 0);
	assert_int_equal(c.status, 200);
	assert_string_equal(c.body, "{}\n");
	assert_string_equal(c.fields, "Cache-Control: private, no-store\n");
}

static void fields_of_the_answers_own_go_along(void **state)
{
	(void)state;
	struct http_conn c = {0};
	struct buf CLEANUP(buf_release) body = {0};
	struct http_field fields[REPLY_FIELDS_MAX];
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		fields[i] = (struct http_field){STR("X"), str_n("abcdefg" + i, 1)};
	reply_json(&c, 201, &body, fields, ARRAY_LEN(fields));
	assert_string_equal(c.fields, "Cache-Control: private, no-store\n"
	                              "X: a\nX: b\nX: c\nX: d\nX: e\nX: f\nX: g\n");
}

static void a_body_that_did_not_fit_into_memory_is_a_failure(void **state)
{
	(void)state;
	struct http_conn c = {0};
	struct buf CLEANUP(buf_release) body = {.failed = true};
	reply_json(&c, 200, &body, NULL, 0);
	assert_int_equal(c.status, 503);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_json_is_ever_kept),
	    cmocka_unit_test(fields_of_the_answers_own_go_along),
	    cmocka_unit_test(a_body_that_did_not_fit_into_memory_is_a_failure),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
