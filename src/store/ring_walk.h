/* Walking through the keys of a ring's parts, to move those that must. For ring_reshard.c. */
#pragma once

#include "store/reshard.h"
#include "store/ring_core.h"

/* Who shall be in the ring. */
struct wanted {
	struct plan_part parts[RING_PARTS_MAX];
	size_t numbers[RING_PARTS_MAX];
	struct plan_parts list;
	struct ring *circle;
};

struct walk {
	struct store_ring *s;
	const struct ring_view *view;
	const struct wanted *wanted;
	struct reshard *r;
	struct err *e;
	bool tidies; /* removes strays, and moves nothing */
	unsigned number;
	uint64_t looked_at;
	uint64_t found[RING_PARTS_MAX][RING_PARTS_MAX]; /* that must move, from and to */
};

/* Moves all that must, until a walk finds nothing. */
int walk_move(struct walk *w);

/* Removes keys that lie in parts that are not theirs, while nothing moves: such a part was restored from a
 * backup of a time when they were, and what the right part says holds. */
int walk_tidy(struct walk *w);

/* A part that is away, or cannot take a new ring, is often there again soon. */
struct patience {
	int64_t since_ms; /* 0: nothing was wrong yet */
};

/* Pauses, and is true when it shall be tried again: the error is of that kind, and there is time left.
 * *result may become that of who stopped it meanwhile. */
bool walk_waits(struct walk *w, struct patience *p, size_t part, int *result);
