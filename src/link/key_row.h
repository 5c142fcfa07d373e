/* Keys in a row of fixed length, first in first out: what sources keep. */
#pragma once

#include "link/source.h"

struct key_row {
	struct source_key *keys; /* the owner's, of `room` */
	size_t room, count, first;
};

/* As many as there is room for, or as there are; how many. */
size_t key_row_put(struct key_row *row, const struct source_key *keys, size_t n);
size_t key_row_take(struct key_row *row, struct source_key *ret, size_t n);
