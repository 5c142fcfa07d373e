/*
 * The role `queue` on Kafka: partitions are the streams, numbered by topic and partition. Several workers are
 * a group and share them.
 *
 * What the sink keeps decides where a partition is read on, and what it has nothing of is read from the
 * beginning. Of a sink that keeps no positions the group's own offset decides. That one is told in any case,
 * without waiting, after the sink has the events: it may be late, and then events come again, with the same
 * ids. A group without an offset tells that a topic was made again: it is read from the beginning, too.
 * Messages that Kafka removed before they were read are told of in the log, and counted. What the forwarders
 * sent twice is left out (marks.h). A message that is no event comes as an EVENT_UNUSABLE.
 */
#pragma once

#include "base/arena.h"
#include "queue/queue.h"
#include "queue/settings.h"

struct queue_kafka_config {
	const struct queue_settings *settings; /* outlives the queue */
	/* How far the sink has all streams of this source; NULL: it keeps no positions. By the thread that
	 * reads. */
	int (*resume)(void *ctx, uint64_t source, struct arena *arena, struct position **ret,
	              size_t *ret_count);
	void *ctx;
};

int queue_kafka_new(const struct queue_kafka_config *config, struct queue **ret, struct err *e);

/* Messages of a partition that were not committed yet. */
struct queue_lag {
	const char *topic; /* the queue's own */
	int32_t partition;
	uint64_t messages;
};

/* Of the partitions that we read, as of the last round; at most `max`. Any thread. */
size_t queue_kafka_lags(struct queue *queue, struct queue_lag *ret, size_t max);
