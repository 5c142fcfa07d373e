/*
 * The token of a session: its fields and a MAC under the store's secret, as text for a cookie. Pure
 * functions. A token that reads well is genuine, but its session may have ended: accounts.h checks that.
 */
#pragma once

#include "store/record.h"

enum {
	SESSION_SECRET_BYTES = 32,
	SESSION_TEXT_BYTES = 128,
	CSRF_TEXT_BYTES = 48,
};

struct session_token {
	uint64_t user;
	uint64_t generation;
	int64_t expires_ms;
	uint8_t id[SESSION_ID_BYTES];
};

/* NUL-terminated; only A-Z a-z 0-9 - _. */
void session_token_write(const uint8_t secret[SESSION_SECRET_BYTES], const struct session_token *t,
                         char text[SESSION_TEXT_BYTES]);

/* False unless it was written with this secret. Constant time for texts of the right length. */
bool session_token_read(const uint8_t secret[SESSION_SECRET_BYTES], struct str text,
                        struct session_token *ret);

/* The CSRF token of a session, which another site cannot know; NUL-terminated. */
void session_token_csrf(const uint8_t secret[SESSION_SECRET_BYTES], const uint8_t id[SESSION_ID_BYTES],
                        char text[CSRF_TEXT_BYTES]);
