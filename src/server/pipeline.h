/*
 * The way of events in this process, as the settings say.
 *
 * - A server on its own log: log -> stats worker -> sink.
 * - A server with a Kafka: log -> forwarder -> Kafka. When nobody else can write to the sink, since it is a
 *   file of this machine, also Kafka -> stats worker -> sink.
 * - curt worker: Kafka -> stats worker -> sink.
 * - A server that only answers: the sink alone.
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
	bool sink_is_lazy;               /* it was away at the start */
	bool has_handover;               /* then: */
	struct checkpoint checkpoint;    /* how far the log had been read at the start, by whomever */
	char *events_path;               /* of the log */
	char *checkpoint_path;           /* NULL: the sink keeps positions of the log */
	char *dirty_links_path;          /* of the stats worker that reads the log; NULL: none */
	struct queue *local;             /* the log */
	struct queue *remote;            /* Kafka */
	struct live_source *live_source; /* of the forwarder */
	struct forwarder *forwarder;
	struct stats_worker *stats;
};

/* Whose news go where; `publish` may be NULL. */
struct pipeline_outlet {
	const char *folder; /* for dead letters */
	void (*publish)(void *ctx, const struct live_batch *news);
	bool (*is_watched)(void *ctx); /* with it: does anybody want news? */
	void *ctx;
};

/* Opens the sink and what belongs to it. `folder`: NULL for processes without one, which need a sink that is
 * elsewhere. */
int pipeline_open(struct pipeline *p, const struct settings *s, struct store *store,
                  const struct folder *folder, struct err *e);

/* An event_log_config's resume; ctx is the pipeline. */
int pipeline_resume(void *ctx, uint64_t node, struct arena *arena, struct position **ret, size_t *ret_count);

/* What was read of this node's log in all, at the start. */
int pipeline_counts(struct pipeline *p, uint64_t node, struct event_counts *ret, struct err *e);

/* From the log onwards. */
int pipeline_start_server(struct pipeline *p, struct event_log *log, const struct pipeline_outlet *outlet,
                          struct err *e);
/* From the queue onwards. */
int pipeline_start_worker(struct pipeline *p, const struct pipeline_outlet *outlet, struct err *e);

/* What reads the log: for whoever waits for it, or asks how it is. */
struct queue_consumer *pipeline_pump(struct pipeline *p);

/* Questions to the sink end soon, when nobody here writes to it. */
void pipeline_let_go(struct pipeline *p);

/* The threads; before the log is closed. A few seconds, also when the sink or the queue hangs: what was not
 * taken is read again after the next start. */
void pipeline_stop(struct pipeline *p);
void pipeline_close(struct pipeline *p); /* the rest; zeroed ones too */
