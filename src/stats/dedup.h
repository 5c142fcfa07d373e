/*
 * Removes impressions from a batch that were counted before, for sinks whose commit does not detect
 * duplicates (those with `find_duplicates`); for others it does nothing. The filter is asked first, and the
 * sink about the rest: the sink alone would be correct, but slow. For events in doubt (queue.h), the filter
 * may not know that they were counted, or which of two was. The sink is always asked about those, and the one
 * it has stays, so that the result is the same as the first time.
 *
 * Owned by the stats worker's thread.
 */
#pragma once

#include "seen/seen.h"
#include "sink/sink.h"

struct dedup;

/* `filter` may be NULL. It and the sink outlive the dedup. */
int dedup_new(struct sink *sink, struct seen *filter, struct dedup **ret);
void dedup_free(struct dedup *d);

/* Once per batch, before the first attempt to commit it: a retry must have the same rows. Changes the batch's
 * impressions, notes and tally, which are then valid until the next call. `partitions` are the queue's. */
int dedup_filter(struct dedup *d, struct sink_batch *b, const struct advance *partitions,
                 size_t partition_count);

/* Records the filtered batch in the filter, after the sink has committed it. */
void dedup_record(struct dedup *d);
