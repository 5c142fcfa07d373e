/*
 * A token in base64url without padding. Sizes in bytes; integers are little-endian:
 *
 *   version 1 | user 8 | generation 8 | expires_ms 8 | id 16 | MAC 16
 *
 * The MAC is keyed BLAKE2b over the bytes before it. 57 bytes are a multiple of three, so a token has exactly
 * one encoding. The CSRF token is the same hash over "csrf" and the id. Neither can pass for the other,
 * because the hashed texts begin differently.
 */
#include "auth/session_token.h"

#include "base/bytes.h"

#include <sodium.h>

enum {
	VERSION = 2, /* sessions of version 1 had no row */
	USER_AT = 1,
	GENERATION_AT = 9,
	EXPIRES_AT = 17,
	ID_AT = 25,
	MAC_AT = ID_AT + SESSION_ID_BYTES,
	MAC_BYTES = 16,
	TOKEN_BYTES = MAC_AT + MAC_BYTES,
	TOKEN_TEXT_LEN = TOKEN_BYTES / 3 * 4,
	CSRF_BYTES = 32,
	BASE64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING,
};
_Static_assert(TOKEN_BYTES % 3 == 0, "a token has one encoding");
_Static_assert((int)TOKEN_TEXT_LEN < (int)SESSION_TEXT_BYTES, "a token fits");
_Static_assert(sodium_base64_ENCODED_LEN(CSRF_BYTES, BASE64) <= CSRF_TEXT_BYTES, "a CSRF token fits");

static void mac_of(const uint8_t secret[SESSION_SECRET_BYTES], const uint8_t bytes[TOKEN_BYTES],
                   uint8_t mac[MAC_BYTES])
{
	crypto_generichash(mac, MAC_BYTES, bytes, MAC_AT, secret, SESSION_SECRET_BYTES);
}

void session_token_write(const uint8_t secret[SESSION_SECRET_BYTES], const struct session_token *t,
                         char text[SESSION_TEXT_BYTES])
{
	uint8_t bytes[TOKEN_BYTES] = {VERSION};
	bytes_put(bytes + USER_AT, t->user, 8);
	bytes_put(bytes + GENERATION_AT, t->generation, 8);
	bytes_put(bytes + EXPIRES_AT, (uint64_t)t->expires_ms, 8);
	memcpy(bytes + ID_AT, t->id, SESSION_ID_BYTES);
	mac_of(secret, bytes, bytes + MAC_AT);
	sodium_bin2base64(text, SESSION_TEXT_BYTES, bytes, sizeof(bytes), BASE64);
}

bool session_token_read(const uint8_t secret[SESSION_SECRET_BYTES], struct str text,
                        struct session_token *ret)
{
	uint8_t bytes[TOKEN_BYTES], mac[MAC_BYTES];
	size_t len;
	if (text.len != TOKEN_TEXT_LEN ||
	    sodium_base642bin(bytes, sizeof(bytes), text.ptr, text.len, NULL, &len, NULL, BASE64) != 0 ||
	    len != sizeof(bytes) || bytes[0] != VERSION)
		return false;
	mac_of(secret, bytes, mac);
	if (sodium_memcmp(mac, bytes + MAC_AT, sizeof(mac)) != 0)
		return false;
	ret->user = bytes_get(bytes + USER_AT, 8);
	ret->generation = bytes_get(bytes + GENERATION_AT, 8);
	ret->expires_ms = (int64_t)bytes_get(bytes + EXPIRES_AT, 8);
	memcpy(ret->id, bytes + ID_AT, SESSION_ID_BYTES);
	return true;
}

void session_token_csrf(const uint8_t secret[SESSION_SECRET_BYTES], const uint8_t id[SESSION_ID_BYTES],
                        char text[CSRF_TEXT_BYTES])
{
	uint8_t input[4 + SESSION_ID_BYTES] = "csrf", hash[CSRF_BYTES];
	memcpy(input + 4, id, SESSION_ID_BYTES);
	crypto_generichash(hash, sizeof(hash), input, sizeof(input), secret, SESSION_SECRET_BYTES);
	sodium_bin2base64(text, CSRF_TEXT_BYTES, hash, sizeof(hash), BASE64);
}
