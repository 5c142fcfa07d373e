/*
 * The stats worker: reads events from a queue, builds batches, and commits them to the sink together with the
 * positions read. It also flushes the totals of links to the store, and runs the sink's retention.
 */
#pragma once

#include "config/config.h"
#include "counters/counters.h"
#include "queue/consumer.h"
#include "seen/seen.h"
#include "stats/live_batch.h"
#include "store/store.h"

struct stats_worker;

struct stats_settings {
	uint64_t batch;
	uint64_t interval_ms;
	int dedup_key; /* enum dedup_key */
	uint64_t totals_ms;
	uint64_t flush_ms;
	char *places;
};
extern const struct conf_row stats_rows[];
extern const size_t stats_row_count;

struct stats_worker_config {
	const struct stats_settings *settings; /* outlives the worker */
	struct queue *queue;                   /* so do these */
	struct sink *sink;
	struct seen *seen;         /* NULL: none */
	struct counters *counters; /* NULL: none */
	struct store *store;
	const char *folder;                                         /* for dead letters */
	const char *dirty_links;                                    /* path (dirty_links.h); NULL: none */
	uint64_t node;                                              /* under which the store keeps totals */
	uint64_t seen_ms;                                           /* the sink's window for duplicates */
	const uint8_t *dedup_secret;                                /* DEDUP_SECRET_BYTES */
	void (*publish)(void *ctx, const struct live_batch *batch); /* on the worker's thread; may be NULL */
	void *ctx;
};

int stats_worker_start(const struct stats_worker_config *config, struct stats_worker **ret, struct err *e);

/* Reads the rest of the queue for two seconds at most, flushes, and ends. NULL is fine. */
void stats_worker_stop(struct stats_worker *w);

struct queue_consumer *stats_worker_consumer(struct stats_worker *w);
