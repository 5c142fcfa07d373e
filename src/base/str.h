/* A borrowed run of bytes. Never owns, need not end in NUL; an absent string is {NULL, 0}. */
#pragma once

#include "base/def.h"

#include <string.h>

struct str {
	const char *ptr;
	size_t len;
};

#define STR(lit)   ((struct str){"" lit, sizeof(lit) - 1})
#define STR_NULL   ((struct str){NULL, 0})
#define STR_ARG(s) (int)(s).len, (s).ptr /* for "%.*s" */

static inline struct str str_of(const char *cstr)
{
	return cstr ? (struct str){cstr, strlen(cstr)} : STR_NULL;
}

static inline struct str str_n(const char *ptr, size_t len)
{
	return (struct str){ptr, len};
}

static inline bool str_eq(struct str a, struct str b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline char ascii_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* The same in lower case, in `out`, which may be the string itself. */
static inline struct str str_lower(struct str s, char *out)
{
	for (size_t i = 0; i < s.len; i++)
		out[i] = ascii_lower(s.ptr[i]);
	return (struct str){out, s.len};
}

/* The value of a hex digit, -1 for another byte. */
static inline int ascii_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = ascii_lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Takes one byte from the front, with %XX decoded. -1: a malformed escape, and nothing is taken. `s` is not
 * empty. */
int str_take_decoded(struct str *s);

/* Decodes %XX (and nothing else) into `out`, which has room for s.len bytes. False on a malformed escape or
 * an encoded NUL. */
bool str_percent_decode(struct str s, char *out, size_t *ret_len);

/* By bytes, a prefix before the longer string: <0, 0 or >0. */
int str_order(struct str a, struct str b);

bool str_eq_nocase(struct str a, struct str b); /* ASCII only */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
struct str str_trim(struct str s); /* spaces and tabs at both ends */

/* Cuts `*s` at the first `sep`: returns what is before it and leaves what is after. Without a
 * separator it returns all of `*s` and leaves STR_NULL, so a loop ends on `s.ptr == NULL`. */
struct str str_cut(struct str *s, char sep);

/* Cuts off the first of several URLs, trimmed, likewise. A comma separates URLs only when a scheme follows:
 * hosts within one may be separated by commas too ("redis://a:1,b:2/x, redis://c"). */
struct str str_cut_url(struct str *s);

/* Plain decimal digits only, no sign, no space. False on anything else and on overflow. */
bool str_u64(struct str s, uint64_t *ret);
