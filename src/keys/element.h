/* A key as it is written in lists and arrays: its text, and a mark behind it when it was another link's once.
 */
#pragma once

#include "base/arena.h"
#include "link/source.h"

enum { ELEMENT_BYTES_MAX = KEY_LENGTH_MAX + 1 };

/* In `out`; how long it is. */
size_t element_write(const struct source_key *key, char out[ELEMENT_BYTES_MAX]);

/* False: it is not one. */
bool element_read(struct str text, struct source_key *ret);

/* Writes all of them: views of their texts in ret, which with the texts is in `arena`. NULL: out of memory.
 */
struct str *elements_write(const struct source_key *keys, size_t n, struct arena *arena);
