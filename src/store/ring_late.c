/* Parts that were away when the ring was opened. A thread tries to open them, while there are any. */
#include "os/clock.h"
#include "os/thread.h"
#include "store/ring_core.h"

#include <stdlib.h>

enum { LATE_PAUSE_MS = 1000 };

struct ring_late {
	struct store_ring *ring;
	pthread_t thread;
	pthread_mutex_t lock; /* guards `ends` */
	pthread_cond_t end;
	bool ends;
};

/* True when all are there. */
static bool parts_open(struct store_ring *s)
{
	bool all = true;
	for (size_t i = 0; i < s->part_count; i++) {
		const struct store_ring_part *config = &s->parts[i].config;
		struct store *store = NULL;
		if (ring_store(s, i))
			continue;
		if (config->open(config->ctx, &store, NULL) == 0)
			atomic_store_explicit(&s->parts[i].store, store, memory_order_release);
		all &= store != NULL;
	}
	return all;
}

/* False when it is time to end. */
static bool pause_here(struct ring_late *l)
{
	struct timespec until = clock_mono_after(LATE_PAUSE_MS);
	pthread_mutex_lock(&l->lock);
	while (!l->ends && pthread_cond_timedwait(&l->end, &l->lock, &until) == 0)
		;
	bool goes_on = !l->ends;
	pthread_mutex_unlock(&l->lock);
	return goes_on;
}

static void *late_run(void *arg)
{
	struct ring_late *l = arg;
	while (pause_here(l) && !parts_open(l->ring))
		;
	return NULL;
}

static void late_free(struct ring_late *l)
{
	pthread_cond_destroy(&l->end);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int ring_late_begin(struct store_ring *s, struct err *e)
{
	bool all = true;
	for (size_t i = 0; i < s->part_count; i++)
		all &= ring_store(s, i) != NULL;
	if (all)
		return 0;
	struct ring_late *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory");
	l->ring = s;
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&l->end, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&l->lock, NULL);
	int r = thread_start(&l->thread, "curt-ring-late", late_run, l, e);
	if (r < 0) {
		late_free(l);
		return r;
	}
	s->late = l;
	return 0;
}

void ring_late_end(struct store_ring *s)
{
	struct ring_late *l = s->late;
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->ends = true;
	pthread_cond_signal(&l->end);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	late_free(l);
	s->late = NULL;
}
