/*
 * The text of a session. Whoever has the secret can make one and tell a true one from any other; nothing is
 * kept anywhere. See accounts.h for what it is worth.
 */
#pragma once

#include "store/record.h"

enum {
	SESSION_SECRET_BYTES = 32,
	SESSION_TEXT_BYTES = 128, /* more than enough */
	CSRF_TEXT_BYTES = 48,
};

struct session_token {
	uint64_t user;
	uint64_t generation;
	int64_t expires_ms;
	uint8_t id[SESSION_ID_BYTES];
};

/* NUL-terminated, of A-Z a-z 0-9 - _ only. */
void session_token_write(const uint8_t secret[SESSION_SECRET_BYTES], const struct session_token *t,
                         char text[SESSION_TEXT_BYTES]);

/* False unless it was written under this very secret. Constant time for texts of the right length. */
bool session_token_read(const uint8_t secret[SESSION_SECRET_BYTES], struct str text,
                        struct session_token *ret);

/* What only those know who can read what the session reads; NUL-terminated. */
void session_token_csrf(const uint8_t secret[SESSION_SECRET_BYTES], const uint8_t id[SESSION_ID_BYTES],
                        char text[CSRF_TEXT_BYTES]);
