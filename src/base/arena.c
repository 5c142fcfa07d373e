#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 4096, ALIGN_BYTES = 16 };

struct arena_chunk {
	struct arena_chunk *next;
	size_t used;
	size_t cap;
	_Alignas(ALIGN_BYTES) char data[];
};

static struct arena_chunk *chunk_new(size_t need)
{
	size_t cap = MAX(need, CHUNK_BYTES - sizeof(struct arena_chunk));
	struct arena_chunk *c = malloc(sizeof(*c) + cap);
	if (!c)
		return NULL;
	c->next = NULL;
	c->used = 0;
	c->cap = cap;
	return c;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
	if (bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + ALIGN_BYTES - 1) & ~(size_t)(ALIGN_BYTES - 1);
	struct arena_chunk *c = a->current;
	if (UNLIKELY(!c || c->cap - c->used < bytes)) {
		c = chunk_new(bytes);
		if (!c)
			return NULL;
		if (a->current)
			a->current->next = c;
		else
			a->first = c;
		a->current = c;
	}
	void *p = c->data + c->used;
	c->used += bytes;
	return p;
}

void *arena_zalloc(struct arena *a, size_t bytes)
{
	void *p = arena_alloc(a, bytes);
	if (p)
		memset(p, 0, bytes);
	return p;
}

struct str arena_str(struct arena *a, struct str s)
{
	if (!s.ptr)
		return STR_NULL;
	char *copy = arena_alloc(a, s.len + 1);
	if (!copy)
		return STR_NULL;
	memcpy(copy, s.ptr, s.len);
	copy[s.len] = '\0';
	return str_n(copy, s.len);
}

struct str arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	va_list again;
	va_copy(again, ap);
	int len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	ASSERT(len >= 0);
	char *text = arena_alloc(a, (size_t)len + 1);
	if (text)
		vsnprintf(text, (size_t)len + 1, fmt, ap);
	va_end(ap);
	return text ? str_n(text, (size_t)len) : STR_NULL;
}

void arena_release(struct arena *a)
{
	for (struct arena_chunk *c = a->first, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	*a = (struct arena){0};
}
