/* UTF-8 by RFC 3629: nothing overlong, no surrogates, nothing beyond U+10FFFF. */
#pragma once

#include "base/str.h"

/* The length of the character that begins `s` (which is not empty), 0 when it is malformed. */
size_t utf8_first(struct str s);

/* At most `bytes_max` of it, and no part of a character at the end. */
struct str utf8_prefix(struct str s, size_t bytes_max);

/* Well-formed, and without control characters. */
bool utf8_is_printable(struct str s);

/* What a message repeats of the input: ECHO_BYTES_MAX at most, up to the first control character, and no part
 * of a character at the end. */
enum { ECHO_BYTES_MAX = 40 };
struct echo {
	char text[ECHO_BYTES_MAX + sizeof("...")];
};
const char *echo(struct echo *to, struct str s);
