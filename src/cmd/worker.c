#include "cmd/worker.h"

#include "api/live.h"
#include "os/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { DRAIN_LOOK_MS = 20 };

struct worker {
	struct loop *loop;
	struct http_server *http;
	struct api_worker api;
	unsigned number;
	int listen_fd; /* until the loop has it */
	pthread_t thread;
	bool started;
	struct mail drain_mail;
	struct timer drain_timer;
	uint64_t drain_ms;
	int64_t drain_until_ms;
};

static void *worker_thread(void *arg)
{
	struct worker *w = arg;
	loop_run(w->loop);
	return NULL;
}

static void abort_one(struct stream *s, void *ctx)
{
	(void)ctx;
	stream_abort(s);
}

/* A promise to a peer that has gone keeps its connection until the pool has answered, so this looks again. */
static void drain_look(struct timer *t)
{
	struct worker *w = container_of(t, struct worker, drain_timer);
	if (http_server_is_idle(w->http)) {
		loop_stop(w->loop);
		return;
	}
	if (loop_mono_ms(w->loop) >= w->drain_until_ms)
		loop_each_stream(w->loop, abort_one, NULL);
	timer_set(loop_timers(w->loop), t, loop_mono_ms(w->loop) + DRAIN_LOOK_MS);
}

static void drain_begin(struct mail *m)
{
	struct worker *w = container_of(m, struct worker, drain_mail);
	w->drain_until_ms = loop_mono_ms(w->loop) + (int64_t)w->drain_ms;
	http_server_drain(w->http);
	timer_init(&w->drain_timer, drain_look);
	drain_look(&w->drain_timer);
}

int worker_new(struct api *api, const struct capture_rules *rules, unsigned number,
               const struct http_settings *http, int listen_fd, struct worker **ret, struct err *e)
{
	struct worker *w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory for a worker");
	w->number = number;
	w->listen_fd = listen_fd;
	w->drain_mail.open = drain_begin;
	w->api = (struct api_worker){.api = api, .metrics = metrics_register()};
	struct loop_config config = {.streams_max = http->connections_max, .metrics = w->api.metrics};
	int r = w->api.metrics ? loop_new(&config, &w->loop, e)
	                       : err_set(e, ERR_NOMEM, "out of memory for counters");
	if (r == 0) {
		w->api.loop = w->loop;
		capture_init(&w->api.capture, rules, number, w->loop, w->api.metrics);
		live_worker_init(&w->api);
		struct http_handler handler = api_handler(&w->api);
		r = http_server_new(w->loop, http, &handler, w->api.metrics, &w->http, e);
	}
	if (r < 0) {
		worker_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

struct api_worker *worker_api(struct worker *w)
{
	return &w->api;
}

int worker_start(struct worker *w, struct err *e)
{
	char name[16];
	snprintf(name, sizeof(name), "worker-%u", w->number % 1000);
	int r = http_server_listen(w->http, w->listen_fd, e);
	if (r < 0)
		return r;
	r = thread_start(&w->thread, name, worker_thread, w, e);
	w->started = r == 0;
	return r;
}

void worker_drain(struct worker *w, uint64_t drain_ms)
{
	if (!w->started)
		return;
	w->drain_ms = drain_ms;
	loop_post(w->loop, &w->drain_mail);
}

void worker_join(struct worker *w)
{
	if (w->started)
		pthread_join(w->thread, NULL);
	w->started = false;
}

void worker_free(struct worker *w)
{
	if (!w)
		return;
	http_server_free(w->http);
	loop_free(w->loop);
	free(w);
}
