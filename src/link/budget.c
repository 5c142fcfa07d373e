#include "link/budget.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdlib.h>

/* The start is kept in sixteenths of a second: 32 bits of them last eight years of uptime. */
enum { UNITS_PER_SECOND = 16 };

static uint32_t units_of(int64_t ms)
{
	return (uint32_t)(ms * UNITS_PER_SECOND / 1000);
}

static uint64_t pack(uint32_t start, uint32_t count)
{
	return (uint64_t)start << 32 | count;
}

bool meter_take(struct meter *m, int64_t mono_ms, struct meter_reading *ret)
{
	uint32_t max = atomic_load_explicit(&m->max, memory_order_relaxed);
	if (max == 0) {
		if (ret)
			*ret = (struct meter_reading){0};
		return true;
	}
	uint32_t now = units_of(mono_ms);
	uint32_t period_ms = atomic_load_explicit(&m->period_ms, memory_order_relaxed);
	uint32_t period = (uint32_t)((uint64_t)period_ms * UNITS_PER_SECOND / 1000);
	uint64_t state = atomic_load_explicit(&m->state, memory_order_relaxed);
	uint32_t start, count;
	bool taken;
	do {
		start = (uint32_t)(state >> 32);
		count = (uint32_t)state;
		/* As signed: another worker's clock, taken once a turn, may be a little ahead of ours. */
		if (count == 0 || (int32_t)(now - start) >= (int32_t)period) {
			start = now;
			count = 0;
		}
		taken = count < max;
		if (!taken)
			break;
	} while (!atomic_compare_exchange_weak_explicit(&m->state, &state, pack(start, count + 1),
	                                                memory_order_relaxed, memory_order_relaxed));
	if (ret) {
		uint32_t left_units = (int32_t)(now - start) > 0 ? period - MIN(now - start, period) : period;
		*ret = (struct meter_reading){
		    .limit = max,
		    .remaining = taken ? max - count - 1 : 0,
		    .reset_ms = (uint32_t)((uint64_t)left_units * 1000 / UNITS_PER_SECOND),
		    .period = start,
		};
	}
	return taken;
}

void meter_refund(struct meter *m, const struct meter_reading *taken)
{
	uint64_t state = atomic_load_explicit(&m->state, memory_order_relaxed);
	do {
		if ((uint32_t)state == 0 || (uint32_t)(state >> 32) != taken->period)
			return;
	} while (!atomic_compare_exchange_weak_explicit(&m->state, &state, state - 1, memory_order_relaxed,
	                                                memory_order_relaxed));
}

enum { BUDGET_SLOTS = 4096 };

struct budget_node {
	struct budget_node *next;
	struct budget budget;
};

struct budgets {
	pthread_mutex_t lock;
	struct budget_node *slots[BUDGET_SLOTS];
};

struct budgets *budgets_new(void)
{
	struct budgets *b = calloc(1, sizeof(*b));
	if (b)
		pthread_mutex_init(&b->lock, NULL);
	return b;
}

void budgets_free(struct budgets *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < BUDGET_SLOTS; i++) {
		while (b->slots[i]) {
			struct budget_node *next = b->slots[i]->next;
			free(b->slots[i]);
			b->slots[i] = next;
		}
	}
	pthread_mutex_destroy(&b->lock);
	free(b);
}

struct budget *budgets_of(struct budgets *b, uint64_t owner)
{
	struct budget_node **slot = &b->slots[hash_u64(owner, 0x51ed) % BUDGET_SLOTS];
	pthread_mutex_lock(&b->lock);
	struct budget_node *node = *slot;
	while (node && node->budget.owner != owner)
		node = node->next;
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (node) {
			node->budget.owner = owner;
			node->next = *slot;
			*slot = node;
		}
	}
	pthread_mutex_unlock(&b->lock);
	return node ? &node->budget : NULL;
}

static void meter_set(struct meter *m, uint64_t max, uint64_t period_ms)
{
	atomic_store_explicit(&m->period_ms, (uint32_t)MIN(MAX(period_ms, 1000), UINT32_MAX),
	                      memory_order_relaxed);
	atomic_store_explicit(&m->max, (uint32_t)MIN(max, UINT32_MAX), memory_order_relaxed);
}

void budget_set(struct budget *b, uint64_t creates_max, uint64_t redirects_max, uint64_t period_ms)
{
	meter_set(&b->creates, creates_max, period_ms);
	meter_set(&b->redirects, redirects_max, period_ms);
}
