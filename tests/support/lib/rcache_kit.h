/* A shared cache and what its listener has heard, for tests. */
#pragma once

#include "rcache/backends.h"

#include <pthread.h>

enum { RCACHE_KIT_LAST = 8 };

struct rcache_kit {
	struct rcache *cache;
	pthread_mutex_t lock;
	pthread_cond_t heard;
	char last_changed[RCACHE_KIT_LAST][64];
	char last_told[64];
	unsigned changed, told, lost;
};

/* Opens it and, if `listening`, waits until it hears every node. */
void rcache_kit_open(struct rcache_kit *k, const char *urls, bool listening);
void rcache_kit_close(struct rcache_kit *k);

/* Wait until it has heard of so many in all, and of this one lately; the test fails when that never happens.
 * `lately` may be NULL. */
void rcache_kit_wait_changed(struct rcache_kit *k, unsigned count, const char *lately);
void rcache_kit_wait_news(struct rcache_kit *k, unsigned count); /* changes and losses together */
void rcache_kit_wait_told(struct rcache_kit *k, const char *topic);
void rcache_kit_wait_lost(struct rcache_kit *k, unsigned count);
void rcache_kit_wait_listening(struct rcache_kit *k, bool listening);
unsigned rcache_kit_lost(struct rcache_kit *k);
unsigned rcache_kit_changed(struct rcache_kit *k);

/* One key. The value is compared when `value` is not NULL. */
enum rcache_state rcache_kit_get(struct rcache_kit *k, const char *key, const char *value);
void rcache_kit_wait_state(struct rcache_kit *k, const char *key, enum rcache_state state);
void rcache_kit_fill(struct rcache_kit *k, const char *key, const char *value, uint64_t life_ms);
void rcache_kit_change(struct rcache_kit *k, const char *key);

/* The keys "k0" to "kN", each with its own text as the value. */
void rcache_kit_fill_many(struct rcache_kit *k, unsigned n);
unsigned rcache_kit_hits_of_many(struct rcache_kit *k, unsigned n);
