#include "server/worker_service.h"

#include "base/json_out.h"
#include "os/file.h"
#include "os/thread.h"
#include "queue/queue_kafka.h"
#include "server/backends.h"

#include <stdio.h>
#include <stdlib.h>

enum { LAGS_MAX = 4096, CLOSING_MAX = 64, STATUS_BACKLOG = 64, STATUS_DRAIN_MS = 500 };

/* Status over HTTP; nothing here blocks. */

static void answer(struct http_conn *c, int code, struct str type, struct str body)
{
	const struct http_response r = {.status = code, .content_type = type, .body = body};
	http_reply(c, &r);
}

static int worker_check(struct pipeline *p, struct err *why)
{
	return queue_consumer_trouble(stats_worker_consumer(p->stats), why);
}

static int seen_check(struct pipeline *p, struct err *why)
{
	return p->seen ? p->seen->ops->trouble(p->seen, why) : 0;
}

/* For each check, the first problem of any thread. */
static void answer_ready(struct worker_service *w, struct http_conn *c)
{
	static const struct {
		const char *name;
		int (*check)(struct pipeline *p, struct err *why);
	} checks[] = {{"worker", worker_check}, {"seen", seen_check}};
	struct buf CLEANUP(buf_release) list = {0}, body = {0};
	bool ready = true;
	for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
		struct err why;
		int r = 0;
		for (size_t k = 0; k < w->count && r == 0; k++)
			r = checks[i].check(&w->pipelines[k], &why);
		buf_printf(&list, "%s\"%s\":", i > 0 ? "," : "", checks[i].name);
		json_out_str(&list, r == 0 ? STR("ok") : str_of(why.text));
		ready &= r == 0;
	}
	buf_printf(&body, "{\"status\":\"%s\",\"checks\":{%.*s}}", ready ? "ready" : "degraded",
	           STR_ARG(buf_view(&list)));
	answer(c, ready ? 200 : 503, STR("application/json"), buf_view(&body));
}

static void answer_metrics(struct worker_service *w, struct http_conn *c)
{
	struct buf CLEANUP(buf_release) out = {0};
	metrics_write_common(&out);
	metrics_write_family(&out, &metrics_queue_lag);
	for (size_t k = 0; k < w->count; k++) {
		size_t n = queue_kafka_lags(w->pipelines[k].remote, w->lags, LAGS_MAX);
		for (size_t i = 0; i < n; i++)
			buf_printf(&out, "%s{topic=\"%s\",partition=\"%d\"} %llu\n", metrics_queue_lag.name,
			           w->lags[i].topic, (int)w->lags[i].partition,
			           (unsigned long long)w->lags[i].messages);
	}
	answer(c, 200, STR("text/plain; version=0.0.4; charset=utf-8"), buf_view(&out));
}

static const struct http_field allow = {STR("Allow"), STR("GET, HEAD, OPTIONS")};
static const struct http_response not_allowed = {.status = 405,
                                                 .content_type = STR("text/plain"),
                                                 .body = STR("only GET and HEAD are allowed here\n"),
                                                 .fields = &allow,
                                                 .field_count = 1};

static void handle(void *ctx, struct http_conn *c, const struct http_request *req)
{
	struct worker_service *w = ctx;
	static const struct http_response options = {.status = 204, .fields = &allow, .field_count = 1};
	if (req->method != HTTP_GET && req->method != HTTP_HEAD)
		http_reply(c, req->method == HTTP_OPTIONS ? &options : &not_allowed);
	else if (str_eq(req->path, STR("/healthz")))
		answer(c, 200, STR("text/plain"), STR("ok\n"));
	else if (str_eq(req->path, STR("/readyz")))
		answer_ready(w, c);
	else if (str_eq(req->path, STR("/metrics")))
		answer_metrics(w, c);
	else
		answer(c, 404, STR("text/plain"),
		       STR("not found; there are /healthz, /readyz and /metrics\n"));
}

static void refuse(void *ctx, struct http_conn *c, int code, const char *reason)
{
	(void)ctx;
	if (code == 405) /* CONNECT */
		http_reply(c, &not_allowed);
	else
		answer(c, code, STR("text/plain"), str_of(reason));
}

static int start_status(struct worker_service *w, const struct settings *s, struct err *e)
{
	if (!s->serve.worker_listen[0])
		return 0;
	const struct http_handler handler = {.handle = handle, .refuse = refuse, .ctx = w};
	struct net_addr addr;
	struct metrics *metrics = metrics_register();
	int fd = -1;
	int r = metrics ? net_addr_parse(str_of(s->serve.worker_listen), &addr, e)
	                : err_set(e, ERR_NOMEM, "out of memory for counters");
	if (r == 0)
		r = net_port_is_free(&addr, e);
	if (r == 0)
		r = net_listen(&addr, STATUS_BACKLOG, &fd, e);
	if (r == 0)
		r = listener_new("status", &s->http, fd, metrics, &w->status, e);
	if (r == 0) {
		net_addr_format(&addr, w->status_address);
		r = listener_start(w->status, &handler, e);
	}
	return r;
}

static void stop_status(struct worker_service *w)
{
	if (!w->status)
		return;
	listener_drain(w->status, STATUS_DRAIN_MS, NULL, NULL);
	listener_join(w->status);
	listener_free(w->status);
}

static void *close_thread(void *arg)
{
	pipeline_close(arg);
	return NULL;
}

/* In parallel: a pipeline that must wait does not delay the others. */
static void close_all(struct worker_service *w)
{
	struct err e;
	pthread_t threads[CLOSING_MAX];
	size_t started = 0;
	while (started < MIN(w->count, (size_t)CLOSING_MAX) &&
	       thread_start(&threads[started], "closing", close_thread, &w->pipelines[started], &e) == 0)
		started++;
	for (size_t i = started; i < w->count; i++)
		pipeline_close(&w->pipelines[i]);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

void worker_service_stop(struct worker_service *w)
{
	stop_status(w);
	close_all(w);
	free(w->pipelines);
	store_free(w->store);
	free(w->folder);
	free(w->lags);
}

static int folder_make(struct worker_service *w, const struct settings *s, struct err *e)
{
	w->lags = calloc(LAGS_MAX, sizeof(*w->lags));
	if (!w->lags || asprintf(&w->folder, "%s/worker", s->data) < 0) {
		w->folder = NULL;
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	return dir_create(w->folder, 0700, e);
}

static int start_threads(struct worker_service *w, const struct settings *s, struct err *e)
{
	const struct pipeline_outlet outlet = {.folder = w->folder};
	w->pipelines = calloc(s->serve.worker_threads, sizeof(*w->pipelines));
	if (!w->pipelines)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = 0;
	for (; r == 0 && w->count < s->serve.worker_threads; w->count++) {
		struct pipeline *p = &w->pipelines[w->count];
		r = pipeline_open(p, s, w->store, NULL, e);
		if (r == 0)
			r = pipeline_start_worker(p, &outlet, e);
	}
	return r;
}

int worker_service_start(struct worker_service *w, const struct settings *s, struct err *e)
{
	if (!s->queue.url[0])
		return err_set(e, ERR_INVALID,
		               "queue.url is not set, and curt worker reads events from there; write "
		               "kafka://HOST:PORT");
	int r = backend_check_shared(s, e) ?: backend_check_start(s, e) ?: folder_make(w, s, e);
	if (r == 0)
		r = backend_open_store(s->serve.store_url, NULL, &w->store, e);
	if (r == 0)
		r = start_threads(w, s, e);
	return r < 0 ? r : start_status(w, s, e);
}
