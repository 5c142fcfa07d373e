#include "server/listener.h"

#include "os/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	DRAIN_LOOK_MS = 20,
	DRAIN_NEW_PART = 10, /* of the time: for the first byte of a new connection */
	NAME_BYTES = 16,
};

struct listener {
	struct loop *loop;
	struct http_server *http;
	struct http_settings settings;
	struct metrics *metrics;
	char name[NAME_BYTES];
	int listen_fd; /* until the loop has it */
	pthread_t thread;
	bool started;
	struct mail drain_mail;
	struct timer drain_timer;
	uint64_t drain_ms;
	int64_t drain_until_ms;
	void (*cut_off)(void *ctx);
	void *cut_off_ctx;
};

static void *listener_thread(void *arg)
{
	struct listener *l = arg;
	loop_run(l->loop);
	return NULL;
}

static void abort_one(struct stream *s, void *ctx)
{
	(void)ctx;
	stream_abort(s);
}

/* Looks again and again: connections may still come out of the system's queue, and one whose peer has left
 * stays until the pool has answered. */
static void drain_look(struct timer *t)
{
	struct listener *l = container_of(t, struct listener, drain_timer);
	bool is_last = loop_mono_ms(l->loop) >= l->drain_until_ms;
	if (http_server_drained(l->http, is_last)) {
		loop_stop(l->loop);
		return;
	}
	if (is_last)
		loop_each_stream(l->loop, abort_one, NULL);
	if (is_last && l->cut_off)
		l->cut_off(l->cut_off_ctx);
	timer_set(loop_timers(l->loop), t, loop_mono_ms(l->loop) + DRAIN_LOOK_MS);
}

static void drain_begin(struct mail *m)
{
	struct listener *l = container_of(m, struct listener, drain_mail);
	l->drain_until_ms = loop_mono_ms(l->loop) + (int64_t)l->drain_ms;
	http_server_drain(l->http, l->drain_ms / DRAIN_NEW_PART);
	timer_init(&l->drain_timer, drain_look);
	if (l->drain_ms == 0)
		drain_look(&l->drain_timer);
	else
		timer_set(loop_timers(l->loop), &l->drain_timer, loop_mono_ms(l->loop) + DRAIN_LOOK_MS);
}

int listener_new(const char *name, const struct http_settings *http, int listen_fd, struct metrics *metrics,
                 struct listener **ret, struct err *e)
{
	struct listener *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory for a worker");
	snprintf(l->name, sizeof(l->name), "%s", name);
	l->settings = *http;
	l->metrics = metrics;
	l->listen_fd = listen_fd;
	l->drain_mail.open = drain_begin;
	const struct loop_config config = {.streams_max = http->connections_max, .metrics = metrics};
	int r = loop_new(&config, &l->loop, e);
	if (r < 0) {
		listener_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

struct loop *listener_loop(struct listener *l)
{
	return l->loop;
}

int listener_start(struct listener *l, const struct http_handler *handler, struct err *e)
{
	int r = http_server_new(l->loop, &l->settings, handler, l->metrics, &l->http, e);
	if (r == 0)
		r = http_server_listen(l->http, l->listen_fd, e);
	if (r == 0)
		r = thread_start(&l->thread, l->name, listener_thread, l, e);
	l->started = r == 0;
	return r;
}

void listener_drain(struct listener *l, uint64_t drain_ms, void (*cut_off)(void *ctx), void *ctx)
{
	if (!l->started)
		return;
	l->drain_ms = drain_ms;
	l->cut_off = cut_off;
	l->cut_off_ctx = ctx;
	loop_post(l->loop, &l->drain_mail);
}

void listener_join(struct listener *l)
{
	if (l->started)
		pthread_join(l->thread, NULL);
	l->started = false;
}

void listener_free(struct listener *l)
{
	if (!l)
		return;
	http_server_free(l->http);
	loop_free(l->loop);
	free(l);
}
