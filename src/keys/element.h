/* A key as stored in lists and arrays: its text, with a mark appended if it was another link's key. */
#pragma once

#include "base/arena.h"
#include "link/key_source.h"

enum { ELEMENT_BYTES_MAX = KEY_LENGTH_MAX + 1 };

/* Writes to `out`; returns the length. */
size_t element_write(const struct source_key *key, char out[ELEMENT_BYTES_MAX]);

/* False: not a valid element. */
bool element_read(struct str text, struct source_key *ret);

/* Writes all keys; the result and the texts are in `arena`. NULL: out of memory. */
struct str *elements_write(const struct source_key *keys, size_t n, struct arena *arena);
