/*
 * The stats worker: takes events from a queue, makes batches of them, and commits those to the sink together
 * with how far it has read. It also flushes per-link totals to the store, and lets the sink tidy up.
 */
#pragma once

#include "config/config.h"
#include "counters/counters.h"
#include "queue/pump.h"
#include "seen/seen.h"
#include "stats/news.h"
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
	struct queue *queue;                   /* these three outlive the worker, too */
	struct sink *sink;
	struct seen *seen;         /* likewise; NULL: none */
	struct counters *counters; /* likewise */
	struct store *store;
	const char *folder; /* for dead letters */
	const char
	    *dirty_links; /* the file for links that the store has not heard of (untold.h); NULL: none */
	uint64_t node;    /* under which the store adds totals up */
	uint64_t seen_ms; /* the sink's window for duplicates */
	const uint8_t *dedup_secret;                               /* DEDUP_SECRET_BYTES of them */
	void (*publish)(void *ctx, const struct stats_news *news); /* on the worker's thread; may be NULL */
	void *ctx;
};

int stats_worker_start(const struct stats_worker_config *config, struct stats_worker **ret, struct err *e);

/* Reads what is left (for a moment at most: the rest is there at the next start), flushes, and ends. NULL is
 * fine. */
void stats_worker_stop(struct stats_worker *w);

/* The thread that reads the queue, for whoever waits for it or asks how it is. */
struct pump *stats_worker_pump(struct stats_worker *w);
