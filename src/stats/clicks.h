/*
 * Publishes click counts committed to the sink: to the counters after every batch; and to the link store from
 * time to time, if the sink does not track which totals changed.
 *
 * The sink has the exact totals but is slow, so it is queried during at most a tenth of the time. Counters
 * need the totals of links that they do not know; until there is time for that, the API shows the store's
 * total. The store gets the totals of the sink or, if there is no time, of the counters. It gets totals,
 * never differences, so a flush may be repeated. Links that were clicked since their last flush ("dirty") are
 * kept here, and in the counters or in a file, for the next process after a crash.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "counters/counters.h"
#include "obs/metrics.h"
#include "sink/sink.h"
#include "store/store.h"

struct clicks_config {
	struct sink *sink;         /* these three outlive it */
	struct counters *counters; /* NULL: none */
	struct store *store;       /* NULL: the sink's changed totals are flushed instead */
	uint64_t node;             /* under which the store keeps the totals */
	uint64_t flush_ms;         /* interval of flushes to the store */
	const char
	    *dirty_links; /* without counters: the file (dirty_links.h); NULL: none. Outlives it, too */
	struct metrics *metrics;
};

struct clicks;

int clicks_new(const struct clicks_config *config, struct clicks **ret);
void clicks_free(struct clicks *c);

/* Before each attempt to commit the batch; and once it is committed. */
void clicks_announce(struct clicks *c, const struct sink_batch *b);
void clicks_count(struct clicks *c, const struct sink_batch *b);

/* With a store: flushes, or continues a flush, if it is due; between two batches. `finish` flushes everything
 * at the end, for some seconds at most. Links that the store does not accept are retried. */
void clicks_maintain(struct clicks *c);
void clicks_finish(struct clicks *c);

/* Without a store: the sink's totals were flushed. */
void clicks_trim(struct clicks *c);
