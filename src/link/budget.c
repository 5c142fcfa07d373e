#include "link/budget.h"

#include "base/hash.h"
#include "os/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static uint32_t period_units(const struct meter *m)
{
	return meter_units(atomic_load_explicit(&m->period_ms, memory_order_relaxed));
}

/* False: the word is of another period. */
static bool share_read(const _Atomic uint64_t *word, uint32_t start, uint32_t *ret)
{
	uint64_t v = atomic_load_explicit(word, memory_order_relaxed);
	*ret = (uint32_t)v;
	return v != 0 && (uint32_t)(v >> 32) == start;
}

static uint32_t end_of(const struct meter *m, uint32_t start)
{
	uint32_t end;
	if (m->share && share_read(&m->share->end, start, &end))
		return end;
	return start + period_units(m);
}

/* Signed: another worker's clock, read once per turn, may be slightly ahead. */
static bool is_past(uint32_t end, uint32_t now)
{
	return (int32_t)(now - end) >= 0;
}

static bool is_stalled(const struct meter_share *s, uint32_t now)
{
	return is_past(atomic_load_explicit(&s->quota->until, memory_order_relaxed), now);
}

/* Has this period been synced? */
static bool is_known(const struct meter_share *s, uint32_t start, uint32_t now)
{
	uint32_t end;
	return share_read(&s->end, start, &end) && !is_stalled(s, now);
}

/* A period and its count. */
struct window {
	uint32_t start, count, end;
};

/* The current period, or one that begins now. */
static struct window window_of(const struct meter *m, uint64_t state, uint32_t now)
{
	struct window w = {.start = (uint32_t)(state >> 32), .count = (uint32_t)state};
	w.end = end_of(m, w.start);
	if (state == 0 || is_past(w.end, now)) {
		w = (struct window){.start = now};
		w.end = end_of(m, now);
	}
	return w;
}

/* How far this server may count in the period. Nothing after a stall: other servers may have been granted
 * what this one held; the next sync will tell. */
static uint32_t bound_of(const struct meter *m, uint32_t start, uint32_t max, uint32_t now)
{
	uint32_t grant;
	if (!m->share)
		return max;
	if (is_stalled(m->share, now))
		return 0;
	if (share_read(&m->share->grant, start, &grant))
		return MIN(grant, max);
	uint32_t servers = atomic_load_explicit(&m->share->quota->servers, memory_order_relaxed);
	return meter_initial_grant(max, servers);
}

/* Queues the meter for a sync. A system call, but only at the start of a period and now and then. */
static void share_enqueue(struct meter_share *s)
{
	struct quota *quota = s->quota;
	if (!atomic_exchange_explicit(&s->is_queued, true, memory_order_acq_rel)) {
		s->next_queued = atomic_load_explicit(&quota->queued, memory_order_relaxed);
		while (!atomic_compare_exchange_weak_explicit(&quota->queued, &s->next_queued, s,
		                                              memory_order_release, memory_order_relaxed))
			;
	}
	task_wake(&quota->task);
}

static void share_note_take(struct meter_share *s, bool taken, uint32_t start, uint32_t count)
{
	uint32_t at;
	if (!taken) {
		if (!atomic_load_explicit(&s->has_refused, memory_order_relaxed))
			atomic_store_explicit(&s->has_refused, true, memory_order_relaxed);
		return;
	}
	if (count == 1 || (share_read(&s->sync_at, start, &at) && at == count))
		share_enqueue(s);
}

/* Begins a new period without a use, and requests a sync. */
static void share_request(struct meter *m, uint64_t state, const struct window *w)
{
	if (w->count == 0)
		atomic_compare_exchange_strong_explicit(&m->state, &state, meter_pack(w->start, 0),
		                                        memory_order_relaxed, memory_order_relaxed);
	share_enqueue(m->share);
}

static uint32_t left_of(const struct meter *m, uint32_t start, uint32_t count, uint32_t max)
{
	uint32_t used_elsewhere;
	if (!m->share || !share_read(&m->share->used_elsewhere, start, &used_elsewhere))
		used_elsewhere = 0;
	uint64_t gone = (uint64_t)count + used_elsewhere;
	return gone < max ? (uint32_t)(max - gone) : 0;
}

bool meter_now(const struct meter *m, int64_t mono_ms, uint32_t *ret_start, uint32_t *ret_count)
{
	uint64_t state = atomic_load_explicit(&m->state, memory_order_relaxed);
	*ret_start = (uint32_t)(state >> 32);
	*ret_count = (uint32_t)state;
	return state != 0 && !is_past(end_of(m, *ret_start), meter_units(mono_ms));
}

bool meter_take(struct meter *m, int64_t mono_ms, struct meter_reading *ret)
{
	uint32_t max = atomic_load_explicit(&m->max, memory_order_relaxed);
	if (max == 0) {
		if (ret)
			*ret = (struct meter_reading){0};
		return true;
	}
	uint32_t now = meter_units(mono_ms);
	uint64_t state = atomic_load_explicit(&m->state, memory_order_relaxed);
	struct window w;
	bool taken;
	do {
		w = window_of(m, state, now);
		taken = w.count < bound_of(m, w.start, max, now);
		if (!taken)
			break;
	} while (!atomic_compare_exchange_weak_explicit(&m->state, &state, meter_pack(w.start, w.count + 1),
	                                                memory_order_relaxed, memory_order_relaxed));
	bool unsynced = m->share && !taken && !is_known(m->share, w.start, now);
	if (unsynced)
		share_request(m, state, &w);
	if (m->share)
		share_note_take(m->share, taken, w.start, w.count + 1);
	if (ret) {
		uint32_t left_units = is_past(w.end, now) ? 0 : MIN(w.end - now, period_units(m));
		if (unsynced) /* retry soon */
			left_units = MIN(left_units, METER_UNITS);
		*ret = (struct meter_reading){
		    .limit = max,
		    .remaining = taken ? left_of(m, w.start, w.count + 1, max) : 0,
		    .reset_ms = (uint32_t)((uint64_t)left_units * 1000 / METER_UNITS),
		    .period = w.start,
		    .unsynced = unsynced,
		};
	}
	return taken;
}

/* Would a take be refused for lack of a sync? */
static bool needs_grant(struct meter *m, int64_t mono_ms, bool asks)
{
	uint32_t max = atomic_load_explicit(&m->max, memory_order_relaxed);
	uint64_t state = atomic_load_explicit(&m->state, memory_order_relaxed);
	uint32_t now = meter_units(mono_ms);
	const struct window w = window_of(m, state, now);
	bool must = m->share && max > 0 && w.count >= bound_of(m, w.start, max, now) &&
	            !is_known(m->share, w.start, now);
	if (must && asks)
		share_request(m, state, &w);
	return must;
}

void meter_wait_for_grant(struct meter *m, int64_t until_ms)
{
	const struct timespec pause = {.tv_nsec = 500000};
	int64_t now_ms = clock_mono_ms();
	bool must = needs_grant(m, now_ms, true);
	while (must && now_ms < until_ms) {
		nanosleep(&pause, NULL);
		now_ms = clock_mono_ms();
		must = needs_grant(m, now_ms, false);
	}
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

/* `shares` has two entries if budgets are shared. */
struct budget_node {
	struct budget_node *next;
	struct budget budget;
	struct meter_share shares[];
};

struct budgets {
	pthread_mutex_t lock;
	struct quota *quota; /* NULL: not shared */
	struct budget_limits limits;
	struct budget unlimited; /* of all users without limits */
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

void budgets_share(struct budgets *b, struct quota *s)
{
	b->quota = s;
}

void budgets_limit(struct budgets *b, const struct budget_limits *limits)
{
	b->limits = *limits;
}

static void share_init(struct meter_share *share, struct quota *s, struct meter *m, uint64_t owner, char what)
{
	*share = (struct meter_share){.quota = s, .meter = m, .owner = owner, .what = what};
	m->share = share;
}

static struct budget_node *node_new(struct budgets *b, uint64_t owner)
{
	struct budget_node *node = calloc(1, sizeof(*node) + (b->quota ? 2 * sizeof(struct meter_share) : 0));
	if (!node)
		return NULL;
	node->budget.owner = owner;
	if (b->quota) {
		share_init(&node->shares[0], b->quota, &node->budget.creates, owner, 'c');
		share_init(&node->shares[1], b->quota, &node->budget.redirects, owner, 'r');
	}
	return node;
}

struct budget *budgets_of(struct budgets *b, uint64_t owner)
{
	struct budget_node **slot = &b->slots[hash_u64(owner, 0x51ed) % BUDGET_SLOTS];
	pthread_mutex_lock(&b->lock);
	struct budget_node *node = *slot;
	while (node && node->budget.owner != owner)
		node = node->next;
	if (!node) {
		node = node_new(b, owner);
		if (node) {
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
	atomic_store_explicit(&b->is_set, true, memory_order_release); /* pairs with budgets_of_key */
}

struct budget *budgets_of_key(struct budgets *b, uint64_t key, const struct budget_limits *own)
{
	struct budget *budget = budgets_of(b, key);
	if (!budget || atomic_load_explicit(&budget->is_set, memory_order_acquire))
		return budget;
	budget_set(budget, own->creates_max ? own->creates_max : b->limits.creates_max,
	           own->redirects_max ? own->redirects_max : b->limits.redirects_max,
	           own->period_ms ? own->period_ms : b->limits.period_ms);
	return budget;
}

/* Links created on the machine itself are not limited. */
struct budget *budgets_of_user(struct budgets *b, uint64_t user)
{
	static const struct budget_limits none = {0};
	if (user == 0 || (b->limits.creates_max == 0 && b->limits.redirects_max == 0))
		return &b->unlimited;
	return budgets_of_key(b, budget_of_user(user), &none);
}
