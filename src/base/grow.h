/* Arrays that grow. */
#pragma once

#include "base/def.h"

#include <stdlib.h>

enum { ARRAY_ITEMS_MIN = 64 };

/* The array with room for `need` items, at least 1; `*cap` is its room. NULL when memory ran out: then the
 * old array stays valid. */
static inline void *array_grown(void *items, size_t *cap, size_t need, size_t item_bytes)
{
	if (LIKELY(need <= *cap))
		return items;
	size_t more = MAX(MAX(*cap * 2, need), (size_t)ARRAY_ITEMS_MIN);
	void *larger = reallocarray(items, more, item_bytes);
	if (larger)
		*cap = more;
	return larger;
}

/* False when memory ran out. */
#define ARRAY_ROOM(items, cap, need)                                                  \
	({                                                                            \
		__typeof__(items) grown_ = array_grown((items), &(cap), (need),       \
		                                       sizeof(__typeof__(*(items)))); \
		if (grown_)                                                           \
			(items) = grown_;                                             \
		grown_ != NULL;                                                       \
	})
