// needs: src/http/parse.c src/http/request.c
// flags: -max_len=2048
/*
 * The verdict of a request head does not depend on how it arrives, and what is read out lies in the buffer.
 * The first two bytes of the input choose the limits.
 */
#include "http/request.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct bounds {
	const char *from, *to;
};

static void check_inside(struct str s, struct bounds b)
{
	ASSERT(s.ptr && s.ptr >= b.from && s.ptr + s.len <= b.to);
}

static void check_request(const struct http_request *req, struct bounds b)
{
	ASSERT((unsigned)req->method < HTTP_METHOD_COUNT);
	ASSERT(req->minor_version <= 1);
	ASSERT(req->has_body == (req->chunked || req->content_length > 0));
	ASSERT(!(req->chunked && req->content_length > 0));
	ASSERT(req->path.len > 0 && (req->path.ptr[0] == '/' || str_eq(req->path, STR("*"))));
	check_inside(req->target, b);
	if (req->query.ptr)
		check_inside(req->query, b);
	if (req->host.ptr)
		check_inside(req->host, b);
	ASSERT(req->minor_version == 0 || req->host.len > 0);
	ASSERT(req->field_count <= HTTP_FIELDS_MAX);
	for (size_t i = 0; i < req->field_count; i++) {
		check_inside(req->fields[i].name, b);
		check_inside(req->fields[i].value, b);
		ASSERT(req->fields[i].name.len > 0);
		for (size_t k = 0; k < req->fields[i].value.len; k++) {
			char c = req->fields[i].value.ptr[k];
			ASSERT(c != '\r' && c != '\n' && c != '\0');
		}
	}
}

/* Parses a block of exactly `len` bytes, so that a look beyond is seen. */
static int parse(const uint8_t *data, size_t len, const struct http_limits *limits, const char **ret_reason)
{
	static struct http_request req;
	char *copy = malloc(len ? len : 1);
	memcpy(copy, data, len);
	*ret_reason = NULL;
	int verdict = http_parse_head(copy, len, limits, &req, ret_reason);
	ASSERT((verdict < 0) == (*ret_reason != NULL));
	ASSERT(verdict <= (int)len);
	if (verdict > 0)
		check_request(&req, (struct bounds){copy, copy + verdict});
	free(copy);
	return verdict;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len < 2)
		return 0;
	struct http_limits limits = {
	    .line_bytes_max = data[0] & 1 ? 32 : 1024,
	    .headers_bytes_max = data[0] & 2 ? 64 : 1024,
	    .headers_max = data[0] & 4 ? 3 : 100,
	};
	size_t step = data[1] % 16 + 1;
	data += 2;
	len -= 2;

	const char *whole_reason, *reason;
	int whole = parse(data, len, &limits, &whole_reason);
	bool said = false;
	for (size_t part = 0; part < len; part += step) {
		int verdict = parse(data, part, &limits, &reason);
		if (verdict != HTTP_PARSE_MORE)
			said = true;
		if (said)
			ASSERT(verdict == whole && reason == whole_reason);
	}
	return 0;
}
