#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "event/strings.h"

#include <stdio.h>
#include <stdlib.h>

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

static void what_was_added_is_found_where_it_stands(void **state)
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

static void texts_with_the_same_hash_are_told_apart(void **state)
{
	struct strings *s = *state;
	strings_add(s, STR("one"), STRINGS_SLOTS - 1, 100);
	strings_add(s, STR("two"), STRINGS_SLOTS - 1, 200); /* goes on at the first slot */
	assert_int_equal(strings_find(s, STR("one"), STRINGS_SLOTS - 1), 100);
	assert_int_equal(strings_find(s, STR("two"), STRINGS_SLOTS - 1), 200);
	assert_int_equal(strings_find(s, STR("tw"), STRINGS_SLOTS - 1), 0);
}

static void clearing_forgets_everything(void **state)
{
	struct strings *s = *state;
	strings_add(s, STR("one"), 1, 100);
	strings_clear(s);
	assert_int_equal(strings_find(s, STR("one"), 1), 0);
	strings_add(s, STR("one"), 1, 300);
	assert_int_equal(strings_find(s, STR("one"), 1), 300);
}

/* Found is only what was added last under that text, whatever was forgotten meanwhile. */
static void a_full_table_forgets_and_goes_on(void **state)
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

static void long_texts_fill_it_too(void **state)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_was_added_is_found_where_it_stands, make, release),
	    cmocka_unit_test_setup_teardown(texts_with_the_same_hash_are_told_apart, make, release),
	    cmocka_unit_test_setup_teardown(clearing_forgets_everything, make, release),
	    cmocka_unit_test_setup_teardown(a_full_table_forgets_and_goes_on, make, release),
	    cmocka_unit_test_setup_teardown(long_texts_fill_it_too, make, release),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
