#include "sink/sort.h"

#include <string.h>

static uint64_t number(const struct sort_item *item, bool major)
{
	return major ? item->major : item->minor;
}

static void by_byte(const struct sort_item *from, struct sort_item *to, size_t count, bool major, int shift)
{
	size_t starts[256] = {0}, sum = 0;
	for (size_t i = 0; i < count; i++)
		starts[number(&from[i], major) >> shift & 0xff]++;
	for (size_t b = 0; b < 256; b++) {
		size_t here = starts[b];
		starts[b] = sum;
		sum += here;
	}
	for (size_t i = 0; i < count; i++)
		to[starts[number(&from[i], major) >> shift & 0xff]++] = from[i];
}

void sort_items(struct sort_item *items, struct sort_item *room, size_t count)
{
	struct sort_item *from = items, *to = room;
	for (int half = 0; half < 2; half++) {
		/* The bits in which not all agree. */
		uint64_t bits = 0;
		for (size_t i = 1; i < count; i++)
			bits |= number(&from[i], half) ^ number(&from[0], half);
		for (int shift = 0; shift < 64; shift += 8) {
			if (!(bits >> shift & 0xff))
				continue;
			by_byte(from, to, count, half, shift);
			struct sort_item *swap = from;
			from = to;
			to = swap;
		}
	}
	if (from != items)
		memcpy(items, from, count * sizeof(*items));
}
