#include "loop/timer.h"

static int64_t tick_of(int64_t ms)
{
	return (ms + TIMER_TICK_MS - 1) / TIMER_TICK_MS; /* rounded up: never early */
}

void timers_init(struct timers *w, int64_t now_ms)
{
	for (size_t i = 0; i < TIMER_SLOTS; i++)
		list_init(&w->slots[i]);
	for (size_t i = 0; i < ARRAY_LEN(w->occupied); i++)
		w->occupied[i] = 0;
	w->tick = now_ms / TIMER_TICK_MS;
	w->armed_count = 0;
}

void timer_init(struct timer *t, void (*fire)(struct timer *))
{
	list_init(&t->link);
	t->at_ms = 0;
	t->armed = false;
	t->fire = fire;
}

void timer_set(struct timers *w, struct timer *t, int64_t at_ms)
{
	timer_cancel(w, t);
	int64_t tick = MAX(tick_of(at_ms), w->tick + 1);
	size_t slot = (size_t)(tick % TIMER_SLOTS);
	t->at_ms = at_ms;
	t->armed = true;
	list_push(&w->slots[slot], &t->link);
	w->occupied[slot / 64] |= 1ULL << (slot % 64);
	w->armed_count++;
}

void timer_cancel(struct timers *w, struct timer *t)
{
	if (!t->armed)
		return;
	list_remove(&t->link);
	t->armed = false;
	w->armed_count--;
}

static void slot_run(struct timers *w, size_t slot, int64_t now_ms)
{
	struct list due;
	list_init(&due);
	list_splice(&due, &w->slots[slot]);
	w->occupied[slot / 64] &= ~(1ULL << (slot % 64));

	struct list *node;
	while ((node = list_pop(&due))) {
		struct timer *t = container_of(node, struct timer, link);
		if (t->at_ms > now_ms) { /* a later round */
			list_push(&w->slots[slot], &t->link);
			w->occupied[slot / 64] |= 1ULL << (slot % 64);
			continue;
		}
		t->armed = false;
		w->armed_count--;
		t->fire(t);
	}
}

void timers_run(struct timers *w, int64_t now_ms)
{
	int64_t until = now_ms / TIMER_TICK_MS;
	if (until - w->tick > TIMER_SLOTS) /* a long sleep: one look at every slot is enough */
		w->tick = until - TIMER_SLOTS;
	while (w->tick < until) {
		w->tick++;
		size_t slot = (size_t)(w->tick % TIMER_SLOTS);
		if (w->occupied[slot / 64] & (1ULL << (slot % 64)))
			slot_run(w, slot, now_ms);
	}
}

int timers_sleep_ms(struct timers *w, int64_t now_ms)
{
	if (w->armed_count == 0)
		return -1;
	for (int64_t ahead = 1; ahead <= TIMER_SLOTS; ahead++) {
		size_t slot = (size_t)((w->tick + ahead) % TIMER_SLOTS);
		if (slot % 64 == 0 && w->occupied[slot / 64] == 0) {
			ahead += 63; /* nothing in this word */
			continue;
		}
		if (w->occupied[slot / 64] & (1ULL << (slot % 64)))
			return (int)MAX((w->tick + ahead) * TIMER_TICK_MS - now_ms, 0);
	}
	return TIMER_SLOTS * TIMER_TICK_MS;
}
