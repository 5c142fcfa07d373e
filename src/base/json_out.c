#include "base/json_out.h"

#include "base/rfc3339.h"
#include "base/utf8.h"

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void escape(struct buf *b, unsigned char c)
{
	switch (c) {
	case '"': buf_str(b, STR("\\\"")); return;
	case '\\': buf_str(b, STR("\\\\")); return;
	case '\n': buf_str(b, STR("\\n")); return;
	case '\r': buf_str(b, STR("\\r")); return;
	case '\t': buf_str(b, STR("\\t")); return;
	default: buf_printf(b, "\\u%04x", c); return;
	}
}

void json_out_str(struct buf *b, struct str s)
{
	const unsigned char *p = (const unsigned char *)s.ptr;
	size_t left = s.len;
	buf_char(b, '"');
	while (left > 0) {
		size_t run = 0;
		while (run < left && is_plain(p[run]))
			run++;
		buf_append(b, p, run);
		p += run;
		left -= run;
		if (left == 0)
			break;
		size_t len = utf8_first(str_n((const char *)p, left));
		if (len == 0) {
			buf_str(b, STR("\xef\xbf\xbd"));
			len = 1;
		} else if (len == 1) {
			escape(b, p[0]);
		} else {
			buf_append(b, p, len);
		}
		p += len;
		left -= len;
	}
	buf_char(b, '"');
}

void json_out_str_or_null(struct buf *b, struct str s)
{
	if (s.ptr)
		json_out_str(b, s);
	else
		buf_str(b, STR("null"));
}

void json_out_u64(struct buf *b, uint64_t v)
{
	char digits[20], *at = digits + sizeof(digits);
	do
		*--at = (char)('0' + v % 10);
	while ((v /= 10) > 0);
	buf_append(b, at, (size_t)(digits + sizeof(digits) - at));
}

void json_out_time(struct buf *b, int64_t ms)
{
	char text[RFC3339_BYTES];
	if (ms == 0)
		buf_str(b, STR("null"));
	else
		json_out_str(b, rfc3339_format(ms, text));
}

void json_out_next(struct buf *b)
{
	if (b->len > 0 && b->data[b->len - 1] != '{' && b->data[b->len - 1] != '[')
		buf_char(b, ',');
}

void json_out_name(struct buf *b, const char *name)
{
	json_out_next(b);
	buf_printf(b, "\"%s\":", name);
}

void json_out_begin(struct buf *b, const char *name_or_null, char bracket)
{
	if (name_or_null)
		json_out_name(b, name_or_null);
	else
		json_out_next(b);
	buf_char(b, bracket);
}

void json_out_name_u64(struct buf *b, const char *name, uint64_t v)
{
	json_out_name(b, name);
	json_out_u64(b, v);
}

void json_out_name_str(struct buf *b, const char *name, struct str s_or_null)
{
	json_out_name(b, name);
	json_out_str_or_null(b, s_or_null);
}

void json_out_name_time(struct buf *b, const char *name, int64_t ms)
{
	json_out_name(b, name);
	json_out_time(b, ms);
}
