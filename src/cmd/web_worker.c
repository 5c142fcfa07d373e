#include "cmd/web_worker.h"

#include "api/live.h"

#include <stdio.h>
#include <stdlib.h>

struct web_worker {
	struct listener *listener;
	struct api_worker api;
};

int web_worker_new(struct api *api, const struct capture_rules *rules, unsigned number,
                   const struct http_settings *http, int listen_fd, struct web_worker **ret, struct err *e)
{
	char name[16];
	struct web_worker *w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory for a worker");
	snprintf(name, sizeof(name), "worker-%u", number % 1000);
	w->api = (struct api_worker){.api = api, .metrics = metrics_register()};
	int r = w->api.metrics ? listener_new(name, http, listen_fd, w->api.metrics, &w->listener, e)
	                       : err_set(e, ERR_NOMEM, "out of memory for counters");
	if (r < 0) {
		web_worker_free(w);
		return r;
	}
	w->api.loop = listener_loop(w->listener);
	capture_init(&w->api.capture, rules, number, w->api.loop, w->api.metrics);
	live_worker_init(&w->api);
	*ret = w;
	return 0;
}

struct api_worker *web_worker_api(struct web_worker *w)
{
	return &w->api;
}

struct listener *web_worker_listener(struct web_worker *w)
{
	return w->listener;
}

int web_worker_start(struct web_worker *w, struct err *e)
{
	const struct http_handler handler = api_handler(&w->api);
	return listener_start(w->listener, &handler, e);
}

void web_worker_free(struct web_worker *w)
{
	if (!w)
		return;
	listener_free(w->listener);
	free(w);
}
