/* UTF-8 by RFC 3629: nothing overlong, no surrogates, nothing beyond U+10FFFF. */
#pragma once

#include "base/str.h"

/* The length of the character that begins `s` (which is not empty), 0 when it is malformed. */
size_t utf8_first(struct str s);

/* At most `bytes_max` of it, and no part of a character at the end. */
struct str utf8_prefix(struct str s, size_t bytes_max);

/* Well-formed, and without control characters. */
bool utf8_is_printable(struct str s);
