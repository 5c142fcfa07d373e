/* What the two halves of queue_kafka share: its partitions (queue_kafka_parts.c), and reading them. */
#pragma once

#include "obs/metrics.h"
#include "queue/marks.h"
#include "queue/queue_kafka.h"
#include "queue/topics.h"

#include <pthread.h>

enum partition_state {
	PARTITION_GIVEN,   /* it is ours, and not begun */
	PARTITION_REWOUND, /* it is to begin anew */
	PARTITION_SHAKEN,  /* it is to go on where we are: see partitions_shake */
	PARTITION_READY,
};

/* A partition of ours. */
struct partition {
	struct queue_stream stream;
	unsigned topic;
	int32_t partition;
	enum partition_state state;
	uint64_t node;     /* of events that have no id of their own */
	int64_t committed; /* KAFKA_OFFSET_NONE: not known yet */
	int64_t read;
	int64_t lost_to; /* what was removed before it was read, and told of, ends here */
	uint64_t stored; /* what the sink has; 0: nothing. Of one that keeps no positions: where we began */
};

struct queue_kafka {
	struct queue base;
	struct queue_kafka_config config;
	struct topics topics;
	struct metrics *metrics;
	struct kafka_consumer *consumer;
	struct marks *marks;
	uint64_t source;               /* 0: not known yet */
	struct partition **partitions; /* events point at their streams, so they stay where they are */
	size_t partition_count, partition_room;
	struct kafka_place *places;  /* as many as there is room for parts */
	struct kafka_bounds *bounds; /* likewise */
	struct advance *partition_advances;       /* likewise */
	struct advance *advances;
	size_t advance_room;

	const struct kafka_message *messages;     /* what was fetched */
	struct partition *owners[KAFKA_READ_MAX]; /* NULL: not to be read */
	size_t message_count, at;
	struct wire_message message; /* the last one given */
	bool mark_moved;             /* by it */
	bool is_over;                /* the round */
	int64_t wait_until_ms;

	bool is_unsettled;    /* some parts are not ready */
	bool is_lost;         /* events of this round are another's now */
	bool is_short;        /* of memory */
	struct err unsettled; /* why; empty: not known */

	pthread_mutex_t lock;   /* guards what follows */
	struct queue_lag *lags; /* likewise */
	size_t lag_count;
};

/* What the group gives and takes; ctx is the queue. */
void partitions_given(void *ctx, const struct kafka_place *places, size_t count);
void partitions_taken(void *ctx, const struct kafka_place *places, size_t count);

/* Begins those that are not ready where the sink says, or else the group; q->unsettled says why not yet. */
void partitions_settle(struct queue_kafka *q);

/* The next messages up to `to` are there no more: says so, and goes on there. */
void partition_lose(struct queue_kafka *q, struct partition *p, int64_t to);

/* NULL: it is not ours. */
struct partition *partition_find(const struct queue_kafka *q, unsigned topic, int32_t partition);
struct kafka_place place_of(const struct partition *p, int64_t offset);
void partitions_release(struct queue_kafka *q);
