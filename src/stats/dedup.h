/*
 * Leaves out of a batch the impressions that were counted before, for sinks whose commit cannot tell (those
 * with `recall`); for others it does nothing. The filter is asked first, the sink about the rest: a sink that
 * is asked for every impression is right, and slow. Of events that are in doubt (queue.h) the filter may not
 * know that they were counted, or which of two: about those the sink is always asked, and the one that it has
 * stays, so that all comes out as it did the first time.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "seen/seen.h"
#include "sink/sink.h"

struct dedup;

/* `filter` may be NULL; it outlives the dedup, as does the sink. */
int dedup_new(struct sink *sink, struct seen *filter, struct dedup **ret);
void dedup_free(struct dedup *d);

/* Once for each batch, before it is committed: a commit that is tried again must be of the very same rows.
 * Changes the batch's impressions, notes and tally; what they point to is good until the next call. `partitions`
 * are the queue's. */
int dedup_sift(struct dedup *d, struct sink_batch *b, const struct advance *partitions, size_t partition_count);

/* The sink has what was sifted last. */
void dedup_remember(struct dedup *d);
