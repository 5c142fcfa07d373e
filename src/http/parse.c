/*
 * The parser walks the bytes once, line by line. A line that is whole and right is taken in one fast scan.
 * Whatever stops that scan goes to a slow judge, which first looks for the end of the line:
 *
 *   - no end yet: the answer is "more", unless a limit is exceeded for certain;
 *   - an end: the verdict is final.
 *
 * Nothing is said about a line's content before the line is there. So the verdict cannot depend on how the
 * bytes were cut.
 *
 * A line is judged by its length, then its form, then its meaning. Lines are judged in the order they come.
 */
#include "http/request.h"

#include "http/scan.h"

#include <limits.h>

enum { EMPTY_LINES_MAX = 8 }; /* in front of the request line */

/* What a step says besides a negated status and HTTP_PARSE_MORE. */
enum { LINE_TAKEN = 1, HEAD_ENDED = 2 };

struct head {
	const char *at; /* the first byte not taken yet: a line begins here */
	const char *end;
	const char *fields_at;
	const struct http_limits *limits;
	struct http_request *req;
	const char *reason;
	size_t fields_max;
	bool absolute_target;
	bool has_host;
	bool has_length;
	bool says_close;
	bool says_keep_alive;
};

static int refuse(struct head *h, int status, const char *reason)
{
	h->reason = reason;
	return -status;
}

/* ---- hosts ---- */

static bool port_valid(struct str port)
{
	uint64_t number;
	return port.len <= 5 && str_u64(port, &number) && number <= 65535;
}

/*
 * A name or address with an optional port. Narrower than RFC 3986: percent escapes and marks such as ',' are
 * not in any host that can be reached, but they are in what a broken proxy makes of two Host fields.
 */
static bool host_valid(struct str host)
{
	const char *end = host.ptr + host.len;
	const char *stop;
	if (host.len > 0 && host.ptr[0] == '[') {
		for (stop = host.ptr + 1; stop < end; stop++) {
			if (ascii_hex(*stop) < 0 && *stop != ':' && *stop != '.')
				break;
		}
		if (stop == end || *stop != ']' || stop - host.ptr < 3)
			return false;
		stop++;
	} else {
		stop = scan_table(host.ptr, end, HTTP_CHAR_HOST);
		if (stop == host.ptr)
			return false;
	}
	if (stop == end)
		return true;
	return *stop == ':' && port_valid(str_n(stop + 1, (size_t)(end - stop - 1)));
}

/* ---- the request line ---- */

static inline enum http_method method_find(struct str name)
{
	int method = HTTP_GET;
	if (LIKELY(name.len == 3 && memcmp(name.ptr, "GET", 3) == 0))
		return HTTP_GET;
	while (method < HTTP_METHOD_OTHER &&
	       !str_eq(name, str_of(http_method_name((enum http_method)method))))
		method++;
	return (enum http_method)method;
}

static inline void split_target(struct http_request *req, struct str from_path)
{
	const char *mark = memchr(from_path.ptr, '?', from_path.len);
	if (!mark) {
		req->path = from_path;
		req->query = STR_NULL;
		return;
	}
	size_t path_len = (size_t)(mark - from_path.ptr);
	req->path = str_n(from_path.ptr, path_len);
	req->query = str_n(mark + 1, from_path.len - path_len - 1);
}

/* http://host/path?query, where the path may be empty. */
static int take_absolute_target(struct head *h)
{
	struct http_request *req = h->req;
	struct str rest = req->target;
	size_t scheme_len = str_eq_nocase(str_n(rest.ptr, MIN(rest.len, 7)), STR("http://"))    ? 7
	                    : str_eq_nocase(str_n(rest.ptr, MIN(rest.len, 8)), STR("https://")) ? 8
	                                                                                        : 0;
	if (scheme_len == 0)
		return refuse(h, 400, "the request target must begin with '/' or with http://");
	rest = str_n(rest.ptr + scheme_len, rest.len - scheme_len);
	size_t host_len = 0;
	while (host_len < rest.len && rest.ptr[host_len] != '/' && rest.ptr[host_len] != '?')
		host_len++;
	req->host = str_n(rest.ptr, host_len);
	if (!host_valid(req->host))
		return refuse(h, 400, "the host in the request target is not a valid one");
	h->absolute_target = true;
	split_target(req, str_n(rest.ptr + host_len, rest.len - host_len));
	if (req->path.len == 0) /* asks about the server as a whole: RFC 9112, section 3.2.4 */
		req->path = req->method == HTTP_OPTIONS && !req->query.ptr ? STR("*") : STR("/");
	return LINE_TAKEN;
}

static int take_target(struct head *h)
{
	struct http_request *req = h->req;
	if (LIKELY(req->target.ptr[0] == '/')) {
		split_target(req, req->target);
		return LINE_TAKEN;
	}
	if (str_eq(req->target, STR("*"))) {
		if (req->method != HTTP_OPTIONS)
			return refuse(h, 400, "the target '*' is for OPTIONS only");
		req->path = req->target;
		req->query = STR_NULL;
		return LINE_TAKEN;
	}
	return take_absolute_target(h);
}

/* HTTP/, a digit, a dot, a digit: whichever digits. */
static bool version_formed(struct str s)
{
	return s.len == 8 && memcmp(s.ptr, "HTTP/", 5) == 0 && s.ptr[5] >= '0' && s.ptr[5] <= '9' &&
	       s.ptr[6] == '.' && s.ptr[7] >= '0' && s.ptr[7] <= '9';
}

/* The slow judge of a request line that the fast way did not take. */
__attribute__((cold, noinline)) static int judge_request_line(struct head *h)
{
	const char *p = h->at;
	const char *lf = memchr(p, '\n', (size_t)(h->end - p));
	size_t before_lf = (size_t)((lf ? lf : h->end) - p);
	if (before_lf > 0 && before_lf - 1 > h->limits->line_bytes_max) /* 1: the CR */
		return refuse(h, 414, "the request line is too long");
	if (!lf)
		return HTTP_PARSE_MORE;
	if (lf == p || lf[-1] != '\r')
		return refuse(h, 400, "a line must end in CR LF");
	const char *cr = lf - 1;
	const char *stop = scan_token(p, cr);
	if (stop == p || stop == cr || *stop != ' ')
		return refuse(h, 400, "the request line must begin with a method and one space");
	const char *target = stop + 1;
	stop = scan_target(target, cr);
	if (stop == cr)
		return refuse(h, 400, "the request line must end in one space and HTTP/1.1 or HTTP/1.0");
	if (stop == target || *stop != ' ')
		return refuse(h, 400, "the request target must be printable ASCII without spaces and '#'");
	if (!version_formed(str_n(stop + 1, (size_t)(cr - stop - 1))))
		return refuse(h, 400, "the request line must end in one space and HTTP/1.1 or HTTP/1.0");
	return refuse(h, 505, "only HTTP/1.1 and HTTP/1.0 are supported");
}

static int take_request_line(struct head *h)
{
	struct http_request *req = h->req;
	const char *line = h->at;
	const char *end = h->end;
	const char *method_end = scan_token(line, end);
	if (method_end == line || method_end == end || *method_end != ' ')
		return judge_request_line(h);
	const char *target = method_end + 1;
	const char *target_end = scan_target(target, end);
	const char *version = target_end + 1;
	if (target_end == target || end - target_end < 11 || *target_end != ' ')
		return judge_request_line(h);
	if (LIKELY(memcmp(version, "HTTP/1.1\r\n", 10) == 0))
		req->minor_version = 1;
	else if (memcmp(version, "HTTP/1.0\r\n", 10) == 0)
		req->minor_version = 0;
	else
		return judge_request_line(h);
	if ((size_t)(version + 8 - line) > h->limits->line_bytes_max)
		return judge_request_line(h);

	struct str method = str_n(line, (size_t)(method_end - line));
	req->method = method_find(method);
	req->target = str_n(target, (size_t)(target_end - target));
	h->at = version + 10;
	if (UNLIKELY(req->method == HTTP_METHOD_OTHER) && str_eq(method, STR("CONNECT")))
		return refuse(h, 405, "CONNECT is not supported: this is no proxy");
	return take_target(h);
}

/* ---- fields ---- */

static int take_host(struct head *h, struct str value)
{
	if (h->has_host)
		return refuse(h, 400, "there is more than one Host field");
	if (!host_valid(value))
		return refuse(h, 400, "the Host field is not a valid host");
	h->has_host = true;
	if (!h->absolute_target)
		h->req->host = value;
	return LINE_TAKEN;
}

static int take_content_length(struct head *h, struct str value)
{
	if (h->req->chunked)
		return refuse(h, 400, "Content-Length and Transfer-Encoding do not go together");
	if (h->has_length)
		return refuse(h, 400, "there is more than one Content-Length field");
	if (!str_u64(value, &h->req->content_length))
		return refuse(h, 400, "the Content-Length field is not one decimal number");
	h->has_length = true;
	return LINE_TAKEN;
}

static int take_transfer_encoding(struct head *h, struct str value)
{
	if (h->has_length)
		return refuse(h, 400, "Content-Length and Transfer-Encoding do not go together");
	if (h->req->minor_version == 0)
		return refuse(h, 400, "HTTP/1.0 has no Transfer-Encoding");
	if (h->req->chunked)
		return refuse(h, 400, "there is more than one Transfer-Encoding field");
	if (!str_eq_nocase(value, STR("chunked")))
		return refuse(h, 501, "the only supported transfer encoding is 'chunked'");
	h->req->chunked = true;
	return LINE_TAKEN;
}

static int take_expect(struct head *h, struct str value)
{
	if (!str_eq_nocase(value, STR("100-continue")))
		return refuse(h, 417, "the only supported expectation is 100-continue");
	if (h->req->minor_version > 0) /* HTTP/1.0 does not know the 100 response */
		h->req->expect_continue = true;
	return LINE_TAKEN;
}

static int take_connection(struct head *h, struct str value)
{
	while (value.ptr) {
		struct str option = str_trim(str_cut(&value, ','));
		if (str_eq_nocase(option, STR("close")))
			h->says_close = true;
		else if (str_eq_nocase(option, STR("keep-alive")))
			h->says_keep_alive = true;
	}
	return LINE_TAKEN;
}

/* `lower` is the literal in lower case. Sound for tokens only: no token byte but the capital becomes a small
 * letter by the bit 0x20, and none becomes '-'. */
static inline bool name_is(const char *name, const char *lower, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if ((name[i] | 0x20) != lower[i])
			return false;
	}
	return true;
}

/* Fields that decide about framing or about the connection. All others are for the handlers. */
static inline int take_meaning(struct head *h, struct str name, struct str value)
{
	switch (name.len) {
	case 4:
		if (name_is(name.ptr, "host", 4))
			return take_host(h, value);
		break;
	case 6:
		if (name_is(name.ptr, "expect", 6))
			return take_expect(h, value);
		break;
	case 10:
		if (name_is(name.ptr, "connection", 10))
			return take_connection(h, value);
		break;
	case 14:
		if (name_is(name.ptr, "content-length", 14))
			return take_content_length(h, value);
		break;
	case 17:
		if (name_is(name.ptr, "transfer-encoding", 17))
			return take_transfer_encoding(h, value);
		break;
	default: break;
	}
	return LINE_TAKEN;
}

/* The slow judge of a field line that the fast way did not take. */
__attribute__((cold, noinline)) static int judge_field_line(struct head *h)
{
	const char *p = h->at;
	const char *lf = memchr(p, '\n', (size_t)(h->end - p));
	/* Without an LF there is at least one more byte to come. */
	size_t total = (size_t)((lf ? lf : h->end) - h->fields_at) + 1;
	if (total > h->limits->headers_bytes_max)
		return refuse(h, 431, "the header fields are too long");
	if (!lf)
		return HTTP_PARSE_MORE;
	if (lf == p || lf[-1] != '\r')
		return refuse(h, 400, "a line must end in CR LF");
	if (*p == ' ' || *p == '\t')
		return refuse(h, 400, "a field must not be folded over several lines");
	const char *cr = lf - 1;
	const char *stop = scan_token(p, cr);
	if (stop < cr && (*stop == ' ' || *stop == '\t'))
		return refuse(h, 400, "white space before the colon of a field is not allowed");
	if (stop == p || stop == cr || *stop != ':')
		return refuse(h, 400, "a field line must be a name, a colon and a value");
	return refuse(h, 400, "a field value has a control character");
}

/* The line that ends the head, or one that wrongly begins with CR. */
static int take_empty_line(struct head *h)
{
	if (h->end - h->at < 2)
		return HTTP_PARSE_MORE;
	if (h->at[1] != '\n')
		return refuse(h, 400, "CR must be followed by LF");
	h->at += 2;
	return HEAD_ENDED;
}

static inline int take_field_line(struct head *h)
{
	struct http_request *req = h->req;
	const char *line = h->at;
	const char *end = h->end;
	if (line == end)
		return HTTP_PARSE_MORE;
	if (*line == '\r')
		return take_empty_line(h);
	if (UNLIKELY(req->field_count == h->fields_max))
		return refuse(h, 431, "there are too many header fields");

	/* Both scans begin at the line's first byte, so that the CPU can run them side by side. */
	const char *stop = scan_value(line, end);
	const char *colon = scan_token(line, end); /* not beyond `stop`: no control is a token */
	if (UNLIKELY(end - stop < 2 || stop[0] != '\r' || stop[1] != '\n'))
		return judge_field_line(h);
	if (UNLIKELY(colon == line || *colon != ':'))
		return judge_field_line(h);
	if (UNLIKELY((size_t)(stop + 2 - h->fields_at) > h->limits->headers_bytes_max))
		return judge_field_line(h);
	h->at = stop + 2;
	const char *value = colon + 1;
	while (value < stop && (*value == ' ' || *value == '\t'))
		value++;
	while (stop > value && (stop[-1] == ' ' || stop[-1] == '\t'))
		stop--;

	struct http_field *field = &req->fields[req->field_count++];
	field->name = str_n(line, (size_t)(colon - line));
	field->value = str_n(value, (size_t)(stop - value));
	return take_meaning(h, field->name, field->value);
}

/* ---- the head ---- */

static int skip_empty_lines(struct head *h)
{
	for (int count = 0; h->at < h->end && *h->at == '\r'; count++) {
		if (count == EMPTY_LINES_MAX)
			return refuse(h, 400, "there are too many empty lines before the request");
		int verdict = take_empty_line(h);
		if (verdict != HEAD_ENDED)
			return verdict;
	}
	return LINE_TAKEN;
}

static int take_head(struct head *h)
{
	struct http_request *req = h->req;
	int verdict = skip_empty_lines(h);
	if (verdict == LINE_TAKEN)
		verdict = take_request_line(h);
	h->fields_at = h->at;
	while (verdict == LINE_TAKEN)
		verdict = take_field_line(h);
	if (verdict != HEAD_ENDED)
		return verdict;
	if (!h->has_host && req->minor_version > 0)
		return refuse(h, 400, "the Host field is missing");
	req->keep_alive = !h->says_close && (req->minor_version > 0 || h->says_keep_alive);
	req->has_body = req->chunked || req->content_length > 0;
	return HEAD_ENDED;
}

int http_parse_head(const char *data, size_t len, const struct http_limits *limits, struct http_request *req,
                    const char **ret_reason)
{
	if (len == 0)
		return HTTP_PARSE_MORE;
	struct head h = {
	    .at = data,
	    .end = data + len,
	    .limits = limits,
	    .req = req,
	    .fields_max = MIN(limits->headers_max, HTTP_FIELDS_MAX),
	};
	req->expect_continue = false;
	req->chunked = false;
	req->content_length = 0;
	req->host = STR_NULL;
	req->body_stays = req->is_copy = false;
	req->field_count = 0;

	int verdict = take_head(&h);
	if (verdict < 0)
		*ret_reason = h.reason;
	if (verdict != HEAD_ENDED)
		return verdict;
	ASSERT(h.at - data <= INT_MAX);
	return (int)(h.at - data);
}
