/* A stable radix sort by two numbers, in linear time. It skips bytes in which all items agree. */
#pragma once

#include "base/def.h"

struct sort_item {
	uint64_t major, minor;
	uint32_t index; /* the caller's */
};

/* Sorts `items`; `room` is scratch space for as many items. */
void sort_items(struct sort_item *items, struct sort_item *room, size_t count);
