/* The routes /api/v1/session: signing in and out. Scripts cannot read the cookie of a session. */
#pragma once

#include "handler/api.h"
#include "http/request.h"

enum { SESSION_COOKIE_BYTES = 256 };

/* Does the client use TLS, as far as the server knows? Then its cookies are marked Secure. */
bool session_cookie_is_secure(const struct api_worker *w, struct http_conn *c,
                              const struct http_request *req);

/* A new session of the user, without its generation; strings go to the connection's arena. */
void session_record_init(const struct api_worker *w, struct http_conn *c, const struct http_request *req,
                         uint64_t user, struct session_record *ret);

/* What the client of a new session gets, after the session is stored. */
struct session_issue {
	char cookie[SESSION_COOKIE_BYTES]; /* the value of Set-Cookie */
	char csrf[CSRF_TEXT_BYTES];
};
void session_issue(const struct api_worker *w, const struct session_record *session, bool secure,
                   struct session_issue *ret);

/* 204, and removes the cookie. */
void session_reply_ended(struct http_conn *c);
