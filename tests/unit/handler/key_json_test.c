#include "handler/key_json.h"
#include "lib/test.h"

static struct arena arena;

static int stop(void **state)
{
	arena_release(&arena);
	return 0;
}

static struct key_input read_input(const char *body)
{
	struct key_input in;
	struct input_err e;
	assert_int_equal(key_input_parse(str_of(body), 1, &arena, &in, &e), 0);
	return in;
}

TEST(the_first_limit_that_is_given_is_named)
{
	assert_null(read_input("{\"name\":\"x\"}").for_admins);
	assert_null(read_input("{\"name\":\"x\",\"admin\":true,\"user\":7}").for_admins);
	assert_string_equal(read_input("{\"name\":\"x\",\"creates_limit\":5}").for_admins->name,
	                    "creates_limit");
	assert_string_equal(read_input("{\"name\":\"x\",\"redirects_limit\":0}").for_admins->name,
	                    "redirects_limit"); /* 0 is given too */
	assert_string_equal(read_input("{\"limit_period_s\":60,\"name\":\"x\"}").for_admins->name,
	                    "limit_period_s");
	assert_string_equal(
	    read_input("{\"limit_period_s\":60,\"redirects_limit\":2,\"name\":\"x\"}").for_admins->name,
	    "redirects_limit");
}

TEST(limits_are_read)
{
	struct key_input in = read_input(
	    "{\"name\":\"x\",\"creates_limit\":5,\"redirects_limit\":6,\"limit_period_s\":7}");
	assert_int_equal(in.key.creates_max, 5);
	assert_int_equal(in.key.redirects_max, 6);
	assert_int_equal(in.key.period_ms, 7000);
}

TEST(a_key_gets_all_rights_but_admin_unless_some_are_chosen)
{
	struct key_input in = read_input("{\"name\":\"x\"}");
	assert_int_equal(in.key.rights, RIGHTS_ALL & ~RIGHT_ADMIN);
	assert_false(in.rights_given);
	in = read_input("{\"name\":\"x\",\"scopes\":[\"create\"]}");
	assert_int_equal(in.key.rights, RIGHT_CREATE);
	assert_true(in.rights_given);
}

TEST_MAIN(.teardown = stop)
