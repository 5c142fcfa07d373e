#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/names.h"

static void a_row_has_a_flag_and_a_variable(void **state)
{
	(void)state;
	char name[CONF_NAME_BYTES];
	const struct conf_row row = {.section = "events", .name = "flush_ms"};
	conf_flag_name(&row, name);
	assert_string_equal(name, "--events-flush-ms");
	conf_env_name(&row, name);
	assert_string_equal(name, "CURT_EVENTS_FLUSH_MS");
}

static void rows_of_serve_leave_their_section_out(void **state)
{
	(void)state;
	char name[CONF_NAME_BYTES];
	const struct conf_row row = {.section = "serve", .name = "base_url"};
	conf_flag_name(&row, name);
	assert_string_equal(name, "--base-url");
	conf_env_name(&row, name);
	assert_string_equal(name, "CURT_BASE_URL");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_row_has_a_flag_and_a_variable),
	    cmocka_unit_test(rows_of_serve_leave_their_section_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
