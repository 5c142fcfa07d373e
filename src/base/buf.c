#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

char *buf_reserve(struct buf *b, size_t more)
{
	if (b->failed)
		return NULL;
	if (b->cap - b->len >= more && b->data)
		return b->data + b->len;
	size_t need;
	if (__builtin_add_overflow(b->len, more, &need)) {
		b->failed = true;
		return NULL;
	}
	size_t cap = MAX(b->cap, 64);
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	char *data = realloc(b->data, cap);
	if (!data) {
		b->failed = true;
		return NULL;
	}
	b->data = data;
	b->cap = cap;
	return data + b->len;
}

void buf_append(struct buf *b, const void *data, size_t len)
{
	if (len == 0)
		return;
	char *to = buf_reserve(b, len);
	if (!to)
		return;
	memcpy(to, data, len);
	b->len += len;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	ASSERT(len >= 0);
	char *to = buf_reserve(b, (size_t)len + 1);
	if (to) {
		vsnprintf(to, (size_t)len + 1, fmt, ap);
		b->len += (size_t)len;
	}
	va_end(ap);
}

void buf_consume(struct buf *b, size_t len)
{
	ASSERT(len <= b->len);
	b->len -= len;
	if (b->len > 0)
		memmove(b->data, b->data + len, b->len);
}

void buf_release(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}
