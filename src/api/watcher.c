#include "api/watcher.h"

#include "obs/log.h"
#include "os/clock.h"
#include "os/thread.h"

#include <errno.h>
#include <stdlib.h>

enum { LOOK_EVERY_MS = 1000 };

struct watcher {
	struct accounts *accounts;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	bool wanted;
	bool stopping;
};

/* True: the end was asked for. */
static bool wait_for_reason(struct watcher *w)
{
	struct timespec at = clock_mono_after(LOOK_EVERY_MS);
	pthread_mutex_lock(&w->lock);
	while (!w->stopping && !w->wanted && pthread_cond_timedwait(&w->wake, &w->lock, &at) != ETIMEDOUT)
		;
	w->wanted = false;
	bool stopping = w->stopping;
	pthread_mutex_unlock(&w->lock);
	return stopping;
}

static void *watch(void *arg)
{
	struct watcher *w = arg;
	bool failing = false;
	while (!wait_for_reason(w)) {
		int r = accounts_follow(w->accounts);
		if (r < 0 && !failing)
			log_warn(
			    "api",
			    "the store does not say whether accounts have changed (%s); what is known of "
			    "them stays in force",
			    err_name(r));
		if (r == 0 && failing)
			log_info("api", "the store says again whether accounts have changed");
		failing = r < 0;
	}
	return NULL;
}

int watcher_start(struct accounts *a, struct watcher **ret, struct err *e)
{
	struct watcher *w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory");
	w->accounts = a;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	int r = thread_start(&w->thread, "watcher", watch, w, e);
	w->started = r == 0;
	if (r < 0)
		watcher_stop(w);
	else
		*ret = w;
	return r;
}

void watcher_stop(struct watcher *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_broadcast(&w->wake);
	pthread_mutex_unlock(&w->lock);
	if (w->started)
		pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

void watcher_wake(struct watcher *w)
{
	pthread_mutex_lock(&w->lock);
	w->wanted = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}
