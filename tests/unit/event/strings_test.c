#include "base/hash.h"
#include "event/strings.h"
#include "lib/test.h"

static int make(void **state)
{
	*state = calloc(1, sizeof(struct strings));
	return *state ? 0 : -1;
}

static int release(void **state)
{
	free(*state);
	return 0;
}

static struct str numbered(unsigned number, char out[32])
{
	return str_n(out, (size_t)snprintf(out, 32, "text-%u", number));
}

TEST(what_was_added_is_found_where_it_stands)
{
	struct strings *s = *state;
	char text[32];
	for (unsigned i = 0; i < 1000; i++) {
		struct str t = numbered(i, text);
		assert_int_equal(strings_find(s, t, hash_str(t, 7)), 0);
		strings_add(s, t, hash_str(t, 7), 64 + i);
	}
	for (unsigned i = 0; i < 1000; i++) {
		struct str t = numbered(i, text);
		assert_int_equal(strings_find(s, t, hash_str(t, 7)), 64 + i);
	}
}

TEST(texts_with_the_same_hash_are_distinguished)
{
	struct strings *s = *state;
	strings_add(s, STR("one"), STRINGS_SLOTS - 1, 100);
	strings_add(s, STR("two"), STRINGS_SLOTS - 1, 200); /* goes on at the first slot */
	assert_int_equal(strings_find(s, STR("one"), STRINGS_SLOTS - 1), 100);
	assert_int_equal(strings_find(s, STR("two"), STRINGS_SLOTS - 1), 200);
	assert_int_equal(strings_find(s, STR("tw"), STRINGS_SLOTS - 1), 0);
}

TEST(clearing_forgets_everything)
{
	struct strings *s = *state;
	strings_add(s, STR("one"), 1, 100);
	strings_clear(s);
	assert_int_equal(strings_find(s, STR("one"), 1), 0);
	strings_add(s, STR("one"), 1, 300);
	assert_int_equal(strings_find(s, STR("one"), 1), 300);
}

/* Found is only what was added last under that text, whatever was forgotten meanwhile. */
TEST(a_full_table_forgets_and_goes_on)
{
	struct strings *s = *state;
	char text[32];
	unsigned forgotten = 0;
	for (unsigned i = 0; i < 3 * STRINGS_SLOTS; i++) {
		struct str t = numbered(i, text);
		strings_add(s, t, hash_str(t, 1), 64 + i);
		assert_int_equal(strings_find(s, t, hash_str(t, 1)), 64 + i);
		assert_true(s->count <= STRINGS_SLOTS * 3 / 4);
		struct str first = numbered(0, text);
		forgotten += strings_find(s, first, hash_str(first, 1)) == 0;
	}
	assert_true(forgotten > 0);
}

TEST(long_texts_fill_it_too)
{
	struct strings *s = *state;
	static char text[1024];
	for (unsigned i = 0; i < 1000; i++) {
		memset(text, 'a' + (int)(i % 26), sizeof(text));
		memcpy(text, &i, sizeof(i));
		struct str t = str_n(text, sizeof(text));
		strings_add(s, t, hash_str(t, 1), 64 + i);
		assert_int_equal(strings_find(s, t, hash_str(t, 1)), 64 + i);
		assert_true(s->text_len <= STRINGS_TEXT_BYTES);
	}
	assert_true(s->count < 1000);
}

TEST_MAIN(.setup = make, .teardown = release)
