#include "lib/store_kit.h"
#include "lib/test.h"
#include "link/key_format.h"
#include "store/backends.h"

static struct store *store_new(void)
{
	struct store *s = NULL;
	s = kit_store_new();
	return s;
}

static void assert_same_keys(const struct key_cipher *a, const struct key_cipher *b)
{
	char one[KEY_LENGTH_MAX], other[KEY_LENGTH_MAX];
	assert_int_equal(a->length, b->length);
	for (uint64_t id = 1; id < 100; id++) {
		key_encode(a, id, one);
		key_encode(b, id, other);
		assert_memory_equal(one, other, a->length);
	}
}

TEST(all_who_make_keys_for_a_store_make_the_same)
{
	struct store *s = store_new();
	struct key_cipher first, second;
	assert_int_equal(key_format_fix(s, KEY_BASE62, 0, &first, NULL), 0);
	assert_int_equal(first.length, 7);
	assert_int_equal(key_format_fix(s, KEY_BASE62, 7, &second, NULL), 0);
	assert_same_keys(&first, &second);
	store_free(s);
}

TEST(stores_have_secrets_of_their_own)
{
	struct store *s = store_new(), *other = store_new();
	struct key_cipher first, second;
	assert_int_equal(key_format_fix(s, KEY_BASE36, 0, &first, NULL), 0);
	assert_int_equal(key_format_fix(other, KEY_BASE36, 0, &second, NULL), 0);
	assert_int_equal(first.length, 8);
	assert_memory_not_equal(first.secret, second.secret, KEY_SECRET_BYTES);
	store_free(s);
	store_free(other);
}

TEST(other_settings_than_the_stores_are_refused_with_what_would_be_right)
{
	struct store *s = store_new();
	struct key_cipher cipher;
	struct err e = {""};
	assert_int_equal(key_format_fix(s, KEY_BASE64URL, 6, &cipher, NULL), 0);
	assert_int_equal(key_format_fix(s, KEY_BASE62, 6, &cipher, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "keys.alphabet = base64url"));
	assert_int_equal(key_format_fix(s, KEY_BASE64URL, 7, &cipher, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "keys.length = 6"));
	assert_int_equal(key_format_fix(s, KEY_BASE64URL, 2, &cipher, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "too short"));
	store_free(s);
}

TEST(damage_is_reported_and_not_guessed_at)
{
	struct store *s = store_new();
	struct key_cipher cipher;
	uint8_t shape[2] = {9, 7};
	assert_int_equal(registry_constant(s->registry, STR("key-shape"), shape, sizeof(shape)), 0);
	assert_int_equal(key_format_fix(s, KEY_BASE62, 0, &cipher, NULL), ERR_CORRUPT);
	store_free(s);
}

TEST(a_store_that_fails_is_reported)
{
	struct store *inner = store_new(), *s = NULL;
	struct key_cipher cipher;
	struct err e = {""};
	assert_int_equal(store_fault_open("constant=unavailable@2", inner, &s, NULL), 0);
	assert_int_equal(key_format_fix(s, KEY_BASE62, 0, &cipher, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "key secret"));
	store_free(s);
}

TEST_MAIN()
