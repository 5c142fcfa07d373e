/*
 * The body of a request that has not arrived in full. It gathers, in either framing, until it is whole.
 *
 * Bodies arrive before the sender is known, so those of one worker share a budget:
 *
 *   - The part of a body's buffer beyond 64 KiB counts, until http_body_release. A deferred request keeps its
 *     body, and so its share, until the reply.
 *   - Only what has arrived counts: a Content-Length alone takes nothing from others.
 *   - A body that finds no room is refused. One alone always fits.
 *
 * Large bodies have a higher minimum rate: see http_slowest_ms.
 */
#pragma once

#include "base/buf.h"
#include "http/chunked.h"
#include "http/request.h"

enum {
	HTTP_LARGE_BYTES = 64 * 1024, /* a body or a response beyond this counts against a budget */
	HTTP_LARGE_RATE = 64 * 1024,  /* least bytes a second of what is beyond */
	HTTP_BODIES_BYTES_MAX = 64 * 1024 * 1024,
};

/* How long a peer may take for so many bytes, in either direction. At the minimum rate of the settings alone,
 * a peer could hold something large for hours. */
static inline uint64_t http_slowest_ms(uint64_t bytes, uint64_t bytes_rate)
{
	if (LIKELY(bytes <= HTTP_LARGE_BYTES))
		return bytes * 1000 / bytes_rate;
	return HTTP_LARGE_BYTES * UINT64_C(1000) / bytes_rate +
	       (bytes - HTTP_LARGE_BYTES) * 1000 / MAX(bytes_rate, HTTP_LARGE_RATE);
}

/* The budget of one worker. Zero-initialised is unused. */
struct http_bodies {
	size_t taken_bytes; /* the sum of all shares */
};

/* Zero-initialised is a body that has not begun: it may be released, and begun. */
struct http_body {
	struct buf bytes;   /* what has gathered, decoded */
	size_t share_bytes; /* of the budget */
	uint64_t expected;  /* bytes, when it is not chunked */
	uint64_t received;  /* bytes of the wire */
	int64_t start_ms;   /* when the server began to wait for it */
	bool is_chunked;
	bool is_whole;
	struct http_chunked chunked;
};

/* After the head of a request that has a body. */
void http_body_begin(struct http_body *b, const struct http_request *req, int64_t now_ms);

enum { HTTP_BODY_NO_ROOM = -1 };

/*
 * Takes what belongs to the body from the front of `data`. Returns how many bytes that were (all of them,
 * unless the body ended in between: then `is_whole`), HTTP_BODY_NO_ROOM when the budget is used up, or the
 * negated status (-400, -413, -503) with a static reason; nothing may be fed after that.
 */
ssize_t http_body_feed(struct http_body *b, struct http_bodies *all, const char *data, size_t len,
                       uint64_t bytes_max, const char **ret_reason);

/* The deadline of the next bytes: `grace_ms`, and the time for the bytes that have arrived. */
int64_t http_body_deadline_ms(const struct http_body *b, uint64_t grace_ms, uint64_t bytes_rate);

/* Gives back the memory and the share, if any. */
void http_body_release(struct http_body *b, struct http_bodies *all);
