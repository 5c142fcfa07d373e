/* curt worker: takes events from the queue, and puts them into the sink. */
#include "cmd/backends.h"
#include "cmd/command.h"
#include "cmd/pipeline.h"
#include "cmd/service.h"
#include "cmd/status.h"
#include "os/file.h"
#include "os/thread.h"
#include "queue/queue_kafka.h"

#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: curt worker [--config FILE] [--SETTING VALUE]...\n"
    "\n"
    "Takes clicks and impressions from queue.url, without the duplicates, and puts them into sink.url. Any\n"
    "number may run: those of one queue.group share the work. What cannot be read goes to\n"
    "worker/dead-letters.ndjson in the data folder (serve.data). SIGTERM ends it.\n"
    "\n";

enum { LAGS_MAX = 4096, CLOSING_MAX = 64 };

struct worker_service {
	struct store *store;
	struct pipeline *pipelines; /* one for each thread */
	size_t count;
	struct status *status;
	char *folder;
	struct queue_lag *lags; /* the status thread's own */
};

static int worker_check(struct pipeline *p, struct err *why)
{
	return pump_trouble(stats_worker_pump(p->stats), why);
}

static int seen_check(struct pipeline *p, struct err *why)
{
	return p->seen ? p->seen->ops->trouble(p->seen, why) : 0;
}

/* What is wrong with one of the threads. */
static bool check(void *ctx, size_t number, const char **ret_name, int *ret, struct err *why)
{
	static const struct {
		const char *name;
		int (*check)(struct pipeline *p, struct err *why);
	} checks[] = {{"worker", worker_check}, {"seen", seen_check}};
	struct worker_service *w = ctx;
	if (number >= ARRAY_LEN(checks))
		return false;
	*ret_name = checks[number].name;
	*ret = 0;
	for (size_t i = 0; i < w->count && *ret == 0; i++)
		*ret = checks[number].check(&w->pipelines[i], why);
	return true;
}

static void gauges(void *ctx, struct buf *out)
{
	struct worker_service *w = ctx;
	buf_str(out, STR("# HELP curt_queue_lag Messages of a partition that wait to be counted\n"
	                 "# TYPE curt_queue_lag gauge\n"));
	for (size_t k = 0; k < w->count; k++) {
		size_t n = queue_kafka_lags(w->pipelines[k].remote, w->lags, LAGS_MAX);
		for (size_t i = 0; i < n; i++)
			buf_printf(out, "curt_queue_lag{topic=\"%s\",partition=\"%d\"} %llu\n",
			           w->lags[i].topic, (int)w->lags[i].partition,
			           (unsigned long long)w->lags[i].messages);
	}
}

static void *close_thread(void *arg)
{
	pipeline_close(arg);
	return NULL;
}

/* All at the same time: one that has to wait does not make the others wait. */
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

static void stop(void *ctx)
{
	struct worker_service *w = ctx;
	status_stop(w->status);
	close_all(w);
	free(w->pipelines);
	store_free(w->store);
	free(w->folder);
	free(w->lags);
}

static int folder_make(struct worker_service *w, const struct settings *s, struct err *e)
{
	w->lags = calloc(LAGS_MAX, sizeof(*w->lags));
	if (!w->lags || asprintf(&w->folder, "%s/worker", s->serve.data) < 0) {
		w->folder = NULL;
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	return dir_create(w->folder, 0700, e);
}

static int start_status(struct worker_service *w, const struct settings *s, struct err *e)
{
	if (!s->serve.worker_listen[0])
		return 0;
	const struct status_config config = {
	    .listen = s->serve.worker_listen, .http = &s->http, .check = check, .gauges = gauges, .ctx = w};
	return status_start(&config, &w->status, e);
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

static int start(void *ctx, const struct settings *s, struct err *e)
{
	struct worker_service *w = ctx;
	if (!s->queue.url[0])
		return err_set(e, ERR_INVALID,
		               "queue.url is not set: curt worker reads the queue that servers send their "
		               "events to; write kafka://HOST:PORT");
	int r = folder_make(w, s, e);
	if (r == 0)
		r = backend_open_store(s->serve.store_url, NULL, &w->store, e);
	if (r == 0)
		r = start_threads(w, s, e);
	if (r == 0)
		r = start_status(w, s, e);
	if (r < 0)
		return r;
	if (w->status)
		printf("worker: ready, status on http://%s\n", status_address(w->status));
	else
		printf("worker: ready\n");
	fflush(stdout);
	return 0;
}

int cmd_worker(int argc, char **argv)
{
	struct worker_service w = {0};
	struct settings settings = {0};
	const struct service service = {
	    .usage = usage, .settings = &settings, .start = start, .stop = stop, .ctx = &w};
	return service_run(&service, argc, argv);
}
