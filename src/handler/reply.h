/* Common answers. */
#pragma once

#include "base/err.h"
#include "http/conn.h"

enum { REPLY_FIELDS_MAX = 7 };

/* Sends the body as JSON with a newline at its end, never to be kept; 503 when the buffer ran out of memory.
 * At most REPLY_FIELDS_MAX fields. */
void api_reply_json(struct http_conn *c, int status, struct buf *body, const struct http_field *fields,
                    size_t field_count);

extern const struct http_field never_kept; /* Cache-Control, for whatever is somebody's own */

/* Sends one of the engine's own pages, which is never kept, with its policy (handler/html.h). */
void api_reply_page(struct http_conn *c, int status, const struct buf *page, struct http_field policy);

/* ERR_INVALID: 400 with the sentence. Anything else: as problem_reply_store. */
void api_reply_failed(struct http_conn *c, int err, const char *code, const struct err *e);

/* ?limit, or the usual one. False: it was wrong, and that has been said. */
bool input_limit(struct http_conn *c, struct str query, uint64_t usual, uint64_t max, uint64_t *ret);

/* Which page of a list by id is wanted: ?limit and ?cursor. False: it was wrong, and that has been said. */
struct page_input {
	uint64_t after; /* ids above this */
	uint64_t limit;
};
bool input_page(struct http_conn *c, struct str query, uint64_t limit_usual, uint64_t limit_max,
                struct page_input *ret);

/* A page with a form to sign in, that leads to `next` afterwards; `why` is a sentence above it. */
void reply_sign_in_page(struct http_conn *c, int status, const char *why, struct str next);
