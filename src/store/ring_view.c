/* The ring as it was learned, and which parts do not know it yet. */
#include "os/clock.h"
#include "store/ring_core.h"

#include <stdlib.h>

/* Calls wait this long for a part to hear of a new ring. */
enum { PATIENCE_MS = 3000 };

void ring_view_unref(struct ring_view *v)
{
	if (!v || atomic_fetch_sub(&v->refs, 1) != 1)
		return;
	ring_free(v->old);
	ring_free(v->new);
	arena_release(&v->arena);
	free(v);
}

struct ring_view *ring_view_get(struct store_ring *s)
{
	pthread_mutex_lock(&s->view_lock);
	struct ring_view *v = s->view;
	atomic_fetch_add(&v->refs, 1);
	pthread_mutex_unlock(&s->view_lock);
	return v;
}

void ring_view_put(struct store_ring *s, struct ring_view *v)
{
	pthread_mutex_lock(&s->view_lock);
	struct ring_view *old = s->view;
	s->view = v;
	pthread_mutex_unlock(&s->view_lock);
	ring_view_unref(old);
}

bool ring_view_is_current(struct store_ring *s, const struct ring_view *v)
{
	pthread_mutex_lock(&s->view_lock);
	bool same = s->view == v;
	pthread_mutex_unlock(&s->view_lock);
	return same;
}

static uint64_t numbers_set(const size_t *numbers, size_t n)
{
	uint64_t set = 0;
	for (size_t i = 0; i < n; i++)
		set |= (uint64_t)1 << numbers[i];
	return set;
}

uint64_t view_olds(const struct ring_view *v)
{
	return numbers_set(v->members, v->plan.members.count);
}

uint64_t view_news(const struct ring_view *v)
{
	return view_moves(v) ? numbers_set(v->targets, v->plan.target.count) : view_olds(v);
}

/* Since when it has refused the epoch, this time included. */
static bool is_stuck(struct store_ring *s, const struct ring_view *v, struct ring_part *part)
{
	int64_t now_ms = clock_mono_ms();
	pthread_mutex_lock(&s->view_lock);
	if (atomic_load(&part->refused_epoch) != v->plan.epoch) {
		atomic_store(&part->refused_epoch, v->plan.epoch);
		part->refused_ms = now_ms;
	}
	bool stuck = now_ms - part->refused_ms > PATIENCE_MS;
	pthread_mutex_unlock(&s->view_lock);
	return stuck;
}

int ring_part_verdict(struct store_ring *s, const struct ring_view *v, size_t number, int result)
{
	struct ring_part *part = &s->parts[number];
	if (number == PART_MISSING)
		return result;
	if (result == 0 && atomic_load_explicit(&part->refused_epoch, memory_order_relaxed) != 0)
		atomic_store(&part->refused_epoch, 0);
	if (result != ERR_CONFLICT || !is_stuck(s, v, part))
		return result;
	ring_worker_poke(s->helper); /* it may be the view that is old */
	return ERR_UNAVAILABLE;
}
