#include "link/click_limit.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdlib.h>

enum { SLOTS_FIRST = 256, EVICT_AT_ONCE = 1024 };

struct click_limit_node {
	struct click_limit_node *next;
	struct click_limit limit;
};

struct click_limits {
	pthread_mutex_t lock; /* guards all below; using a counter needs no lock */
	struct click_limit_node **slots;
	size_t slot_count; /* a power of two */
	size_t count;
	size_t evict_next; /* where the next eviction begins */
};

struct click_limits *click_limits_new(void)
{
	struct click_limits *g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->slot_count = SLOTS_FIRST;
	g->slots = calloc(g->slot_count, sizeof(struct click_limit_node *));
	if (!g->slots) {
		free(g);
		return NULL;
	}
	pthread_mutex_init(&g->lock, NULL);
	return g;
}

void click_limits_free(struct click_limits *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->slot_count; i++) {
		while (g->slots[i]) {
			struct click_limit_node *next = g->slots[i]->next;
			free(g->slots[i]);
			g->slots[i] = next;
		}
	}
	pthread_mutex_destroy(&g->lock);
	free(g->slots);
	free(g);
}

static struct click_limit_node **slot_of(struct click_limit_node **slots, size_t count, uint64_t link)
{
	return &slots[hash_u64(link, 0x6a7e) & (count - 1)];
}

/* Without memory the chains grow longer. */
static void slots_double_locked(struct click_limits *g)
{
	size_t count = 2 * g->slot_count;
	struct click_limit_node **slots = calloc(count, sizeof(struct click_limit_node *));
	if (!slots)
		return;
	for (size_t i = 0; i < g->slot_count; i++) {
		while (g->slots[i]) {
			struct click_limit_node *node = g->slots[i],
			                        **to = slot_of(slots, count, node->limit.link);
			g->slots[i] = node->next;
			node->next = *to;
			*to = node;
		}
	}
	free(g->slots);
	g->slots = slots;
	g->slot_count = count;
}

/* Without the lock only a holder of a pin adds pins, so a counter without pins can be freed. */
static size_t slot_evict_locked(struct click_limits *g, size_t slot)
{
	size_t evicted = 0;
	for (struct click_limit_node **at = &g->slots[slot]; *at;) {
		struct click_limit_node *node = *at;
		/* acquire: pairs with the release of the last click_limit_unpin */
		if (atomic_load_explicit(&node->limit.pins, memory_order_acquire) > 0) {
			at = &node->next;
			continue;
		}
		*at = node->next;
		free(node);
		evicted++;
	}
	return evicted;
}

static void evict_some_locked(struct click_limits *g)
{
	size_t evicted = 0;
	for (size_t i = 0; i < g->slot_count && evicted < EVICT_AT_ONCE; i++) {
		g->evict_next = (g->evict_next + 1) % g->slot_count;
		evicted += slot_evict_locked(g, g->evict_next);
	}
	g->count -= evicted;
}

static struct click_limit_node *node_add_locked(struct click_limits *g, uint64_t link)
{
	if (g->count >= CLICK_LIMITS_MAX)
		evict_some_locked(g);
	if (g->count >= CLICK_LIMITS_MAX)
		return NULL;
	if (g->count >= g->slot_count)
		slots_double_locked(g);
	struct click_limit_node *node = malloc(sizeof(*node)),
	                        **slot = slot_of(g->slots, g->slot_count, link);
	if (!node)
		return NULL;
	*node = (struct click_limit_node){.next = *slot, .limit = {.link = link, .used = -1, .rounds = 1}};
	*slot = node;
	g->count++;
	return node;
}

struct click_limit *click_limits_get(struct click_limits *g, uint64_t link)
{
	pthread_mutex_lock(&g->lock);
	struct click_limit_node *node = *slot_of(g->slots, g->slot_count, link);
	while (node && node->limit.link != link)
		node = node->next;
	if (!node)
		node = node_add_locked(g, link);
	if (node)
		click_limit_pin(&node->limit);
	pthread_mutex_unlock(&g->lock);
	return node ? &node->limit : NULL;
}

void click_limits_begin(struct click_limits *g, uint64_t link)
{
	struct click_limit *limit = click_limits_get(g, link);
	if (!limit)
		return; /* it will be counted on the first request */
	click_limit_count(limit, click_limit_round(limit), 0);
	click_limit_unpin(limit);
}

void click_limit_pin(struct click_limit *limit)
{
	if (limit)
		atomic_fetch_add_explicit(&limit->pins, 1, memory_order_relaxed);
}

void click_limit_unpin(struct click_limit *limit)
{
	if (!limit)
		return;
	uint32_t before = atomic_fetch_sub_explicit(&limit->pins, 1, memory_order_release);
	ASSERT(before > 0);
}

void click_limits_uncount(struct click_limits *g, uint64_t link)
{
	pthread_mutex_lock(&g->lock);
	size_t from = link ? (size_t)(slot_of(g->slots, g->slot_count, link) - g->slots) : 0;
	size_t to = link ? from + 1 : g->slot_count;
	for (size_t i = from; i < to; i++) {
		for (struct click_limit_node *node = g->slots[i]; node; node = node->next) {
			if (link == 0 || node->limit.link == link)
				atomic_store_explicit(&node->limit.used, -(int64_t)++node->limit.rounds,
				                      memory_order_relaxed);
		}
	}
	pthread_mutex_unlock(&g->lock);
}

/* Relaxed: the number publishes nothing else. */
static int64_t used_now(const struct click_limit *limit)
{
	return atomic_load_explicit(&limit->used, memory_order_relaxed);
}

bool click_limit_is_counted(const struct click_limit *limit)
{
	return used_now(limit) >= 0;
}

bool click_limit_is_spent(const struct click_limit *limit, uint64_t max)
{
	int64_t used = used_now(limit);
	return used >= 0 && (uint64_t)used >= max;
}

int64_t click_limit_round(const struct click_limit *limit)
{
	return -MIN(used_now(limit), 0);
}

void click_limit_count(struct click_limit *limit, int64_t round, uint64_t used)
{
	int64_t uncounted = -round;
	if (round > 0)
		atomic_compare_exchange_strong_explicit(&limit->used, &uncounted,
		                                        (int64_t)MIN(used, INT64_MAX), memory_order_relaxed,
		                                        memory_order_relaxed);
}

bool click_limit_take(struct click_limit *limit, uint64_t max)
{
	int64_t used = used_now(limit);
	do {
		if (used < 0 || (uint64_t)used >= max)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&limit->used, &used, used + 1, memory_order_relaxed,
	                                                memory_order_relaxed));
	return true;
}

void click_limit_put_back(struct click_limit *limit)
{
	int64_t used = used_now(limit);
	while (used > 0 && !atomic_compare_exchange_weak_explicit(&limit->used, &used, used - 1,
	                                                          memory_order_relaxed, memory_order_relaxed))
		;
}
