#include "cmd/service.h"
#include "server/worker_service.h"

#include <stdio.h>

static int start(void *ctx, const struct settings *settings, struct err *e)
{
	struct worker_service *w = ctx;
	int r = worker_service_start(w, settings, e);
	if (r == 0 && w->status)
		printf("worker: ready, status on http://%s\n", w->status_address);
	else if (r == 0)
		puts("worker: ready");
	return r;
}

static void stop(void *ctx)
{
	worker_service_stop(ctx);
}

static int run(struct args *a)
{
	struct worker_service w = {0};
	return service_run(&(struct service){.start = start, .stop = stop, .ctx = &w}, a);
}

const struct command worker_command = {
    .name = "worker",
    .summary = "Read events from the queue, remove duplicates and count them",
    .details =
        "Reads clicks and impressions from queue.url and writes them to sink.url. Any number of workers "
        "may run: those of one queue.group share the work. Unreadable events go to "
        "worker/dead-letters.ndjson in the data folder. SIGTERM stops it.",
    .examples = "curt worker --config cluster.conf --data /srv/worker --worker-listen 127.0.0.1:8090",
    .takes_settings = true,
    .run = run,
};
