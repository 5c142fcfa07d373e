/*
 * Error responses: application/problem+json (RFC 9457) with a `detail` that says what is wrong and what to
 * do. A browser that follows a short link gets the same text as a small page.
 */
#pragma once

#include "base/err.h"
#include "http/conn.h"

struct problem {
	int status;
	const char *code;  /* stable; clients rely on it: "alias-taken" */
	const char *field; /* of the body, that is at fault; NULL: none */
	const struct http_field *fields;
	size_t field_count;
	bool as_html;
};

void problem_reply_with(struct http_conn *c, const struct problem *p, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same for a wrong field, and for a status and a code alone. */
#define problem_reply_field(c, code_, field_, ...)                                                        \
	problem_reply_with(c, &(const struct problem){.status = 400, .code = (code_), .field = (field_)}, \
	                   __VA_ARGS__)
#define problem_reply(c, status_, code_, ...) \
	problem_reply_with(c, &(const struct problem){.status = (status_), .code = (code_)}, __VA_ARGS__)

/* Does the client prefer HTML to JSON? */
bool problem_prefers_html(const struct http_request *req);

/* The event log could not take an event that must be logged: 503. */
void problem_reply_event_log(struct http_conn *c, int err);

/* The store failed: 503 if the client may retry, otherwise 500. */
void problem_reply_store(struct http_conn *c, int err);

/* The same for the sink. */
void problem_reply_sink(struct http_conn *c, int err);

/* 400: the parameter `cursor` is not from this list. */
void problem_reply_cursor(struct http_conn *c);
