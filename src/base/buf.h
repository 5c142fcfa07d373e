/*
 * A growable byte buffer. Failure is sticky: after memory ran out, `failed` stays true and appends do nothing,
 * so the writer checks once at the end. Zero-initialised is empty and ready.
 */
#pragma once

#include "base/str.h"

struct buf {
	char *data;
	size_t len;
	size_t cap;
	bool failed;
};

/* Room for `more` bytes behind `len`; NULL when memory ran out. The caller adds to `len` itself. */
char *buf_reserve(struct buf *b, size_t more);
void buf_append(struct buf *b, const void *data, size_t len);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_consume(struct buf *b, size_t len); /* drops `len` bytes from the front */
void buf_release(struct buf *b);             /* frees; the buffer is empty and ready again */

static inline void buf_str(struct buf *b, struct str s)
{
	buf_append(b, s.ptr, s.len);
}

static inline void buf_char(struct buf *b, char c)
{
	buf_append(b, &c, 1);
}

static inline struct str buf_view(const struct buf *b)
{
	return str_n(b->data, b->len);
}
