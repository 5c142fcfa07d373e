#include "base/buf.h"
#include "lib/test.h"

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

TEST(appends_follow_each_other)
{
	CLEANUP(buf_release) struct buf b = {0};
	buf_str(&b, STR("ab"));
	buf_char(&b, 'c');
	buf_append(&b, "def", 3);
	buf_printf(&b, "%d%s", 42, "!");
	assert_true(str_eq(buf_view(&b), STR("abcdef42!")));
	assert_false(b.failed);
}

TEST(growing_keeps_what_is_there)
{
	CLEANUP(buf_release) struct buf b = {0};
	for (unsigned i = 0; i < 100000; i++)
		buf_char(&b, (char)(i % 251));
	assert_int_equal(b.len, 100000);
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal((unsigned char)b.data[i], i % 251);
}

TEST(reserve_makes_room_without_moving_the_end)
{
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

TEST(reserving_nothing_in_an_empty_buffer_still_gives_a_pointer)
{
	CLEANUP(buf_release) struct buf b = {0};
	assert_non_null(buf_reserve(&b, 0));
}

TEST(empty_appends_take_a_null_pointer)
{
	struct buf b = {0};
	buf_append(&b, NULL, 0);
	buf_str(&b, STR_NULL);
	assert_null(b.data);
	assert_int_equal(b.len, 0);
}

TEST(failure_is_sticky_and_keeps_the_bytes)
{
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

TEST(a_length_that_overflows_is_a_failure)
{
	CLEANUP(buf_release) struct buf b = {0};
	volatile size_t absurd = SIZE_MAX;
	buf_char(&b, 'x');
	assert_null(buf_reserve(&b, absurd));
	assert_true(b.failed);
}

TEST(consume_drops_from_the_front)
{
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

TEST(release_leaves_an_empty_buffer_that_works)
{
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

TEST_MAIN()
