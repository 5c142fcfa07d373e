/* Decodes a chunked body as its bytes arrive, strictly (RFC 9112, section 7.1). */
#pragma once

#include "base/buf.h"

struct http_chunked {
	int state;
	uint64_t left;          /* of the current chunk */
	uint32_t overhead;      /* bytes of framing that data has not made up for: bounded */
	uint32_t trailer_bytes; /* bounded */
	uint32_t digits;        /* of the current size */
	bool done;
};

void http_chunked_init(struct http_chunked *c);

/*
 * Appends decoded bytes to `body`, which holds nothing else, up to `body_bytes_max` in all. Returns how many
 * input bytes were taken (all of them, unless the body ended in between: then `c->done`), or the negated
 * status (-400, -413, -503 when memory ran out) with a static reason; nothing may be fed after that. Trailer
 * fields are checked and dropped.
 */
ssize_t http_chunked_feed(struct http_chunked *c, const char *data, size_t len, uint64_t body_bytes_max,
                          struct buf *body, const char **ret_reason);
