/* `curt worker`: threads that read events from the queue and write them to the sink, and an HTTP status. */
#pragma once

#include "os/net.h"
#include "server/listener.h"
#include "server/pipeline.h"

/* Zeroed members have not been made. */
struct worker_service {
	struct store *store;
	struct pipeline *pipelines; /* one for each thread */
	size_t count;
	char *folder;
	struct listener *status;                  /* NULL: worker.listen is empty */
	char status_address[NET_ADDR_TEXT_BYTES]; /* with it */
	struct queue_lag *lags;                   /* used by the status thread only */
};

int worker_service_start(struct worker_service *w, const struct settings *s, struct err *e);
void worker_service_stop(struct worker_service *w); /* also after a start that failed */
