// needs: src/http/chunked.c
// flags: -max_len=4096
/*
 * A chunked body gives the same bytes and the same verdict whole and in pieces, within its limit. The first
 * byte of the input chooses the limit, the second the pieces.
 */
#include "http/chunked.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct outcome {
	ssize_t verdict;
	const char *reason;
	bool done;
	struct buf body;
};

static struct outcome feed(const uint8_t *data, size_t len, size_t piece, uint64_t body_bytes_max)
{
	struct http_chunked c;
	struct outcome o = {0};
	size_t at = 0;
	http_chunked_init(&c);
	while (at < len && !c.done) {
		size_t count = MIN(piece, len - at);
		char *copy = malloc(count);
		memcpy(copy, data + at, count);
		ssize_t taken = http_chunked_feed(&c, copy, count, body_bytes_max, &o.body, &o.reason);
		free(copy);
		if (taken < 0) {
			ASSERT(o.reason);
			o.verdict = taken;
			return o;
		}
		ASSERT((size_t)taken == count || ((size_t)taken < count && c.done));
		at += (size_t)taken;
	}
	o.verdict = (ssize_t)at;
	o.done = c.done;
	return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len < 2)
		return 0;
	uint64_t body_bytes_max = data[0] & 1 ? 16 : 4096;
	size_t piece = data[1] % 32 + 1;
	struct outcome whole = feed(data + 2, len - 2, SIZE_MAX, body_bytes_max);
	struct outcome parts = feed(data + 2, len - 2, piece, body_bytes_max);
	ASSERT(whole.verdict == parts.verdict);
	ASSERT(whole.reason == parts.reason);
	ASSERT(whole.done == parts.done);
	ASSERT(str_eq(buf_view(&whole.body), buf_view(&parts.body)));
	ASSERT(whole.body.len <= body_bytes_max);
	buf_release(&whole.body);
	buf_release(&parts.body);
	return 0;
}
