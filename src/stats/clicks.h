/*
 * Tells others the clicks of links, as they were committed to the sink: the counters after every batch; and,
 * for sinks that do not know themselves which totals have changed, the link store now and then, many links at
 * a time.
 *
 * The sink has the truth, and it is slow to tell it: it is asked for totals during a tenth of the time at
 * most. The counters want those of links that they do not know; links for which there is no time are shown as
 * the store knows them. The store is told what the sink says, or, when there is no time, the counters. It
 * gets totals, never differences, so that telling it twice changes nothing. Which links it has not heard of
 * since they were clicked is remembered here, and by the counters or in a file for whoever comes after a
 * crash.
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
	struct store *store;       /* NULL: others tell it */
	uint64_t node;             /* under which the store adds them up */
	uint64_t flush_ms;         /* how often the store is told */
	const char
	    *dirty_links; /* without counters: the file (untold.h); NULL: none. It outlives this, too */
	struct metrics *metrics;
};

struct clicks;

int clicks_new(const struct clicks_config *config, struct clicks **ret);
void clicks_free(struct clicks *c);

/* Each time before the sink is given the batch; and once it has it. */
void clicks_announce(struct clicks *c, const struct sink_batch *b);
void clicks_count(struct clicks *c, const struct sink_batch *b);

/* With a store. Between two batches: tells it when it is time, or some of what is left of that. At the end:
 * all of it, for some seconds at most. What the store does not take is kept, and tried again. */
void clicks_chores(struct clicks *c);
void clicks_finish(struct clicks *c);

/* Without one: it was told. */
void clicks_trim(struct clicks *c);
