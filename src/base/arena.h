/*
 * Memory with one release. Everything that belongs to a request is taken from its arena and goes
 * with it; nothing is freed singly. Zero-initialised is ready; the first allocation brings the first chunk.
 */
#pragma once

#include "base/str.h"

struct arena_chunk;

struct arena {
	struct arena_chunk *first;
	struct arena_chunk *current;
};

/* 16-byte aligned, not cleared; NULL when memory ran out. */
void *arena_alloc(struct arena *a, size_t bytes) MUST_CHECK;
void *arena_zalloc(struct arena *a, size_t bytes) MUST_CHECK;

/* A NUL-terminated copy. STR_NULL gives STR_NULL; when memory ran out, `ptr` is NULL as well. */
struct str arena_str(struct arena *a, struct str s);
struct str arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

void arena_release(struct arena *a);
