/* Shared by queue_kafka.c, which reads messages, and queue_kafka_partitions.c, which manages partitions. */
#pragma once

#include "obs/metrics.h"
#include "queue/queue_kafka.h"
#include "queue/topics.h"
#include "queue/watermarks.h"

#include <pthread.h>

enum partition_state {
	PARTITION_ASSIGNED, /* not started yet */
	PARTITION_RESUME,   /* must read its position again, and seek there */
	PARTITION_SEEK,     /* must seek to `read`: see partitions_mark_seek */
	PARTITION_READY,
};

/* A partition assigned to this process. */
struct kafka_partition {
	struct queue_stream stream;
	unsigned topic;
	int32_t partition;
	enum partition_state state;
	uint64_t node;     /* for events without an id */
	int64_t committed; /* KAFKA_OFFSET_NONE: unknown yet */
	int64_t read;
	int64_t lost_to; /* end of the messages that were logged as lost */
	uint64_t stored; /* the sink's position; 0: none. If the sink keeps none: the start */
};

struct queue_kafka {
	struct queue base;
	struct queue_kafka_config config;
	struct topics topics;
	struct metrics *metrics;
	struct kafka_consumer *consumer;
	struct watermarks *watermarks;
	uint64_t source;                     /* 0: unknown yet */
	struct kafka_partition **partitions; /* events point at their streams, so they stay where they are */
	size_t partition_count, partition_room;
	struct kafka_place *places;         /* as many as there is room for parts */
	struct kafka_bounds *bounds;        /* likewise */
	struct advance *partition_advances; /* likewise */
	struct advance *advances;
	size_t advance_room;

	const struct kafka_message *messages;           /* what was fetched */
	struct kafka_partition *owners[KAFKA_READ_MAX]; /* NULL: not to be read */
	size_t message_count, at;
	struct wire_message message; /* the last one given */
	bool watermark_moved;        /* by it */
	bool is_over;                /* the round */
	int64_t wait_until_ms;

	bool needs_resume;       /* some parts are not ready */
	bool is_revoked;         /* events of this round are another's now */
	bool is_out_of_memory;   /* of memory */
	struct err resume_error; /* why; empty: not known */

	pthread_mutex_t lock;   /* guards what follows */
	struct queue_lag *lags; /* likewise */
	size_t lag_count;
};

/* Callbacks of the consumer group; ctx is the queue. */
void partitions_assigned(void *ctx, const struct kafka_place *places, size_t count);
void partitions_revoked(void *ctx, const struct kafka_place *places, size_t count);

/* Starts partitions that are not ready, at the sink's or the group's position. q->resume_error: why not. */
void partitions_resume(struct queue_kafka *q);

/* The next messages up to `to` do not exist any more: logs it, and continues there. */
void partition_lose(struct queue_kafka *q, struct kafka_partition *p, int64_t to);

/* NULL: not assigned to this process. */
struct kafka_partition *partition_find(const struct queue_kafka *q, unsigned topic, int32_t partition);
struct kafka_place place_of(const struct kafka_partition *p, int64_t offset);
void partitions_release(struct queue_kafka *q);
