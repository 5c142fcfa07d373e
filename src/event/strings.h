/*
 * The positions of texts in the current segment. Bounded: when it is full, it is emptied, and texts are
 * written again. Owned by the writer of the segment.
 */
#pragma once

#include "base/str.h"

enum { STRINGS_SLOTS = 4096, STRINGS_TEXT_BYTES = 256 * 1024 };

struct strings_slot {
	uint64_t hash;
	uint32_t position; /* 0: empty */
	uint32_t text_at;
	uint32_t text_len;
};

struct strings {
	uint64_t seed;
	size_t count;
	size_t text_len;
	struct strings_slot slots[STRINGS_SLOTS];
	char text[STRINGS_TEXT_BYTES];
};

void strings_clear(struct strings *s);

/* The position of the text; 0: unknown. */
uint32_t strings_find(const struct strings *s, struct str text, uint64_t hash);
void strings_add(struct strings *s, struct str text, uint64_t hash, uint32_t position);
