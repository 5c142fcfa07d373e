#include "base/utf8.h"

#include <stdio.h>

size_t utf8_first(struct str s)
{
	const unsigned char *p = (const unsigned char *)s.ptr;
	unsigned char low = 0x80, high = 0xbf; /* of the second byte */
	size_t len;
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		len = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		len = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (p[0] == 0xe0)
		low = 0xa0; /* else too long for its value */
	else if (p[0] == 0xed)
		high = 0x9f; /* else a surrogate */
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f; /* else beyond U+10FFFF */
	if (s.len < len || p[1] < low || p[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++) {
		if (p[i] < 0x80 || p[i] > 0xbf)
			return 0;
	}
	return len;
}

bool utf8_is_printable(struct str s)
{
	while (s.len > 0) {
		size_t len = utf8_first(s);
		const unsigned char *c = (const unsigned char *)s.ptr;
		if (len == 0 || c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0))
			return false;
		s = str_n(s.ptr + len, s.len - len);
	}
	return true;
}

struct str utf8_prefix(struct str s, size_t bytes_max)
{
	size_t last = 1; /* the length of what may be a character */
	s.len = MIN(s.len, bytes_max);
	while (last < 4 && last < s.len && ((unsigned char)s.ptr[s.len - last] & 0xc0) == 0x80)
		last++;
	if (s.len > 0 && utf8_first(str_n(s.ptr + s.len - last, last)) != last)
		s.len -= last;
	return s;
}

const char *echo(struct echo *to, struct str s)
{
	size_t len = 0, step;
	for (; len < s.len && (step = utf8_first(str_n(s.ptr + len, s.len - len))) > 0; len += step) {
		if (len + step > ECHO_BYTES_MAX || (unsigned char)s.ptr[len] < 0x20 || s.ptr[len] == 0x7f)
			break;
	}
	memcpy(to->text, s.ptr, len);
	snprintf(to->text + len, sizeof(to->text) - len, "%s", s.len > len ? "..." : "");
	return to->text;
}
