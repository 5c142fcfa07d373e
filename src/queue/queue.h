/*
 * The role `queue`: the source of events to be counted or forwarded. Backends: the event log of a data folder
 * (queue_log.c), Kafka (queue_kafka.c).
 *
 * A queue is a set of streams (segments of the log, partitions of a topic), each a sequence of events with
 * rising offsets. One thread reads it in rounds: `refresh`, then `next` until the batch is full. `advances`
 * says how far that was. When the events are stored safely, `commit` makes it the position to continue from.
 * `rewind` returns to the last commit. Uncommitted events are read again, by this process or another one. So
 * a consumer must recognise an event by its id, or store the positions together with its results.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"
#include "event/format.h"

/* One stream, for its reader. */
struct queue_stream {
	uint64_t number;
	uint64_t partition; /* see `partition_advances` */
	void *reader_data;  /* owned by the reader; NULL at first */
	void (*reader_data_free)(void *reader_data);
};

struct queue_event {
	struct event_id id;
	struct queue_stream *stream;
	const struct event *event;
	/* This event may have been delivered before without a record of the outcome; or an impression with
	 * the same id that was may follow. Only the sink knows. Never set where the order within a partition
	 * is kept (see `partition_advances`): there, the first stays the first. */
	bool in_doubt;
	/* The texts of a visit. A queue that keeps texts apart leaves them out (`has_texts` is false). The
	 * event then has their positions, for `text`, and EVENT_STRING delivers most of them in passing. */
	bool has_texts;
	struct str agent, referrer, language;
};

struct queue {
	const struct queue_ops *ops;
};

struct queue_ops {
	void (*free)(struct queue *);

	/* Identifies the set of streams: positions of different sources must not be mixed. */
	uint64_t (*source)(const struct queue *);

	/* Begins a round: finds new events. */
	int (*refresh)(struct queue *);

	/* 1: *ret is the next event, valid until the next call. 0: this round has no more. ERR_NOMEM.
	 * ERR_UNCERTAIN: streams were assigned to another reader; rewind, and begin again. A stream that
	 * cannot be read does not stop the others: see `trouble`. */
	int (*next)(struct queue *, struct queue_event *ret);

	/* The last event was not accepted: it will be delivered again. Its stream ends for this round. */
	void (*put_back)(struct queue *);

	/* The text at a position of the event's stream, copied to `out`; STR_NULL: none. NULL for a queue
	 * whose events have their texts. */
	struct str (*text)(struct queue *, struct queue_stream *stream, uint32_t at,
	                   char out[EVENT_STRING_BYTES_MAX]);

	/* How far the streams were read since the last commit; valid until the queue is used again. */
	size_t (*advances)(struct queue *, const struct advance **ret);

	/* The same by partition: all impressions with the same id are in one partition, in an order that
	 * never changes, except for events in doubt. A partition continues where it ended, whatever happens
	 * to its streams. */
	size_t (*partition_advances)(struct queue *, const struct advance **ret);
	int (*commit)(struct queue *);
	void (*rewind)(struct queue *);

	/* Were there more events at the start of the round than have been read? */
	bool (*is_behind)(const struct queue *);

	/* Remembers the ends of all streams, as of the last refresh; and: is everything before them
	 * committed, or unreadable? NULL if other readers share the queue, as this one cannot know. */
	void (*mark_end)(struct queue *);
	bool (*end_is_reached)(const struct queue *);

	/* 0, or why a part of the queue cannot be read at present. */
	int (*trouble)(struct queue *, struct err *e);

	/* Removes committed events that have expired; NULL: the queue does so by itself. */
	void (*retention)(struct queue *);
};
