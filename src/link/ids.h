/*
 * Ids for new links, taken from the store's counter in blocks: one durable lease serves many links. A block
 * that was not used up when the process ends is lost, never given out again.
 */
#pragma once

#include "store/store.h"

#include <pthread.h>

struct ids {
	struct registry *registry;
	uint64_t block;
	uint64_t count_max; /* ids stay below this */
	pthread_mutex_t lock;
	uint64_t next;
	uint64_t end;
};

void ids_init(struct ids *ids, struct registry *registry, uint64_t block, uint64_t count_max);
void ids_release(struct ids *ids);

/* Pool threads. ERR_LIMIT when the key space is used up; else as registry_lease. */
int ids_next(struct ids *ids, uint64_t *ret);
