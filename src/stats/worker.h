/*
 * The stats worker: one thread that reads the event log, makes batches of what it finds, and commits them to
 * the sink together with how far it has read. It also flushes per-link totals to the store, lets the sink
 * tidy up, and removes segments that are done with.
 *
 * A sink that fails holds it up: the same batch is tried again until it works, and meanwhile the spool grows.
 */
#pragma once

#include "config/config.h"
#include "event/log.h"
#include "stats/news.h"
#include "store/store.h"

struct stats_worker;

struct stats_settings {
	uint64_t batch;
	uint64_t interval_ms;
	int dedup_key; /* enum dedup_key */
	uint64_t totals_ms;
	char *places;
};
extern const struct conf_row stats_rows[];
extern const size_t stats_row_count;

struct stats_worker_config {
	const struct stats_settings *settings; /* outlives the worker */
	struct event_log *log;
	struct sink *sink;
	struct store *store;
	const struct event_settings *events;                       /* for what is kept */
	uint64_t seen_ms;                                          /* the sink's window for duplicates */
	const uint8_t *dedup_secret;                               /* DEDUP_SECRET_BYTES of them */
	void (*publish)(void *ctx, const struct stats_news *news); /* on the worker's thread; may be NULL */
	void *ctx;
};

int stats_worker_start(const struct stats_worker_config *config, struct stats_worker **ret, struct err *e);

/* Reads what is left (for a moment at most: the rest is there at the next start), flushes, and ends. NULL is
 * fine. */
void stats_worker_stop(struct stats_worker *w);

/*
 * Returns 0 when everything that was written to the event log before the call is in the sink, or was found
 * to be unreadable; ERR_UNAVAILABLE when that was not reached in time, or the worker ends meanwhile. The
 * worker is woken for it, so this takes as long as reading what is left and a commit do (and a chore, if it
 * is at one). What is written during the call is not waited for. Any thread that may block, several at once;
 * none may begin once stats_worker_stop was called.
 */
int stats_worker_catch_up(struct stats_worker *w, uint64_t timeout_ms) MUST_CHECK;

/* From now on nobody waits: those who do are told so. Before the threads that may wait are ended. */
void stats_worker_let_go(struct stats_worker *w);

/* 0, or why events are not analysed at present: a sentence for /readyz. Any thread. */
int stats_worker_trouble(struct stats_worker *w, struct err *e);
