/* Ids of new links, leased from the registry's counter in blocks: one durable lease serves many links. The
 * rest of a block is lost when the process ends; it is never issued again. */
#pragma once

#include "store/store.h"

#include <pthread.h>

struct ids {
	struct registry *registry;
	uint64_t block;
	uint64_t count_max; /* upper bound, exclusive */
	pthread_mutex_t lock;
	uint64_t next;
	uint64_t end;
};

void ids_init(struct ids *ids, struct registry *registry, uint64_t block, uint64_t count_max);
void ids_release(struct ids *ids);

/* Pool threads. ERR_LIMIT: the key space is used up; otherwise as registry_lease. */
int ids_next(struct ids *ids, uint64_t *ret);
