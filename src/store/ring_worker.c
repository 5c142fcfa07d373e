#include "store/ring_worker.h"

#include "os/clock.h"
#include "os/thread.h"

#include <stdlib.h>

enum { PAUSE_MS = 1000 };

struct ring_worker {
	struct store_ring *ring;
	bool (*step)(struct store_ring *s);
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	bool is_poked, ends;
};

/* Pokes do not shorten it. */
static void pause_locked(struct ring_worker *w)
{
	struct timespec until = clock_mono_after(PAUSE_MS);
	while (!w->ends && pthread_cond_timedwait(&w->wake, &w->lock, &until) == 0)
		;
	w->is_poked = true;
}

static void *worker_run(void *arg)
{
	struct ring_worker *w = arg;
	pthread_mutex_lock(&w->lock);
	while (!w->ends) {
		if (!w->is_poked) {
			pthread_cond_wait(&w->wake, &w->lock);
			continue;
		}
		w->is_poked = false;
		pthread_mutex_unlock(&w->lock);
		bool done = w->step(w->ring);
		pthread_mutex_lock(&w->lock);
		if (!done)
			pause_locked(w);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void release(struct ring_worker *w)
{
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

int ring_worker_new(struct store_ring *s, const char *name, bool (*step)(struct store_ring *s),
                    struct ring_worker **ret, struct err *e)
{
	struct ring_worker *w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory");
	w->ring = s;
	w->step = step;
	w->is_poked = true;
	pthread_condattr_t attributes;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&w->lock, NULL);
	int r = thread_start(&w->thread, name, worker_run, w, e);
	if (r < 0) {
		release(w);
		return r;
	}
	*ret = w;
	return 0;
}

void ring_worker_poke(struct ring_worker *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->is_poked = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void ring_worker_free(struct ring_worker *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ends = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	release(w);
}
