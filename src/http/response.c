/*
 * A head is written in two passes over the same pieces: the first checks every byte and adds up the length,
 * the second copies into room that was reserved at once. So a refused or failed response leaves no trace.
 *
 * Only this file writes the fields that frame a message, and refuses them from callers: otherwise a response
 * could have two lengths.
 */
#include "http/response.h"

#include "http/chars.h"

#include <stdio.h>

#define LINE_CLOSE   "Connection: close\r\n"
#define LINE_KEEP_10 "Connection: keep-alive\r\n"

_Static_assert(sizeof(LINE_CLOSE) - 1 <= HTTP_READY_EXTRA, "room for the Connection field");
_Static_assert(sizeof(LINE_KEEP_10) - 1 <= HTTP_READY_EXTRA, "room for the Connection field");

struct plan {
	struct str status_line;
	struct str length_line; /* empty when the status has no body, or the response streams */
	struct str connection_line;
	struct str body;
	char status_text[64];
	char length_text[48];
};

/* Only the statuses that this server sends. */
const char *http_status_text(int status)
{
	switch (status) {
	case 200: return "OK";
	case 201: return "Created";
	case 204: return "No Content";
	case 301: return "Moved Permanently";
	case 302: return "Found";
	case 303: return "See Other";
	case 307: return "Temporary Redirect";
	case 308: return "Permanent Redirect";
	case 400: return "Bad Request";
	case 401: return "Unauthorized";
	case 403: return "Forbidden";
	case 404: return "Not Found";
	case 405: return "Method Not Allowed";
	case 408: return "Request Timeout";
	case 409: return "Conflict";
	case 413: return "Content Too Large";
	case 414: return "URI Too Long";
	case 417: return "Expectation Failed";
	case 421: return "Misdirected Request";
	case 422: return "Unprocessable Content";
	case 429: return "Too Many Requests";
	case 431: return "Request Header Fields Too Large";
	case 500: return "Internal Server Error";
	case 501: return "Not Implemented";
	case 503: return "Service Unavailable";
	case 505: return "HTTP Version Not Supported";
	default: return "Unknown";
	}
}

static bool frames_message(struct str name)
{
	return str_eq_nocase(name, STR("content-length")) || str_eq_nocase(name, STR("transfer-encoding")) ||
	       str_eq_nocase(name, STR("connection")) || str_eq_nocase(name, STR("date"));
}

static bool field_valid(const struct http_field *f)
{
	return f->name.len > 0 && http_chars_are(f->name, HTTP_CHAR_TOKEN) &&
	       http_chars_are(f->value, HTTP_CHAR_VALUE) && !frames_message(f->name);
}

static struct str connection_line(unsigned flags)
{
	if (flags & HTTP_OUT_CLOSE)
		return STR(LINE_CLOSE);
	if (flags & HTTP_OUT_KEEP_10)
		return STR(LINE_KEEP_10);
	return STR("");
}

static bool response_valid(const struct http_response *r)
{
	if (r->status < 100 || r->status > 599 || !http_chars_are(r->content_type, HTTP_CHAR_VALUE))
		return false;
	for (size_t i = 0; i < r->field_count; i++) {
		if (!field_valid(&r->fields[i]))
			return false;
	}
	return true;
}

static void plan_make(struct plan *p, const struct http_response *r, unsigned flags)
{
	int len = snprintf(p->status_text, sizeof(p->status_text), "HTTP/1.1 %d %s\r\n", r->status,
	                   http_status_text(r->status));
	p->status_line = str_n(p->status_text, (size_t)len);
	p->length_line = STR("");
	p->body = STR("");
	if (r->status >= 200 && r->status != 204 && r->status != 304) {
		if (!(flags & HTTP_OUT_HEAD_ONLY))
			p->body = r->body;
		if (!(flags & HTTP_OUT_STREAMING)) {
			len = snprintf(p->length_text, sizeof(p->length_text), "Content-Length: %zu\r\n",
			               r->body.len);
			p->length_line = str_n(p->length_text, (size_t)len);
		}
	}
	p->connection_line = connection_line(flags);
}

static size_t plan_bytes(const struct plan *p, const struct http_response *r)
{
	size_t bytes = p->status_line.len + sizeof("Date: \r\n") - 1 + HTTP_DATE_BYTES + p->length_line.len +
	               p->connection_line.len + sizeof("\r\n") - 1 + p->body.len;
	for (size_t i = 0; i < r->field_count; i++)
		bytes += r->fields[i].name.len + r->fields[i].value.len + sizeof(": \r\n") - 1;
	if (r->content_type.ptr)
		bytes += r->content_type.len + sizeof("Content-Type: \r\n") - 1;
	return bytes;
}

static char *put(char *to, struct str s)
{
	if (s.len > 0)
		memcpy(to, s.ptr, s.len);
	return to + s.len;
}

static char *put_field(char *to, struct str name, struct str value)
{
	to = put(put(to, name), STR(": "));
	return put(put(to, value), STR("\r\n"));
}

int http_response_write(struct buf *out, const struct http_response *r, unsigned flags,
                        const char date[HTTP_DATE_BYTES])
{
	if (out->failed)
		return ERR_NOMEM;
	if (!response_valid(r))
		return ERR_INVALID;
	struct plan p;
	plan_make(&p, r, flags);
	size_t bytes = plan_bytes(&p, r);
	char *start = buf_reserve(out, bytes);
	if (!start) {
		out->failed = false; /* nothing was cut short: the buffer is as it was */
		return ERR_NOMEM;
	}
	char *to = put(start, p.status_line);
	to = put_field(to, STR("Date"), str_n(date, HTTP_DATE_BYTES));
	for (size_t i = 0; i < r->field_count; i++)
		to = put_field(to, r->fields[i].name, r->fields[i].value);
	if (r->content_type.ptr)
		to = put_field(to, STR("Content-Type"), r->content_type);
	to = put(to, p.length_line);
	to = put(to, p.connection_line);
	to = put(put(to, STR("\r\n")), p.body);
	ASSERT((size_t)(to - start) == bytes);
	out->len += bytes;
	return 0;
}

int http_ready_make(struct buf *out, const struct http_response *r, struct http_ready *ret)
{
	static const char no_date[HTTP_DATE_BYTES] = "                             ";
	if (r->body.len > 0)
		return ERR_INVALID;
	size_t start = out->len;
	int rc = http_response_write(out, r, 0, no_date);
	if (rc < 0)
		return rc;
	size_t len = out->len - start;
	const char *lf = memchr(out->data + start, '\n', len); /* of the status line; the date is next */
	size_t date_at = (size_t)(lf + 1 - (out->data + start)) + sizeof("Date: ") - 1;
	ASSERT(len <= UINT32_MAX && date_at <= UINT16_MAX);
	*ret = (struct http_ready){.len = (uint32_t)len, .date_at = (uint16_t)date_at};
	return 0;
}

size_t http_ready_write(char *to, const char *bytes, const struct http_ready *ready, unsigned flags,
                        const char date[HTTP_DATE_BYTES])
{
	size_t len = ready->len;
	memcpy(to, bytes, len);
	memcpy(to + ready->date_at, date, HTTP_DATE_BYTES);
	struct str line = connection_line(flags);
	if (UNLIKELY(line.len > 0)) {
		char *end = put(to + len - 2, line); /* over the empty line, which follows again */
		put(end, STR("\r\n"));
		len += line.len;
	}
	return len;
}
