/* Parts that were away when the ring was opened are opened as soon as they can be. */
#include "store/ring_core.h"

/* True when all are there. */
bool ring_late_open(struct store_ring *s)
{
	bool all = true;
	for (size_t i = 0; i < s->part_count; i++) {
		const struct store_ring_part *config = &s->parts[i].config;
		struct store *store = NULL;
		if (ring_store(s, i))
			continue;
		if (config->open(config->ctx, &store, NULL) == 0)
			atomic_store_explicit(&s->parts[i].store, store, memory_order_release);
		all &= store != NULL;
	}
	return all;
}
