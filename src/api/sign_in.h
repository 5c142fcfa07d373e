/* Signing in and out: /api/v1/session. A session's cookie is out of reach for scripts. */
#pragma once

#include "api/api.h"
#include "http/request.h"

enum { SESSION_COOKIE_BYTES = 256 };

/* A page with a form to sign in, that leads to `next` afterwards; `why` is a sentence above it. */
void sign_in_page(struct http_conn *c, int status, const char *why, struct str next);

/* Does the client talk to us over TLS, as far as can be known? Then cookies shall go no other way. */
bool session_is_secure(const struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* What is told to somebody who has just been let in. */
struct session_start {
	char cookie[SESSION_COOKIE_BYTES]; /* the value of Set-Cookie */
	char csrf[CSRF_TEXT_BYTES];
	int64_t expires_ms;
};
void session_start(const struct api_worker *w, const struct user_record *user, int64_t now_ms, bool secure,
                   struct session_start *ret);

/* 204, and the cookie goes. */
void session_reply_ended(struct http_conn *c);
