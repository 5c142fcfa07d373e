/* A set of links with a number of clicks for each, in the order in which they came. Zeroed is empty. */
#pragma once

#include "counters/counters.h"

struct link_set {
	struct counter *all;
	size_t count, cap;
	uint32_t *slots; /* 1 + index; twice as many as cap */
	uint64_t seed;
};

/* Adds clicks to the link's; one that is not there is put in. ERR_NOMEM: nothing happened. */
int link_set_add(struct link_set *s, uint64_t link, uint64_t clicks);

/* Empties it, keeping its memory; or giving it back. */
void link_set_reset(struct link_set *s);
void link_set_release(struct link_set *s);
