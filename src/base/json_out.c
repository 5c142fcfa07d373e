#include "base/json_out.h"

#include "base/rfc3339.h"

/* The length of the UTF-8 sequence at the front of `p`, 0 when there is none. */
static size_t utf8_len(const unsigned char *p, size_t left)
{
	unsigned char c = p[0];
	size_t len = c < 0x80                ? 1
	             : c >= 0xc2 && c < 0xe0 ? 2
	             : c >= 0xe0 && c < 0xf0 ? 3
	             : c >= 0xf0 && c < 0xf5 ? 4
	                                     : 0;
	if (len == 0 || len > left)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	bool overlong = (c == 0xe0 && p[1] < 0xa0) || (c == 0xf0 && p[1] < 0x90);
	bool surrogate = c == 0xed && p[1] > 0x9f;
	bool beyond = c == 0xf4 && p[1] > 0x8f;
	return overlong || surrogate || beyond ? 0 : len;
}

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
		size_t len = utf8_len(p, left);
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

void json_out_time(struct buf *b, int64_t ms)
{
	char text[RFC3339_BYTES];
	if (ms == 0)
		buf_str(b, STR("null"));
	else
		json_out_str(b, rfc3339_format(ms, text));
}
