#include "link/settler.h"

#include "base/list.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdlib.h>

enum {
	BATCH_MAX = 1024,
	WAIT_MAX_MS = 1000, /* between two looks at a meter that nobody uses */
	IDLE_SHARE = 16,    /* of its part, what a server holds while nobody uses it; */
	IDLE_MIN = 8,       /* and at least so many, if they are there */
	AWAY_MS = 500,      /* until a limiter that failed is asked again */
	SERVERS_MS = 1000,  /* how often to ask at least, to be counted and to count */
};

/* A meter with a period under way, as the limiter knows it. */
struct settled {
	struct list link;
	struct meter_share *share;
	uint32_t start;    /* of the meter's period; what follows is about it */
	bool is_known;     /* the limiter has been told of it */
	bool is_idle;      /* nobody has wanted any since it was last settled */
	uint64_t period;   /* its name there */
	uint64_t reserved; /* what it has counted there as ours: used or held */
	uint64_t owed;     /* what it has counted beyond that, to be given back with the next round */
	uint64_t used;     /* by all servers, without what is owed */
	uint32_t count;    /* used here, when it was last settled */
	int64_t end_ms;    /* of the period, there; monotonic */
	int64_t next_ms;
	int64_t wait_ms;
};

/* What is told of a meter in a round. */
struct round_use {
	struct settled *settled;
	uint32_t max;
	uint32_t count;
	uint64_t target; /* what is to be reserved */
};

struct settler {
	struct limiter *limiter;
	struct settling settling;
	struct list active;
	int64_t servers_ms; /* when they were last counted */
	bool is_away;
	bool again; /* something is owed, or others wait their turn: make another round at once */
	struct round_use told[BATCH_MAX];
	struct limiter_use uses[BATCH_MAX];
	size_t use_count;
	_Atomic uint64_t rounds, failures, meters;
	_Atomic bool stopping;
	pthread_t thread;
	bool started;
};

int settler_new(struct limiter *limiter, struct settler **ret, struct err *e)
{
	struct settler *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->limiter = limiter;
	s->servers_ms = INT64_MIN;
	list_init(&s->active);
	sem_init(&s->settling.wake, 0, 0);
	atomic_store(&s->settling.servers, 1);
	*ret = s;
	return 0;
}

struct settling *settler_settling(struct settler *s)
{
	return &s->settling;
}

static void settled_drop(struct settler *s, struct settled *t)
{
	t->share->settled = NULL;
	list_remove(&t->link);
	free(t);
	atomic_fetch_sub_explicit(&s->meters, 1, memory_order_relaxed);
}

void settler_free(struct settler *s)
{
	if (!s)
		return;
	struct list *node;
	while ((node = list_pop(&s->active))) /* the meters have gone */
		free(container_of(node, struct settled, link));
	sem_destroy(&s->settling.wake);
	free(s);
}

/* What workers have listed since the last round. */
static void take_listed(struct settler *s)
{
	struct meter_share *share = atomic_exchange_explicit(&s->settling.listed, NULL, memory_order_acquire);
	while (share) {
		struct meter_share *next = share->next_listed;
		/* From here on it may be listed anew. */
		atomic_store_explicit(&share->is_listed, false, memory_order_release);
		if (!share->settled && (share->settled = calloc(1, sizeof(struct settled)))) {
			share->settled->share = share;
			list_push(&s->active, &share->settled->link);
			atomic_fetch_add_explicit(&s->meters, 1, memory_order_relaxed);
		}
		if (share->settled)
			share->settled->next_ms = INT64_MIN;
		share = next;
	}
}

static uint64_t held_of(const struct settled *t, uint32_t count)
{
	return t->reserved > count ? t->reserved - count : 0;
}

static void period_begin(struct settled *t, uint32_t start, int64_t mono_ms)
{
	struct meter_share *share = t->share;
	bool carries = share->carried.amount > 0 && mono_ms < share->carried.until_ms;
	t->start = start;
	t->reserved = t->used = carries ? share->carried.amount : 0;
	t->period = share->carried.period;
	t->is_known = carries;
	t->owed = 0;
	t->wait_ms = SETTLE_MS;
	t->end_ms = INT64_MAX;
	share->carried.amount = 0;
}

/* Who has wanted nothing since the last time lets go of half of what it holds, down to a small part, so that
 * the next visitor need not wait; and rounds down: the last one is for those who need it. */
static uint64_t hold_idle(uint64_t held, uint64_t whole, uint64_t servers)
{
	uint64_t part = whole / servers;
	return MIN(part, MAX(held / 2, MAX(part / IDLE_SHARE, IDLE_MIN)));
}

/* What is to be reserved. At first what this server was let use anyhow; then as many as make it one among
 * equals. */
static uint64_t target_of(const struct settler *s, const struct settled *t, uint32_t count, uint32_t max)
{
	uint64_t servers = atomic_load_explicit(&s->settling.servers, memory_order_relaxed);
	if (!t->is_known)
		return MAX((max + servers - 1) / servers, (uint64_t)count);
	uint64_t held = held_of(t, count);
	uint64_t whole = held + (t->used < max ? max - t->used : 0);
	uint64_t hold = t->is_idle ? hold_idle(held, whole, servers) : (whole + servers - 1) / servers;
	return MAX(MIN(count + hold, (uint64_t)max), (uint64_t)count);
}

/* False: there is nothing to settle any more. */
static bool prepare(struct settler *s, struct settled *t, int64_t mono_ms)
{
	struct meter *m = t->share->meter;
	uint32_t max = atomic_load_explicit(&m->max, memory_order_relaxed);
	uint32_t start, count;
	if (max == 0 || !meter_now(m, mono_ms, &start, &count))
		return false;
	if (start != t->start || t->wait_ms == 0)
		period_begin(t, start, mono_ms);
	if (mono_ms >= t->end_ms) { /* it is over there, and what is told now would count for the next one */
		t->next_ms = mono_ms + SETTLE_PAD_MS;
		return true;
	}
	bool refused = atomic_exchange_explicit(&t->share->has_refused, false, memory_order_relaxed);
	t->is_idle = t->count == count && !refused;
	uint64_t target = target_of(s, t, count, max);
	s->told[s->use_count] = (struct round_use){
	    .settled = t, .max = max, .count = count, .target = target};
	s->uses[s->use_count++] = (struct limiter_use){
	    .owner = t->share->owner,
	    .what = t->share->what,
	    .period_ms = atomic_load_explicit(&m->period_ms, memory_order_relaxed),
	    .delta = (int64_t)target - (int64_t)t->reserved - (int64_t)t->owed,
	};
	return true;
}

/* Who was refused does not wait as long as a meter that nobody uses. */
static bool is_due(const struct settled *t, int64_t mono_ms)
{
	return t->next_ms <= mono_ms ||
	       (t->wait_ms > SETTLE_MS && t->next_ms - t->wait_ms + SETTLE_MS <= mono_ms &&
	        atomic_load_explicit(&t->share->has_refused, memory_order_relaxed));
}

static void gather(struct settler *s, int64_t mono_ms)
{
	s->use_count = 0;
	struct list *next;
	for (struct list *node = s->active.next; node != &s->active && s->use_count < BATCH_MAX;
	     node = next) {
		struct settled *t = container_of(node, struct settled, link);
		next = node->next;
		if (is_due(t, mono_ms) && !prepare(s, t, mono_ms))
			settled_drop(s, t);
	}
}

static void put(_Atomic uint64_t *word, uint32_t start, uint64_t number)
{
	atomic_store_explicit(word, meter_pack(start, (uint32_t)MIN(number, UINT32_MAX)),
	                      memory_order_relaxed);
}

static void publish(const struct settled *t, uint32_t count)
{
	uint64_t held = held_of(t, count);
	put(&t->share->elsewhere, t->start, t->used > t->reserved ? t->used - t->reserved : 0);
	put(&t->share->nudge, t->start, count + (held + 1) / 2);
	put(&t->share->grant, t->start, t->reserved);
}

static void plan_next(struct settled *t, const struct round_use *told, int64_t delta, int64_t mono_ms)
{
	/* Not while it still gives back, nor while it holds what others may need. */
	bool quiet = t->is_idle && delta == 0 && t->owed == 0 &&
	             (t->used < told->max || held_of(t, told->count) == 0);
	t->wait_ms = quiet ? MIN(t->wait_ms * 2, WAIT_MAX_MS) : SETTLE_MS;
	t->count = told->count;
	t->next_ms = mono_ms + (t->owed ? 0 : t->wait_ms);
}

static void heard(struct settler *s, const struct round_use *told, const struct limiter_use *use,
                  int64_t mono_ms)
{
	struct settled *t = told->settled;
	uint32_t end = meter_units(mono_ms);
	if (t->is_known && use->period != t->period) {
		/* The period has ended there. What was just told stands in the next one. */
		t->share->carried.amount = use->delta > 0 ? (uint64_t)use->delta : 0;
		t->share->carried.period = use->period;
		t->share->carried.until_ms = mono_ms + (int64_t)use->left_ms;
		put(&t->share->end, t->start, end);
		t->next_ms = mono_ms + SETTLE_MS;
		return;
	}
	uint64_t excess = use->used > told->max ? use->used - told->max : 0;
	t->period = use->period;
	t->is_known = true;
	t->owed = MIN(excess, told->target - told->count);
	t->reserved = told->target - t->owed;
	t->used = use->used - t->owed;
	t->end_ms = mono_ms + (int64_t)use->left_ms;
	put(&t->share->end, t->start, end + meter_units((int64_t)use->left_ms + SETTLE_PAD_MS));
	publish(t, told->count);
	plan_next(t, told, use->delta, mono_ms);
	s->again |= t->owed > 0;
}

/* What was told may have been counted or not: it is taken as not, so that nothing is let through twice. */
static void missed(struct settler *s, const struct round_use *told, int64_t mono_ms)
{
	struct settled *t = told->settled;
	uint64_t servers = atomic_load_explicit(&s->settling.servers, memory_order_relaxed);
	put(&t->share->grant, t->start, MAX(t->reserved, (told->max + servers - 1) / servers));
	t->next_ms = mono_ms + AWAY_MS;
}

static void say_whether_away(struct settler *s, int r)
{
	if (r < 0 && !s->is_away)
		log_warn("limits",
		         "the servers cannot settle their limits (%s); each goes on with its part of them",
		         err_name(r));
	if (r == 0 && s->is_away)
		log_info("limits", "the servers settle their limits again");
	s->is_away = r < 0;
}

static void settle(struct settler *s, int64_t mono_ms)
{
	unsigned servers = 1;
	int r = s->limiter->ops->settle(s->limiter, s->uses, s->use_count, &servers);
	atomic_fetch_add_explicit(&s->rounds, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->failures, r < 0, memory_order_relaxed);
	if (r == 0)
		atomic_store_explicit(&s->settling.servers, MAX(servers, 1), memory_order_relaxed);
	s->servers_ms = mono_ms;
	for (size_t i = 0; i < s->use_count; i++) {
		if (s->uses[i].settled)
			heard(s, &s->told[i], &s->uses[i], mono_ms);
		else
			missed(s, &s->told[i], mono_ms);
	}
	say_whether_away(s, r);
}

void settler_round(struct settler *s, int64_t mono_ms)
{
	take_listed(s);
	gather(s, mono_ms);
	s->again = s->use_count == BATCH_MAX;
	if (s->use_count > 0 || s->servers_ms + SERVERS_MS <= mono_ms)
		settle(s, mono_ms);
}

static void *settler_thread(void *arg)
{
	struct settler *s = arg;
	while (!atomic_load(&s->stopping)) {
		atomic_store(&s->settling.woken, false); /* before the list is taken: later ones wake again */
		settler_round(s, clock_mono_ms());
		struct timespec at = clock_mono_after(list_empty(&s->active) ? SERVERS_MS : SETTLE_MS);
		if (!s->again)
			sem_clockwait(&s->settling.wake, CLOCK_MONOTONIC, &at);
	}
	return NULL;
}

int settler_start(struct settler *s, struct err *e)
{
	settler_round(s, clock_mono_ms()); /* so that it knows at once how many there are */
	int r = thread_start(&s->thread, "settler", settler_thread, s, e);
	s->started = r == 0;
	return r;
}

/* What this server holds and will not use. */
static void give_back(struct settler *s)
{
	unsigned servers;
	s->use_count = 0;
	for (struct list *node = s->active.next; node != &s->active && s->use_count < BATCH_MAX;
	     node = node->next) {
		const struct settled *t = container_of(node, struct settled, link);
		uint32_t start, count;
		if (!meter_now(t->share->meter, s->servers_ms, &start, &count) || start != t->start)
			continue;
		s->uses[s->use_count++] = (struct limiter_use){
		    .owner = t->share->owner,
		    .what = t->share->what,
		    .period_ms = atomic_load(&t->share->meter->period_ms),
		    .delta = (int64_t)count - (int64_t)t->reserved - (int64_t)t->owed,
		};
	}
	if (s->use_count > 0)
		s->limiter->ops->settle(s->limiter, s->uses, s->use_count, &servers);
}

void settler_stop(struct settler *s)
{
	if (!s || atomic_exchange(&s->stopping, true))
		return;
	sem_post(&s->settling.wake);
	if (s->started) {
		pthread_join(s->thread, NULL);
		settler_round(s, clock_mono_ms());
	}
	give_back(s);
}

struct settler_stats settler_stats(struct settler *s)
{
	return (struct settler_stats){
	    .servers = atomic_load_explicit(&s->settling.servers, memory_order_relaxed),
	    .rounds = atomic_load_explicit(&s->rounds, memory_order_relaxed),
	    .failures = atomic_load_explicit(&s->failures, memory_order_relaxed),
	    .meters = atomic_load_explicit(&s->meters, memory_order_relaxed),
	};
}
