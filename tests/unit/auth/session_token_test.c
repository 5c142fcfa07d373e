#include "auth/session_token.h"
#include "lib/test.h"

#include <sodium.h>

static const uint8_t secret[SESSION_SECRET_BYTES] = {1, 2, 3}, other_secret[SESSION_SECRET_BYTES] = {1, 2, 4};
static const struct session_token sample = {
    .user = 0x1122334455667788, .generation = 7, .expires_ms = 1800000000000, .id = {9, 8, 7}};

TEST(what_was_written_is_read)
{
	char text[SESSION_TEXT_BYTES];
	struct session_token t;
	session_token_write(secret, &sample, text);
	assert_true(session_token_read(secret, str_of(text), &t));
	assert_int_equal(t.user, sample.user);
	assert_int_equal(t.generation, sample.generation);
	assert_int_equal(t.expires_ms, sample.expires_ms);
	assert_memory_equal(t.id, sample.id, SESSION_ID_BYTES);
	assert_false(session_token_read(other_secret, str_of(text), &t));
}

TEST(every_part_of_it_counts)
{
	char text[SESSION_TEXT_BYTES], other[SESSION_TEXT_BYTES];
	struct session_token changed[4] = {sample, sample, sample, sample};
	changed[0].user++;
	changed[1].generation++;
	changed[2].expires_ms++;
	changed[3].id[15]++;
	session_token_write(secret, &sample, text);
	size_t len = strlen(text);
	for (size_t i = 0; i < ARRAY_LEN(changed); i++) {
		struct session_token t;
		session_token_write(secret, &changed[i], other);
		/* its head with the MAC of another */
		memcpy(other + len - 20, text + len - 20, 20);
		assert_false(session_token_read(secret, str_of(other), &t));
	}
}

TEST(it_has_only_bytes_that_a_cookie_may_have)
{
	char text[SESSION_TEXT_BYTES];
	struct session_token t = sample;
	for (int i = 0; i < 100; i++) {
		randombytes_buf(t.id, sizeof(t.id));
		session_token_write(secret, &t, text);
		assert_int_equal(
		    strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"),
		    strlen(text));
	}
}

TEST(with_any_character_changed_added_or_removed_it_is_invalid)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+/ ";
	char text[SESSION_TEXT_BYTES];
	struct session_token t;
	session_token_write(secret, &sample, text);
	size_t len = strlen(text);
	for (size_t i = 0; i < len; i++) {
		char was = text[i];
		for (const char *c = alphabet; *c; c++) {
			text[i] = *c;
			assert_int_equal(session_token_read(secret, str_n(text, len), &t), *c == was);
		}
		text[i] = '\0';
		assert_false(session_token_read(secret, str_n(text, len), &t));
		text[i] = was;
		assert_false(session_token_read(secret, str_n(text, i), &t));
	}
	text[len] = 'A';
	assert_false(session_token_read(secret, str_n(text, len + 1), &t));
	assert_false(session_token_read(secret, STR_NULL, &t));
}

TEST(the_token_against_forgery_is_the_sessions_and_the_secrets)
{
	static const uint8_t one[SESSION_ID_BYTES] = {1}, two[SESSION_ID_BYTES] = {2};
	char text[CSRF_TEXT_BYTES], again[CSRF_TEXT_BYTES], other[CSRF_TEXT_BYTES], foreign[CSRF_TEXT_BYTES];
	session_token_csrf(secret, one, text);
	session_token_csrf(secret, one, again);
	session_token_csrf(secret, two, other);
	session_token_csrf(other_secret, one, foreign);
	assert_string_equal(text, again);
	assert_string_not_equal(text, other);
	assert_string_not_equal(text, foreign);
	assert_int_equal(strlen(text), 43);
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS();
}
