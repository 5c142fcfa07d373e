#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"

/* The sanitizers take a huge request for a bug of the caller; here it is the way to run out of memory. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void appends_follow_each_other(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	buf_str(&b, STR("ab"));
	buf_char(&b, 'c');
	buf_append(&b, "def", 3);
	buf_printf(&b, "%d%s", 42, "!");
	assert_true(str_eq(buf_view(&b), STR("abcdef42!")));
	assert_false(b.failed);
}

static void growing_keeps_what_is_there(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	for (unsigned i = 0; i < 100000; i++)
		buf_char(&b, (char)(i % 251));
	assert_int_equal(b.len, 100000);
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal((unsigned char)b.data[i], i % 251);
}

static void reserve_makes_room_without_moving_the_end(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	buf_str(&b, STR("x"));
	char *room = buf_reserve(&b, 1000);
	assert_non_null(room);
	assert_int_equal(b.len, 1);
	assert_true(b.cap >= 1001);
	memset(room, 'y', 1000);
	b.len += 1000;
	assert_int_equal(b.data[1000], 'y');
}

static void reserving_nothing_in_an_empty_buffer_still_gives_a_pointer(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	assert_non_null(buf_reserve(&b, 0));
}

static void empty_appends_take_a_null_pointer(void **state)
{
	(void)state;
	struct buf b = {0};
	buf_append(&b, NULL, 0);
	buf_str(&b, STR_NULL);
	assert_null(b.data);
	assert_int_equal(b.len, 0);
}

static void failure_is_sticky_and_keeps_the_bytes(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	volatile size_t absurd = SIZE_MAX / 2;
	buf_str(&b, STR("kept"));
	assert_null(buf_reserve(&b, absurd));
	assert_true(b.failed);
	buf_str(&b, STR("ignored"));
	buf_printf(&b, "%d", 1);
	assert_null(buf_reserve(&b, 1));
	assert_true(str_eq(buf_view(&b), STR("kept")));
}

static void a_length_that_overflows_is_a_failure(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	volatile size_t absurd = SIZE_MAX;
	buf_char(&b, 'x');
	assert_null(buf_reserve(&b, absurd));
	assert_true(b.failed);
}

static void consume_drops_from_the_front(void **state)
{
	(void)state;
	CLEANUP(buf_release) struct buf b = {0};
	buf_str(&b, STR("hello world"));
	buf_consume(&b, 6);
	assert_true(str_eq(buf_view(&b), STR("world")));
	buf_consume(&b, 0);
	assert_true(str_eq(buf_view(&b), STR("world")));
	buf_consume(&b, 5);
	assert_int_equal(b.len, 0);
	buf_str(&b, STR("again"));
	assert_true(str_eq(buf_view(&b), STR("again")));
}

static void release_leaves_an_empty_buffer_that_works(void **state)
{
	(void)state;
	struct buf b = {0};
	volatile size_t absurd = SIZE_MAX / 2;
	buf_str(&b, STR("x"));
	assert_null(buf_reserve(&b, absurd));
	buf_release(&b);
	assert_false(b.failed);
	buf_str(&b, STR("y"));
	assert_true(str_eq(buf_view(&b), STR("y")));
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(appends_follow_each_other),
	    cmocka_unit_test(growing_keeps_what_is_there),
	    cmocka_unit_test(reserve_makes_room_without_moving_the_end),
	    cmocka_unit_test(reserving_nothing_in_an_empty_buffer_still_gives_a_pointer),
	    cmocka_unit_test(empty_appends_take_a_null_pointer),
	    cmocka_unit_test(failure_is_sticky_and_keeps_the_bytes),
	    cmocka_unit_test(a_length_that_overflows_is_a_failure),
	    cmocka_unit_test(consume_drops_from_the_front),
	    cmocka_unit_test(release_leaves_an_empty_buffer_that_works),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
