/*
 * The role `queue` on Kafka: partitions are the streams, numbered by topic and partition. The workers of a
 * consumer group share them.
 *
 *	sink keeps positions   a partition continues at the sink's position, or at its beginning if it has
 *	                       none
 *	sink keeps none        it continues at the group's offset
 *
 * The group's offset is committed in either case, asynchronously and after the sink's commit. It may be
 * behind: then events are read again, with the same ids. If the sink has a position and the group no offset,
 * the topic was created again, and is read from its beginning.
 *
 * Messages that Kafka removed before they were read are logged and counted. Messages that forwarders sent
 * twice are skipped (watermarks.h). A message that is not an event is delivered as EVENT_UNUSABLE.
 */
#pragma once

#include "base/arena.h"
#include "queue/queue.h"
#include "queue/settings.h"

struct queue_kafka_config {
	const struct queue_settings *settings; /* outlives the queue */
	/* The sink's positions of this source; NULL: it keeps none. On the reading thread. */
	int (*resume)(void *ctx, uint64_t source, struct arena *arena, struct position **ret,
	              size_t *ret_count);
	void *ctx;
};

int queue_kafka_new(const struct queue_kafka_config *config, struct queue **ret, struct err *e);

/* Messages of a partition that are not committed yet. */
struct queue_lag {
	const char *topic; /* owned by the queue */
	int32_t partition;
	uint64_t messages;
};

/* Of the partitions assigned to this process, as of the last round; at most `max`. Any thread. */
size_t queue_kafka_lags(struct queue *queue, struct queue_lag *ret, size_t max);
