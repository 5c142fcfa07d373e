/* Signing in and out: /api/v1/session. A session's cookie is out of reach for scripts. */
#pragma once

#include "handler/api.h"
#include "http/request.h"

enum { SESSION_COOKIE_BYTES = 256 };

/* Does the client talk to us over TLS, as far as can be known? Then cookies shall go no other way. */
bool session_is_secure(const struct api_worker *w, struct http_conn *c, const struct http_request *req);

/* A new session of the user, but for its generation, to be written; strings go to the connection's arena. */
void session_prepare(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                     uint64_t user, struct session_record *ret);

/* What is told to somebody who has just been let in, when the session is written. */
struct session_start {
	char cookie[SESSION_COOKIE_BYTES]; /* the value of Set-Cookie */
	char csrf[CSRF_TEXT_BYTES];
};
void session_start(const struct api_worker *w, const struct session_record *session, bool secure,
                   struct session_start *ret);

/* 204, and the cookie goes. */
void session_reply_ended(struct http_conn *c);
