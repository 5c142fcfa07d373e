/*
 * Who is in a ring: what its parts keep as the ring's description (part.h), as JSON:
 *
 *	{"home":"NAME","members":[{"name":"NAME","address":"HOST:PORT/DATABASE"},...],"target":[...]}
 *
 * A name is the part's own, random, and stays with its data; an address is how people know it. `target` is
 * there while keys move: who will be in the ring afterwards.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum { RING_PARTS_MAX = 32 };

struct plan_part {
	struct str name;
	struct str address;
};

struct plan_parts {
	struct plan_part *at;
	size_t count;
};

struct ring_plan {
	uint64_t epoch; /* not in the text */
	struct str home;
	struct plan_parts members;
	struct plan_parts target; /* none: nothing moves */
};

/* Strings and arrays go to the arena. ERR_CORRUPT when this is no such text, or ERR_NOMEM. */
int ring_plan_read(struct str text, uint64_t epoch, struct arena *arena, struct ring_plan *ret);

/* STR_NULL when memory ran out. */
struct str ring_plan_write(const struct ring_plan *plan, struct arena *arena);

/* Where it stands; parts->count when it does not. */
size_t plan_parts_find(const struct plan_parts *parts, struct str name);

/* Are they the same, in whatever order? */
bool plan_parts_equal(const struct plan_parts *a, const struct plan_parts *b);
