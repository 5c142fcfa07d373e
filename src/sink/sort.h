/* A stable sort by two numbers, in time that grows with the count alone: byte by byte, and only by those
 * bytes that differ anywhere. */
#pragma once

#include "base/def.h"

struct sort_item {
	uint64_t major, minor;
	uint32_t index; /* the caller's */
};

/* `room` is for as many again; the result is in `items`. */
void sort_items(struct sort_item *items, struct sort_item *room, size_t count);
