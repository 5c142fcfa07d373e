#include "link/gates.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdlib.h>

enum { SLOTS_FIRST = 256, EVICT_AT_ONCE = 1024 };

struct gate_node {
	struct gate_node *next;
	struct click_gate gate;
};

struct gates {
	pthread_mutex_t lock; /* guards what follows; nobody needs it to use a gate */
	struct gate_node **slots;
	size_t slot_count; /* a power of two */
	size_t count;
	size_t hand; /* the slot where the next eviction begins */
};

struct gates *gates_new(void)
{
	struct gates *g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->slot_count = SLOTS_FIRST;
	g->slots = calloc(g->slot_count, sizeof(struct gate_node *));
	if (!g->slots) {
		free(g);
		return NULL;
	}
	pthread_mutex_init(&g->lock, NULL);
	return g;
}

void gates_free(struct gates *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->slot_count; i++) {
		while (g->slots[i]) {
			struct gate_node *next = g->slots[i]->next;
			free(g->slots[i]);
			g->slots[i] = next;
		}
	}
	pthread_mutex_destroy(&g->lock);
	free(g->slots);
	free(g);
}

static struct gate_node **slot_of(struct gate_node **slots, size_t count, uint64_t link)
{
	return &slots[hash_u64(link, 0x6a7e) & (count - 1)];
}

/* Without memory for more slots the chains grow longer. */
static void slots_double_locked(struct gates *g)
{
	size_t count = 2 * g->slot_count;
	struct gate_node **slots = calloc(count, sizeof(struct gate_node *));
	if (!slots)
		return;
	for (size_t i = 0; i < g->slot_count; i++) {
		while (g->slots[i]) {
			struct gate_node *node = g->slots[i], **to = slot_of(slots, count, node->gate.link);
			g->slots[i] = node->next;
			node->next = *to;
			*to = node;
		}
	}
	free(g->slots);
	g->slots = slots;
	g->slot_count = count;
}

/* Nobody pins a gate without the lock unless they have it pinned already, so one without pins is safe to
 * free. */
static size_t slot_evict_locked(struct gates *g, size_t slot)
{
	size_t evicted = 0;
	for (struct gate_node **at = &g->slots[slot]; *at;) {
		struct gate_node *node = *at;
		/* acquire: pairs with the release of the last gate_unpin */
		if (atomic_load_explicit(&node->gate.pins, memory_order_acquire) > 0) {
			at = &node->next;
			continue;
		}
		*at = node->next;
		free(node);
		evicted++;
	}
	return evicted;
}

static void evict_some_locked(struct gates *g)
{
	size_t evicted = 0;
	for (size_t i = 0; i < g->slot_count && evicted < EVICT_AT_ONCE; i++) {
		g->hand = (g->hand + 1) % g->slot_count;
		evicted += slot_evict_locked(g, g->hand);
	}
	g->count -= evicted;
}

static struct gate_node *node_add_locked(struct gates *g, uint64_t link)
{
	if (g->count >= GATES_MAX)
		evict_some_locked(g);
	if (g->count >= GATES_MAX)
		return NULL;
	if (g->count >= g->slot_count)
		slots_double_locked(g);
	struct gate_node *node = malloc(sizeof(*node)), **slot = slot_of(g->slots, g->slot_count, link);
	if (!node)
		return NULL;
	*node = (struct gate_node){.next = *slot, .gate = {.link = link, .used = -1, .rounds = 1}};
	*slot = node;
	g->count++;
	return node;
}

struct click_gate *gates_of(struct gates *g, uint64_t link)
{
	pthread_mutex_lock(&g->lock);
	struct gate_node *node = *slot_of(g->slots, g->slot_count, link);
	while (node && node->gate.link != link)
		node = node->next;
	if (!node)
		node = node_add_locked(g, link);
	if (node)
		gate_pin(&node->gate);
	pthread_mutex_unlock(&g->lock);
	return node ? &node->gate : NULL;
}

void gates_begin(struct gates *g, uint64_t link)
{
	struct click_gate *gate = gates_of(g, link);
	if (!gate)
		return; /* it will be counted when it is asked for */
	gate_count(gate, gate_round(gate), 0);
	gate_unpin(gate);
}

void gate_pin(struct click_gate *gate)
{
	if (gate)
		atomic_fetch_add_explicit(&gate->pins, 1, memory_order_relaxed);
}

void gate_unpin(struct click_gate *gate)
{
	if (!gate)
		return;
	uint32_t before = atomic_fetch_sub_explicit(&gate->pins, 1, memory_order_release);
	ASSERT(before > 0);
}

void gates_uncount(struct gates *g, uint64_t link)
{
	pthread_mutex_lock(&g->lock);
	size_t from = link ? (size_t)(slot_of(g->slots, g->slot_count, link) - g->slots) : 0;
	size_t to = link ? from + 1 : g->slot_count;
	for (size_t i = from; i < to; i++) {
		for (struct gate_node *node = g->slots[i]; node; node = node->next) {
			if (link == 0 || node->gate.link == link)
				atomic_store_explicit(&node->gate.used, -(int64_t)++node->gate.rounds,
				                      memory_order_relaxed);
		}
	}
	pthread_mutex_unlock(&g->lock);
}

/* The number is all there is: nothing else is published by it, so its order among other accesses does not
 * matter. */
static int64_t used_now(const struct click_gate *gate)
{
	return atomic_load_explicit(&gate->used, memory_order_relaxed);
}

bool gate_is_counted(const struct click_gate *gate)
{
	return used_now(gate) >= 0;
}

bool gate_is_spent(const struct click_gate *gate, uint64_t max)
{
	int64_t used = used_now(gate);
	return used >= 0 && (uint64_t)used >= max;
}

int64_t gate_round(const struct click_gate *gate)
{
	return -MIN(used_now(gate), 0);
}

void gate_count(struct click_gate *gate, int64_t round, uint64_t used)
{
	int64_t uncounted = -round;
	if (round > 0)
		atomic_compare_exchange_strong_explicit(&gate->used, &uncounted,
		                                        (int64_t)MIN(used, INT64_MAX), memory_order_relaxed,
		                                        memory_order_relaxed);
}

bool gate_take(struct click_gate *gate, uint64_t max)
{
	int64_t used = used_now(gate);
	do {
		if (used < 0 || (uint64_t)used >= max)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&gate->used, &used, used + 1, memory_order_relaxed,
	                                                memory_order_relaxed));
	return true;
}

void gate_give_back(struct click_gate *gate)
{
	int64_t used = used_now(gate);
	while (used > 0 && !atomic_compare_exchange_weak_explicit(&gate->used, &used, used - 1,
	                                                          memory_order_relaxed, memory_order_relaxed))
		;
}
