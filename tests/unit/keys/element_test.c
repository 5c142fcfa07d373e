#include "keys/element.h"
#include "lib/test.h"

static struct source_key key_of(const char *text, bool used_before)
{
	struct source_key key = {.len = (uint8_t)strlen(text), .used_before = used_before};
	memcpy(key.text, text, key.len);
	return key;
}

TEST(a_key_is_written_as_its_text_with_a_mark_if_it_was_used_before)
{
	char out[ELEMENT_BYTES_MAX];
	struct source_key fresh = key_of("abcDEF7", false), used = key_of("0123456789", true);
	assert_int_equal(element_write(&fresh, out), 7);
	assert_memory_equal(out, "abcDEF7", 7);
	assert_int_equal(element_write(&used, out), ELEMENT_BYTES_MAX);
	assert_memory_equal(out, "0123456789!", 11);
}

TEST(what_was_written_reads_the_same)
{
	CLEANUP(arena_release) struct arena arena = {0};
	const struct source_key keys[] = {key_of("abcDEF7", false), key_of("abcDEF8", true),
	                                  key_of("a-_9", false)};
	const struct str *texts = elements_write(keys, ARRAY_LEN(keys), &arena);
	assert_non_null(texts);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		struct source_key read;
		assert_true(element_read(texts[i], &read));
		assert_memory_equal(read.text, keys[i].text, keys[i].len);
		assert_int_equal(read.len, keys[i].len);
		assert_int_equal(read.used_before, keys[i].used_before);
	}
}

TEST(what_can_be_no_key_is_refused)
{
	static const char *const wrong[] = {"",        "!",         "abc",    "abc!",    "abcdefghijk",
	                                    "abc def", "abcdefg!!", "abcd\n", "abc/def", "äbcdefg"};
	struct source_key read;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_false(element_read(str_of(wrong[i]), &read));
	assert_false(element_read(STR_NULL, &read));
	assert_false(element_read(str_n("abcd\0ef", 7), &read));
}

TEST(no_keys_are_written_as_none)
{
	CLEANUP(arena_release) struct arena arena = {0};
	assert_non_null(elements_write(NULL, 0, &arena));
}

TEST_MAIN()
