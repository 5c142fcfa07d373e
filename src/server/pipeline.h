/*
 * The event pipeline of a process, as the settings say.
 *
 *   server                        log -> stats worker -> sink
 *   server with Kafka             log -> forwarder -> Kafka
 *     and a sink that is a file     and Kafka -> stats worker -> sink
 *   curt worker                   Kafka -> stats worker -> sink
 *   server with role = stats      sink only, for queries
 */
#pragma once

#include "counters/counters.h"
#include "queue/checkpoint.h"
#include "server/folder.h"
#include "server/settings.h"
#include "stats/live_source.h"

/* Zeroed members have not been made. */
struct pipeline {
	const struct settings *settings;
	struct store *store;
	const struct folder *folder; /* the owner's; NULL: none */
	struct sink *sink;
	struct seen *seen;
	struct counters *counters;
	struct event_log *log; /* the owner's */
	struct arena arena;
	bool sink_is_lazy;               /* it did not answer at the start */
	bool has_handover;               /* then: */
	struct checkpoint checkpoint;    /* how far the previous reader had read the log */
	char *events_path;               /* of the log */
	char *checkpoint_path;           /* NULL: the sink keeps positions of the log */
	char *dirty_links_path;          /* of the stats worker that reads the log; NULL: none */
	struct queue *local;             /* the log */
	struct queue *remote;            /* Kafka */
	struct live_source *live_source; /* of the forwarder */
	struct forwarder *forwarder;
	struct stats_worker *stats;
};

/* Where results go; `publish` may be NULL. */
struct pipeline_outlet {
	const char *folder; /* for dead letters */
	void (*publish)(void *ctx, const struct live_batch *news);
	bool (*is_watched)(void *ctx); /* with `publish`: is a client subscribed? */
	void *ctx;
};

/* Opens the sink and what belongs to it. `folder` is NULL for processes without a data folder: they need a
 * shared sink. */
int pipeline_open(struct pipeline *p, const struct settings *s, struct store *store,
                  const struct folder *folder, struct err *e);

/* An event_log_config's resume; ctx is the pipeline. */
int pipeline_resume(void *ctx, uint64_t node, struct arena *arena, struct position **ret, size_t *ret_count);

/* The totals that were read from this node's log before the start. */
int pipeline_counts(struct pipeline *p, uint64_t node, struct event_counts *ret, struct err *e);

/* Reads the log. */
int pipeline_start_server(struct pipeline *p, struct event_log *log, const struct pipeline_outlet *outlet,
                          struct err *e);
/* Reads the queue. */
int pipeline_start_worker(struct pipeline *p, const struct pipeline_outlet *outlet, struct err *e);

/* The reader of the log; NULL: none. */
struct queue_consumer *pipeline_pump(struct pipeline *p);

/* Lets queries to the sink end soon, when this process does not write to it. */
void pipeline_let_go(struct pipeline *p);

/* Ends the threads; call it before the log is closed. Takes a few seconds at most, even when the sink or the
 * queue hangs: the next start reads the rest again. */
void pipeline_stop(struct pipeline *p);
void pipeline_close(struct pipeline *p); /* frees the rest; a zeroed one too */
