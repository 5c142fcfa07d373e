/*
 * The one place that writes response heads. It refuses names that are no tokens, and values with CR, LF, NUL
 * or other control characters; then it writes nothing.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/rfc3339.h"
#include "http/request.h"

enum {
	HTTP_OUT_HEAD_ONLY = 1, /* the response to HEAD: same head, no body */
	HTTP_OUT_CLOSE = 2,     /* says Connection: close */
	HTTP_OUT_KEEP_10 = 4,   /* says Connection: keep-alive, to an HTTP/1.0 client that asked */
	HTTP_OUT_STREAMING = 8, /* no Content-Length: more follows the body until the connection ends */
};

struct http_response {
	int status;
	struct str content_type; /* STR_NULL: none */
	struct str body;
	const struct http_field *fields;
	size_t field_count;
};

/*
 * Appends status line, Date, the fields, Content-Type, Content-Length (none for 1xx, 204, 304 and
 * streaming responses), Connection, and the body. 0 or ERR_INVALID or ERR_NOMEM (then `out` is as before).
 */
int http_response_write(struct buf *out, const struct http_response *r, unsigned flags,
                        const char date[HTTP_DATE_BYTES]);

const char *http_status_text(int status); /* "Not Found" */

/*
 * A response that is made once and sent often: everything but the date and the connection field. It ends with
 * the empty line's CRLF; the date's bytes are at `date_at`.
 */
struct http_ready {
	uint32_t len;
	uint16_t date_at;
};

/* Appends the bytes for http_ready_write to `out` (built by http_response_write without flags). */
int http_ready_make(struct buf *out, const struct http_response *r, struct http_ready *ret);

/* Copies ready-made bytes with a fresh date; `flags` as above. The response must have no body. `to` has
 * room for len + HTTP_READY_EXTRA bytes; returns how many were written. */
enum { HTTP_READY_EXTRA = 32 };
size_t http_ready_write(char *to, const char *bytes, const struct http_ready *ready, unsigned flags,
                        const char date[HTTP_DATE_BYTES]);
