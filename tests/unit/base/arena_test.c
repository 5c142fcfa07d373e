#include "base/arena.h"
#include "lib/test.h"

TEST(allocations_are_aligned_and_do_not_overlap)
{
	CLEANUP(arena_release) struct arena a = {0};
	char *blocks[200];
	for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
		size_t bytes = i * 7 % 113 + 1;
		blocks[i] = arena_alloc(&a, bytes);
		assert_non_null(blocks[i]);
		assert_int_equal((uintptr_t)blocks[i] % 16, 0);
		memset(blocks[i], (int)i, bytes);
	}
	for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
		for (size_t j = 0; j < i * 7 % 113 + 1; j++)
			assert_int_equal((unsigned char)blocks[i][j], i);
	}
}

TEST(a_block_larger_than_a_chunk_gets_its_own)
{
	CLEANUP(arena_release) struct arena a = {0};
	char *small = arena_alloc(&a, 100);
	char *large = arena_alloc(&a, 1000000);
	assert_non_null(small);
	assert_non_null(large);
	memset(small, 1, 100);
	memset(large, 2, 1000000);
	assert_int_equal(small[99], 1);
}

TEST(zalloc_clears_memory_that_was_used_before)
{
	CLEANUP(arena_release) struct arena a = {0};
	memset(arena_alloc(&a, 512), 0xff, 512);
	arena_release(&a);
	const char *p = arena_zalloc(&a, 512);
	for (size_t i = 0; i < 512; i++)
		assert_int_equal(p[i], 0);
}

TEST(release_of_an_unused_arena_does_nothing)
{
	struct arena a = {0};
	arena_release(&a);
	arena_release(&a);
	arena_release(&a);
	assert_null(a.first);
}

TEST(an_absurd_size_is_refused_and_the_arena_stays_usable)
{
	CLEANUP(arena_release) struct arena a = {0};
	volatile size_t absurd = SIZE_MAX;
	assert_null(arena_alloc(&a, absurd));
	assert_null(arena_zalloc(&a, absurd));
	assert_null(arena_alloc(&a, absurd - 15));
	assert_non_null(arena_alloc(&a, 1));
}

TEST(strings_are_copied_and_end_in_nul)
{
	CLEANUP(arena_release) struct arena a = {0};
	char source[] = "key and more";
	struct str copy = arena_str(&a, str_n(source, 3));
	source[0] = 'X';
	assert_int_equal(copy.len, 3);
	assert_string_equal(copy.ptr, "key");

	struct str empty = arena_str(&a, STR(""));
	assert_non_null(empty.ptr);
	assert_string_equal(empty.ptr, "");
	assert_null(arena_str(&a, STR_NULL).ptr);
}

TEST(printf_formats_text_of_any_length)
{
	CLEANUP(arena_release) struct arena a = {0};
	struct str s = arena_printf(&a, "%s-%d", "n", 42);
	assert_string_equal(s.ptr, "n-42");
	assert_int_equal(s.len, 4);
	s = arena_printf(&a, "%09000d", 7);
	assert_int_equal(s.len, 9000);
	assert_int_equal(s.ptr[8999], '7');
	assert_int_equal(s.ptr[9000], '\0');
}

TEST_MAIN()
