#include "link/gates.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdlib.h>

enum { SLOTS_FIRST = 256 };

struct gate_node {
	struct gate_node *next;
	struct click_gate gate;
};

struct gates {
	pthread_mutex_t lock; /* guards what follows; nobody needs it to use a gate */
	struct gate_node **slots;
	size_t slot_count; /* a power of two */
	size_t count;
};

struct gates *gates_new(void)
{
	struct gates *g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->slot_count = SLOTS_FIRST;
	g->slots = calloc(g->slot_count, sizeof(*g->slots));
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

static struct gate_node *node_add_locked(struct gates *g, uint64_t link)
{
	if (g->count >= GATES_MAX)
		return NULL;
	if (g->count >= g->slot_count)
		slots_double_locked(g);
	struct gate_node *node = malloc(sizeof(*node)), **slot = slot_of(g->slots, g->slot_count, link);
	if (!node)
		return NULL;
	*node = (struct gate_node){.next = *slot, .gate = {.link = link, .used = -1}};
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
	pthread_mutex_unlock(&g->lock);
	return node ? &node->gate : NULL;
}

void gates_uncount(struct gates *g, uint64_t link)
{
	pthread_mutex_lock(&g->lock);
	size_t from = link ? (size_t)(slot_of(g->slots, g->slot_count, link) - g->slots) : 0;
	size_t to = link ? from + 1 : g->slot_count;
	for (size_t i = from; i < to; i++) {
		for (struct gate_node *node = g->slots[i]; node; node = node->next) {
			if (link == 0 || node->gate.link == link)
				atomic_store_explicit(&node->gate.used, -1, memory_order_relaxed);
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

void gate_count(struct click_gate *gate, uint64_t used)
{
	int64_t uncounted = -1;
	atomic_compare_exchange_strong_explicit(&gate->used, &uncounted, (int64_t)MIN(used, INT64_MAX),
	                                        memory_order_relaxed, memory_order_relaxed);
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
