/*
 * Consistent hashing: which of several members a key belongs to. Each member has many points on a circle,
 * chosen by its name alone. A key belongs to the member whose point comes next. A new member takes a fair
 * share from all others, and nothing else moves.
 *
 * Never change a constant: other processes, other versions and stored data rely on the placement.
 */
#pragma once

#include "base/str.h"

enum { RING_POINTS = 256 }; /* of each member: shares differ by some 6 % */

struct ring;

/* The order of the names does not matter; they differ from each other. NULL when memory ran out. */
struct ring *ring_new(const struct str *names, size_t n);
void ring_free(struct ring *r);

/* The number of the member in `names`; 0 when there is none. */
size_t ring_find(const struct ring *r, struct str key);
