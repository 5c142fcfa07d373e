/*
 * Memory with one release. Everything that belongs to a request is taken from its arena and goes with it;
 * nothing is freed on its own. Zero-initialised is ready.
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

/* A NUL-terminated copy. STR_NULL gives STR_NULL; so does a lack of memory. */
struct str arena_str(struct arena *a, struct str s);
struct str arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

void arena_release(struct arena *a);
