#include "http/body.h"

void http_body_begin(struct http_body *b, const struct http_request *req, int64_t now_ms)
{
	ASSERT(!b->bytes.data && b->share_bytes == 0);
	*b = (struct http_body){
	    .expected = req->content_length, .is_chunked = req->chunked, .start_ms = now_ms};
	if (b->is_chunked)
		http_chunked_init(&b->chunked);
}

static void share_set(struct http_body *b, struct http_bodies *all, size_t bytes)
{
	ASSERT(all->taken_bytes >= b->share_bytes);
	all->taken_bytes = all->taken_bytes - b->share_bytes + bytes;
	b->share_bytes = bytes;
}

/* Counts the buffer's capacity: that is the memory it can fill. The buffer has grown by then, and a refused
 * body is released at once. So for a moment the budget may be exceeded by one body. */
static bool share_grow(struct http_body *b, struct http_bodies *all)
{
	size_t bytes = b->bytes.cap > HTTP_LARGE_BYTES ? b->bytes.cap - HTTP_LARGE_BYTES : 0;
	size_t others = all->taken_bytes - b->share_bytes;
	if (LIKELY(bytes == b->share_bytes))
		return true;
	if (others > 0 && others + bytes > HTTP_BODIES_BYTES_MAX)
		return false;
	share_set(b, all, bytes);
	return true;
}

static ssize_t take_counted(struct http_body *b, const char *data, size_t len, const char **ret_reason)
{
	size_t count = (size_t)MIN(len, b->expected - b->bytes.len);
	buf_append(&b->bytes, data, count);
	if (b->bytes.failed) {
		*ret_reason = "The server is out of memory. Try again.";
		return -503;
	}
	b->is_whole = b->bytes.len == b->expected;
	return (ssize_t)count;
}

ssize_t http_body_feed(struct http_body *b, struct http_bodies *all, const char *data, size_t len,
                       uint64_t bytes_max, const char **ret_reason)
{
	ssize_t count;
	if (b->is_chunked) {
		count = http_chunked_feed(&b->chunked, data, len, bytes_max, &b->bytes, ret_reason);
		b->is_whole = b->chunked.done;
	} else {
		count = take_counted(b, data, len, ret_reason);
	}
	if (count < 0)
		return count;
	if (!share_grow(b, all))
		return HTTP_BODY_NO_ROOM;
	b->received += (uint64_t)count;
	return count;
}

int64_t http_body_deadline_ms(const struct http_body *b, uint64_t grace_ms, uint64_t bytes_rate)
{
	return b->start_ms + (int64_t)(grace_ms + http_slowest_ms(b->received, bytes_rate));
}

void http_body_release(struct http_body *b, struct http_bodies *all)
{
	share_set(b, all, 0);
	buf_release(&b->bytes);
}
