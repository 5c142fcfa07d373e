/*
 * Scans of the head's bytes, 16 at a time where the CPU has SSE2. Each returns the first byte that is not of
 * its kind, or `end`.
 */
#pragma once

#include "http/chars.h"

#if defined(__SSE2__)
#include <emmintrin.h>

enum { STEP_BYTES = sizeof(__m128i) };

static inline __m128i step_load(const char *p)
{
	return _mm_loadu_si128((const __m128i *)p);
}

static inline __m128i step_is(__m128i v, char c)
{
	return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}

/* Unsigned: first <= byte <= first + span. */
static inline __m128i step_in(__m128i v, char first, char span)
{
	__m128i from_first = _mm_sub_epi8(v, _mm_set1_epi8(first));
	return _mm_cmpeq_epi8(_mm_min_epu8(from_first, _mm_set1_epi8(span)), from_first);
}

/* One bit for each byte that is a letter, a digit or '-': nearly all of what stands in names. */
static inline unsigned step_common_token(__m128i v)
{
	__m128i letter = step_in(_mm_or_si128(v, _mm_set1_epi8(0x20)), 'a', 25);
	__m128i digit = step_in(v, '0', 9);
	return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(letter, digit), step_is(v, '-')));
}

static inline unsigned step_not_target(__m128i v)
{
	__m128i printable = step_in(v, 0x21, 0x7e - 0x21);
	return (unsigned)_mm_movemask_epi8(
	    _mm_or_si128(_mm_xor_si128(printable, _mm_set1_epi8(-1)), step_is(v, '#')));
}

static inline unsigned step_not_value(__m128i v)
{
	__m128i control = _mm_andnot_si128(step_is(v, '\t'), step_in(v, 0, 0x1f));
	return (unsigned)_mm_movemask_epi8(_mm_or_si128(control, step_is(v, 0x7f)));
}

#endif

static inline const char *scan_table(const char *p, const char *end, unsigned kind)
{
	while (p < end && http_char_is(*p, kind))
		p++;
	return p;
}

static inline const char *scan_token(const char *p, const char *end)
{
#if defined(__SSE2__)
	while (end - p >= STEP_BYTES) {
		unsigned common = step_common_token(step_load(p));
		if (common != 0xffff) {
			p += __builtin_ctz(~common);
			break;
		}
		p += STEP_BYTES;
	}
#endif
	return scan_table(p, end, HTTP_CHAR_TOKEN);
}

static inline const char *scan_target(const char *p, const char *end)
{
#if defined(__SSE2__)
	for (; end - p >= STEP_BYTES; p += STEP_BYTES) {
		unsigned stop = step_not_target(step_load(p));
		if (stop)
			return p + __builtin_ctz(stop);
	}
#endif
	return scan_table(p, end, HTTP_CHAR_TARGET);
}

static inline const char *scan_value(const char *p, const char *end)
{
#if defined(__SSE2__)
	for (; end - p >= STEP_BYTES; p += STEP_BYTES) {
		unsigned stop = step_not_value(step_load(p));
		if (stop)
			return p + __builtin_ctz(stop);
	}
#endif
	return scan_table(p, end, HTTP_CHAR_VALUE);
}
