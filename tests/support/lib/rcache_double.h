/*
 * A shared cache in this process's memory, as simple as the interface allows: for tests of those who use one.
 * Nothing in it ends by itself; marks stay until rcache_double_settle.
 */
#pragma once

#include "rcache/rcache.h"

struct rcache_double {
	struct rcache base;
	struct {
		char key[64];
		bool is_mark;
		struct str value; /* on the heap */
		uint64_t life_ms;
	} slots[64];
	size_t count;
	unsigned gets, fills, changes, tells;
	bool is_sick;                 /* everything is a miss, and nothing is kept */
	void (*on_change)(void *ctx); /* before a change is made; may be NULL */
	void (*on_get)(void *ctx);    /* after keys were looked for; may be NULL */
	void *ctx;
};

void rcache_double_init(struct rcache_double *d);
void rcache_double_release(struct rcache_double *d);

/* STR_NULL: there is nothing under the key, or a mark. */
struct str rcache_double_value(struct rcache_double *d, struct str key, uint64_t *ret_life_ms);
void rcache_double_put(struct rcache_double *d, struct str key, struct str value);
bool rcache_double_is_marked(struct rcache_double *d, struct str key);
void rcache_double_settle(struct rcache_double *d); /* the marks' time is over */
