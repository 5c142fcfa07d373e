#include "link/ids.h"

void ids_init(struct ids *ids, struct registry *registry, uint64_t block, uint64_t count_max)
{
	*ids = (struct ids){.registry = registry, .block = block, .count_max = count_max};
	pthread_mutex_init(&ids->lock, NULL);
}

void ids_release(struct ids *ids)
{
	pthread_mutex_destroy(&ids->lock);
}

static int refill_locked(struct ids *ids)
{
	uint64_t first;
	int r = registry_lease(ids->registry, STORE_LINK_COUNTER, ids->block, &first);
	if (r != 0)
		return r;
	ids->next = first;
	ids->end = first + ids->block;
	return 0;
}

int ids_next(struct ids *ids, uint64_t *ret)
{
	int r = 0;
	pthread_mutex_lock(&ids->lock);
	if (ids->next == ids->end)
		r = refill_locked(ids);
	if (r == 0 && ids->next >= ids->count_max)
		r = ERR_LIMIT;
	if (r == 0)
		*ret = ids->next++;
	pthread_mutex_unlock(&ids->lock);
	return r;
}
