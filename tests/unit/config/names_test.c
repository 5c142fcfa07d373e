#include "config/names.h"
#include "lib/test.h"

TEST(a_row_has_a_flag_and_a_variable)
{
	char name[CONF_NAME_BYTES];
	const struct conf_row row = {.section = "events", .name = "flush_ms"};
	conf_flag_name(&row, name);
	assert_string_equal(name, "--events-flush-ms");
	conf_env_name(&row, name);
	assert_string_equal(name, "CURT_EVENTS_FLUSH_MS");
}

TEST(rows_of_serve_leave_their_section_out)
{
	char name[CONF_NAME_BYTES];
	const struct conf_row row = {.section = "serve", .name = "base_url"};
	conf_flag_name(&row, name);
	assert_string_equal(name, "--base-url");
	conf_env_name(&row, name);
	assert_string_equal(name, "CURT_SERVE_BASE_URL");
}

TEST_MAIN()
