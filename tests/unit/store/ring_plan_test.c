#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/ring_plan.h"

static struct arena arena;

static int teardown(void **state)
{
	(void)state;
	arena_release(&arena);
	return 0;
}

static struct plan_part three[] = {
    {STR("n1"), STR("a:1/x")}, {STR("n2"), STR("b:2/\"y\"")}, {STR("n3"), STR("c:3/z")}};

static void assert_parts(const struct plan_parts *actual, const struct plan_parts *expected)
{
	assert_int_equal(actual->count, expected->count);
	for (size_t i = 0; i < expected->count; i++) {
		assert_true(str_eq(actual->at[i].name, expected->at[i].name));
		assert_true(str_eq(actual->at[i].address, expected->at[i].address));
	}
}

static void what_was_written_is_read(void **state)
{
	(void)state;
	const struct ring_plan plans[] = {
	    {.epoch = 1, .home = STR("n1"), .members = {three, 1}},
	    {.epoch = 7, .home = STR("n2"), .members = {three, 2}, .target = {three, 3}},
	};
	for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
		struct ring_plan plan;
		struct str text = ring_plan_write(&plans[i], &arena);
		assert_int_equal(ring_plan_read(text, plans[i].epoch, &arena, &plan), 0);
		assert_int_equal(plan.epoch, plans[i].epoch);
		assert_true(str_eq(plan.home, plans[i].home));
		assert_parts(&plan.members, &plans[i].members);
		assert_parts(&plan.target, &plans[i].target);
		assert_true(str_eq(ring_plan_write(&plan, &arena), text)); /* parts compare it by its bytes */
	}
}

static void what_is_no_plan_is_refused(void **state)
{
	(void)state;
	static const struct str bad[] = {
	    STR(""),
	    STR("{}"),
	    STR("[]"),
	    STR("null"),
	    STR("{\"home\":\"n1\"}"),
	    STR("{\"home\":\"n1\",\"members\":[]}"),
	    STR("{\"home\":\"n1\",\"members\":{}}"),
	    STR("{\"home\":\"n1\",\"members\":[{\"name\":\"n1\"}]}"),
	    STR("{\"home\":\"n1\",\"members\":[{\"name\":\"n1\",\"address\":1}]}"),
	    STR("{\"home\":\"n1\",\"members\":[{\"name\":\"\",\"address\":\"a\"}]}"),
	    STR("{\"home\":\"n9\",\"members\":[{\"name\":\"n1\",\"address\":\"a\"}]}"), /* no member */
	    STR("{\"home\":\"n1\",\"members\":[{\"name\":\"n1\",\"address\":\"a\"},{\"name\":\"n1\","
	        "\"address\":\"b\"}]}"),
	    STR("{\"home\":\"n1\",\"members\":[{\"name\":\"n1\",\"address\":\"a\"}],\"target\":[]}"),
	    STR("{\"home\":\"n1\",\"members\":[{\"name\":\"n1\",\"address\":\"a\"}],\"target\":[{\"name\":"
	        "\"n2\",\"address\":\"b\"}]}"),
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct ring_plan plan;
		assert_int_equal(ring_plan_read(bad[i], 1, &arena, &plan), ERR_CORRUPT);
	}
}

static void a_plan_that_was_cut_off_is_refused(void **state)
{
	(void)state;
	const struct ring_plan whole = {.home = STR("n1"), .members = {three, 2}, .target = {three, 3}};
	struct str text = ring_plan_write(&whole, &arena);
	for (size_t len = 0; len < text.len; len++) {
		struct ring_plan plan;
		assert_int_equal(ring_plan_read(str_n(text.ptr, len), 1, &arena, &plan), ERR_CORRUPT);
	}
}

static void parts_are_the_same_in_any_order(void **state)
{
	(void)state;
	struct plan_part turned[] = {three[2], three[0], three[1]};
	const struct plan_parts all = {three, 3}, other = {turned, 3}, two = {three, 2};
	assert_true(plan_parts_equal(&all, &other));
	assert_false(plan_parts_equal(&all, &two));
	assert_false(plan_parts_equal(&two, &all));
	assert_int_equal(plan_parts_find(&other, STR("n1")), 1);
	assert_int_equal(plan_parts_find(&two, STR("n3")), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(what_was_written_is_read, teardown),
	    cmocka_unit_test_teardown(what_is_no_plan_is_refused, teardown),
	    cmocka_unit_test_teardown(a_plan_that_was_cut_off_is_refused, teardown),
	    cmocka_unit_test_teardown(parts_are_the_same_in_any_order, teardown),
	};
	return cmocka_run_group_tests_name("ring_plan", tests, NULL, NULL);
}
