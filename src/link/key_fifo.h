/* A first-in first-out queue of keys, with a fixed capacity. The owner does the locking. */
#pragma once

#include "link/key_source.h"

struct key_fifo {
	struct source_key *keys; /* owned by the caller, `room` long */
	size_t room, count, first;
};

/* Adds as many keys as there is room for; returns how many. */
static inline size_t key_fifo_put(struct key_fifo *f, const struct source_key *keys, size_t n)
{
	size_t count = MIN(n, f->room - f->count);
	for (size_t i = 0; i < count; i++)
		f->keys[(f->first + f->count++) % f->room] = keys[i];
	return count;
}

/* Takes up to n keys; returns how many. */
static inline size_t key_fifo_take(struct key_fifo *f, struct source_key *ret, size_t n)
{
	size_t count = MIN(n, f->count);
	for (size_t i = 0; i < count; i++) {
		ret[i] = f->keys[f->first];
		f->first = (f->first + 1) % f->room;
	}
	f->count -= count;
	return count;
}
