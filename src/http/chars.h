/*
 * Which bytes are allowed where in HTTP heads, for readers and writers alike. Each byte has a bit for each
 * kind of place (RFC 9110, section 5.6; RFC 9112, section 3).
 */
#pragma once

#include "base/str.h"

enum {
	HTTP_CHAR_TOKEN = 1,  /* methods, field names */
	HTTP_CHAR_TARGET = 2, /* request targets: printable ASCII, but no space and no '#' */
	HTTP_CHAR_VALUE = 4,  /* field values: no controls but the tab; bytes from 0x80 on are opaque */
	HTTP_CHAR_HOST = 8,   /* names and IPv4 addresses */

	HTTP_CHAR_TEXT_ = HTTP_CHAR_TARGET | HTTP_CHAR_VALUE,
	HTTP_CHAR_WORD_ = HTTP_CHAR_TEXT_ | HTTP_CHAR_TOKEN,
	HTTP_CHAR_NAME_ = HTTP_CHAR_WORD_ | HTTP_CHAR_HOST,
};

static const uint8_t http_chars[256] = {
    ['\t'] = HTTP_CHAR_VALUE,
    [' '] = HTTP_CHAR_VALUE,
    ['!'] = HTTP_CHAR_WORD_,
    ['"'] = HTTP_CHAR_TEXT_,
    ['#'] = HTTP_CHAR_TOKEN | HTTP_CHAR_VALUE,
    ['$' ... '\''] = HTTP_CHAR_WORD_,
    ['(' ... ')'] = HTTP_CHAR_TEXT_,
    ['*' ... '+'] = HTTP_CHAR_WORD_,
    [','] = HTTP_CHAR_TEXT_,
    ['-' ... '.'] = HTTP_CHAR_NAME_,
    ['/'] = HTTP_CHAR_TEXT_,
    ['0' ... '9'] = HTTP_CHAR_NAME_,
    [':' ... '@'] = HTTP_CHAR_TEXT_,
    ['A' ... 'Z'] = HTTP_CHAR_NAME_,
    ['[' ... ']'] = HTTP_CHAR_TEXT_,
    ['^'] = HTTP_CHAR_WORD_,
    ['_'] = HTTP_CHAR_NAME_,
    ['`'] = HTTP_CHAR_WORD_,
    ['a' ... 'z'] = HTTP_CHAR_NAME_,
    ['{'] = HTTP_CHAR_TEXT_,
    ['|'] = HTTP_CHAR_WORD_,
    ['}'] = HTTP_CHAR_TEXT_,
    ['~'] = HTTP_CHAR_NAME_,
    [0x80 ... 0xff] = HTTP_CHAR_VALUE,
};

static inline bool http_char_is(char c, unsigned kind)
{
	return http_chars[(unsigned char)c] & kind;
}

/* Whether all of `s` is of that kind; an empty string is. */
static inline bool http_chars_are(struct str s, unsigned kind)
{
	for (size_t i = 0; i < s.len; i++) {
		if (!http_char_is(s.ptr[i], kind))
			return false;
	}
	return true;
}
