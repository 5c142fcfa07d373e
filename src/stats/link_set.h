/* A set of links with a number of clicks each, in the order of insertion. Zero-initialised it is empty. */
#pragma once

#include "counters/counters.h"

struct link_set {
	struct counter *all;
	size_t count, cap;
	uint32_t *slots; /* 1 + index; twice as many as cap */
	uint64_t seed;
};

/* Adds clicks to a link, inserting it if needed. ERR_NOMEM: nothing happened. */
int link_set_add(struct link_set *s, uint64_t link, uint64_t clicks);

/* Both empty it; `release` frees its memory. */
void link_set_reset(struct link_set *s);
void link_set_release(struct link_set *s);
