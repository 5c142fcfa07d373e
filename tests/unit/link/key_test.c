#include "lib/test.h"
#include "link/key.h"

#include <sodium.h>

static const uint8_t secret[KEY_SECRET_BYTES] = "0123456789abcde";

TEST(every_id_of_a_small_space_has_its_own_key_and_comes_back)
{
	struct key_cipher c;
	key_cipher_init(&c, KEY_BASE36, 4, secret);
	uint8_t *seen = calloc(c.count, 1);
	for (uint64_t id = 1; id < c.count; id++) {
		char text[4];
		key_encode(&c, id, text);
		assert_int_equal(key_decode(&c, str_n(text, 4)), id);
		uint64_t place = 0;
		for (int i = 0; i < 4; i++)
			place = place * 36 + (uint64_t)c.values[(unsigned char)text[i]];
		assert_int_equal(seen[place], 0);
		seen[place] = 1;
	}
	free(seen);
}

TEST(ids_come_back_in_every_alphabet_and_length)
{
	for (int alphabet = KEY_BASE62; alphabet <= KEY_BASE36; alphabet++) {
		for (unsigned length = KEY_LENGTH_MIN; length <= KEY_LENGTH_MAX; length++) {
			struct key_cipher c;
			key_cipher_init(&c, alphabet, length, secret);
			const uint64_t ids[] = {1, 2, 3, 1000, c.count / 2, c.count - 2, c.count - 1};
			for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
				char text[KEY_LENGTH_MAX];
				key_encode(&c, ids[i], text);
				assert_true(key_is_wellformed(str_n(text, length)));
				assert_int_equal(key_decode(&c, str_n(text, length)), ids[i]);
			}
		}
	}
}

/* The keys that are out there must keep working: this breaks when anybody changes the cipher. */
TEST(a_key_is_the_same_for_ever)
{
	static const struct {
		int alphabet;
		unsigned length;
		uint64_t id;
		const char *key;
	} known[] = {
	    {KEY_BASE62, 7, 1, "uayELwJ"},
	    {KEY_BASE62, 7, 2, "xfeGhT8"},
	    {KEY_BASE62, 7, 123456789, "07zFmny"},
	    {KEY_BASE62, 7, 3521614606207, "i37rPnc"},
	    {KEY_BASE64URL, 8, 1, "YKrHDzGn"},
	    {KEY_BASE64URL, 8, 2, "sJ9VLGzV"},
	    {KEY_BASE64URL, 8, 123456789, "pgqBvwxN"},
	    {KEY_BASE64URL, 8, 281474976710655, "jQW6x40q"},
	    {KEY_BASE36, 8, 1, "jwh7h64m"},
	    {KEY_BASE36, 8, 2, "jbv2zt9l"},
	    {KEY_BASE36, 8, 123456789, "03d0z6mq"},
	    {KEY_BASE36, 8, 2821109907455, "tzvkfgt5"},
	};
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		struct key_cipher c;
		char text[KEY_LENGTH_MAX + 1] = "";
		key_cipher_init(&c, known[i].alphabet, known[i].length, secret);
		key_encode(&c, known[i].id, text);
		assert_string_equal(text, known[i].key);
	}
}

TEST(another_secret_gives_other_keys)
{
	static const uint8_t other[KEY_SECRET_BYTES] = "another secret!";
	struct key_cipher a, b;
	char from_a[7], from_b[7];
	key_cipher_init(&a, KEY_BASE62, 7, secret);
	key_cipher_init(&b, KEY_BASE62, 7, other);
	int same = 0;
	for (uint64_t id = 1; id <= 1000; id++) {
		key_encode(&a, id, from_a);
		key_encode(&b, id, from_b);
		same += memcmp(from_a, from_b, 7) == 0;
	}
	assert_int_equal(same, 0);
}

/* Ids in a row must not show: every position takes every digit about equally often. */
TEST(neighbouring_ids_have_unrelated_keys)
{
	enum { IDS = 62000 };
	static unsigned counts[7][62];
	struct key_cipher c;
	key_cipher_init(&c, KEY_BASE62, 7, secret);
	for (uint64_t id = 1; id <= IDS; id++) {
		char text[7];
		key_encode(&c, id, text);
		for (int at = 0; at < 7; at++)
			counts[at][c.values[(unsigned char)text[at]]]++;
	}
	for (int at = 0; at < 7; at++) {
		for (int digit = 0; digit < 62; digit++)
			assert_in_range(counts[at][digit], 800, 1200); /* 1000 expected, deviation 31 */
	}
}

TEST(what_is_no_key_decodes_to_nothing)
{
	struct key_cipher c;
	key_cipher_init(&c, KEY_BASE62, 7, secret);
	assert_int_equal(key_decode(&c, STR("")), 0);
	assert_int_equal(key_decode(&c, STR("abcdef")), 0);
	assert_int_equal(key_decode(&c, STR("abcdefgh")), 0);
	assert_int_equal(key_decode(&c, STR("abc-efg")), 0);
	assert_int_equal(key_decode(&c, STR("abc\0efg")), 0);
	assert_int_equal(key_decode(&c, STR("\xff\xff\xff\xff\xff\xff\xff")), 0);
}

TEST(base36_is_read_without_regard_to_case_and_base62_is_not)
{
	struct key_cipher c;
	char text[8], upper[8], folded[8];
	key_cipher_init(&c, KEY_BASE36, 8, secret);
	key_encode(&c, 4711, text);
	for (int i = 0; i < 8; i++)
		upper[i] = text[i] >= 'a' && text[i] <= 'z' ? (char)(text[i] - 32) : text[i];
	assert_int_equal(key_decode(&c, str_n(upper, 8)), 4711);
	assert_true(str_eq(key_fold(&c, str_n(upper, 8), folded), str_n(text, 8)));
	key_cipher_init(&c, KEY_BASE62, 7, secret);
	assert_true(str_eq(key_fold(&c, STR("AbC"), folded), STR("AbC")));
}

TEST(aliases_are_checked_and_the_sentence_says_why)
{
	struct err e;
	char long_alias[256];
	memset(long_alias, 'a', sizeof(long_alias));
	assert_int_equal(alias_check(STR("a"), &e), 0);
	assert_int_equal(alias_check(STR("Summer-Sale_2026"), &e), 0);
	assert_int_equal(alias_check(str_n(long_alias, 255), &e), 0);
	assert_int_equal(alias_check(STR(""), &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "empty"));
	assert_int_equal(alias_check(str_n(long_alias, 256), &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "256"));
	static const char *const malformed[] = {"a b", "a/b", "a.b", "a+b", "\xc3\xbc", "a\n"};
	for (size_t i = 0; i < ARRAY_LEN(malformed); i++) {
		assert_int_equal(alias_check(str_of(malformed[i]), &e), ERR_INVALID);
		assert_non_null(strstr(e.text, "A-Z"));
	}
	static const char *const taken[] = {"api", "API",   "Healthz", "metrics",
	                                    "app", "stats", "event",   "well-known"};
	for (size_t i = 0; i < ARRAY_LEN(taken); i++) {
		assert_int_equal(alias_check(str_of(taken[i]), &e), ERR_INVALID);
		assert_non_null(strstr(e.text, "reserved"));
	}
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS();
}
