/* Responses that several handlers share. */
#pragma once

#include "base/err.h"
#include "http/conn.h"

enum { REPLY_FIELDS_MAX = 7 };

/* Sends the body as JSON, with a newline at its end and no_store; 503 if the buffer ran out of memory. At
 * most REPLY_FIELDS_MAX fields. */
void reply_json(struct http_conn *c, int status, struct buf *body, const struct http_field *fields,
                size_t field_count);

/* Ends `{"items":[...` with the cursor of the next page, and sends it; `last` is the page's last id, or 0 if
 * no page follows. */
void reply_page_by_id(struct http_conn *c, struct buf *body, uint64_t last);

extern const struct http_field no_store; /* Cache-Control, for private responses */

/* Sends an HTML page with no_store and its policy (handler/html.h). A 401 has a challenge (WWW-Authenticate),
 * of a scheme for which browsers have no dialog: they show the page. */
void reply_html(struct http_conn *c, int status, const struct buf *page, struct http_field policy,
                const struct http_field *challenge_or_null);

/* ERR_INVALID: 400 with the message. Other errors: as problem_reply_store. */
void reply_failed(struct http_conn *c, int err, const char *code, const struct err *e);

/* A page with a sign-in form, which leads to `next` afterwards; `text` is a sentence above it. */
void reply_sign_in_page(struct http_conn *c, int status, const char *text, struct str next);
