/*
 * Every error answer: application/problem+json (RFC 9457) with a sentence that says what to do. A browser
 * that follows a short link and asks for HTML gets the same sentence as a small page.
 */
#pragma once

#include "base/err.h"
#include "http/conn.h"

struct problem {
	int status;
	const char *code; /* stable, for programs: "alias-taken" */
	const struct http_field *fields;
	size_t field_count;
	bool as_page; /* answer with HTML */
};

void problem_reply(struct http_conn *c, const struct problem *p, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same for one that is a status and a code alone. */
void problem_say(struct http_conn *c, int status, const char *code, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Does the client prefer HTML to JSON? */
bool problem_wants_page(const struct http_request *req);

/* The event log could not take what must be on record: 503, nothing was changed. */
void problem_reply_log(struct http_conn *c, int err);

/* A store that failed: 503 for what may be retried, 500 for what may not. */
void problem_reply_store(struct http_conn *c, int err);

/* Likewise for a sink that could not be asked: the link store may be well. */
void problem_reply_sink(struct http_conn *c, int err);
