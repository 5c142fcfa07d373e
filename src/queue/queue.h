/*
 * The role `queue`: where events come from that are to be counted or passed on. Backends: the event log of a
 * data folder (queue_log.c), Kafka (queue_kafka.c).
 *
 * A queue is a set of streams (segments of the log, partitions of a topic), each a row of events with rising
 * offsets. It is read in rounds, by one thread: `refresh`, then `next` until there is enough; `advances`
 * says how far that was, and when what was read is safe, `commit` makes it the place to go on from. `rewind`
 * goes back to what was last committed. What was not committed is read again, by this process or by another
 * one: whoever counts must recognise an event by its id, or keep the positions together with what it counted.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"
#include "event/format.h"

/* One stream, for whoever reads it. */
struct queue_stream {
	uint64_t number;
	uint64_t partition; /* see `partitions` */
	void *reader_data; /* the reader's own, NULL at first */
	void (*reader_data_free)(void *reader_data);
};

struct queue_event {
	struct event_id id;
	struct queue_stream *stream;
	const struct event *event;
	/* It may have been given before, and nobody noted what became of it; or one that was, and has the
	 * same id for its impression, may come after it. Only the sink knows. Where partitions keep their order
	 * (see `partitions`) it does not matter: the first is the first again. */
	bool in_doubt;
	/* What a visit brought along. A queue that keeps texts apart leaves them out (`has_texts` is false):
	 * the event's numbers then say where they are, for `text`, and EVENT_STRING gives most of them in
	 * passing. */
	bool has_texts;
	struct str agent, referrer, language;
};

struct queue {
	const struct queue_ops *ops;
};

struct queue_ops {
	void (*free)(struct queue *);

	/* Whose positions these are: those of another source are not to be mixed up with them. */
	uint64_t (*source)(const struct queue *);

	/* Begins a round: finds out what there is. */
	int (*refresh)(struct queue *);

	/* 1: *ret is the next event, good until the next call. 0: there is no more in this round. ERR_NOMEM.
	 * ERR_UNCERTAIN: streams have gone to another reader; rewind, and begin again. A stream that cannot
	 * be read does not hold up the others: see `trouble`. */
	int (*next)(struct queue *, struct queue_event *ret);

	/* The last event given was not taken: it comes again. Nothing else is read from its stream in this
	 * round. */
	void (*put_back)(struct queue *);

	/* The text at a place of the event's stream, copied to `out`; STR_NULL when there is none. NULL for a
	 * queue whose events have their texts. */
	struct str (*text)(struct queue *, struct queue_stream *stream, uint32_t at,
	                   char out[EVENT_STRING_BYTES_MAX]);

	/* What was read since the last commit, good until the queue is used again. */
	size_t (*advances)(struct queue *, const struct advance **ret);

	/* The same by partitions: rows in which all impressions with the same id come, in an order that never
	 * changes but for events that are in doubt. A partition begins where it ended before, whatever became of
	 * its streams. */
	size_t (*partition_advances)(struct queue *, const struct advance **ret);
	int (*commit)(struct queue *);
	void (*rewind)(struct queue *);

	/* Was there more at the beginning of the round than has been read? */
	bool (*is_behind)(const struct queue *);

	/* Notes where all streams end, as of the last refresh; and whether all before that was committed, or
	 * cannot be read. NULL when others read the queue, too, so that nobody can tell. */
	void (*mark)(struct queue *);
	bool (*is_reached)(const struct queue *);

	/* 0, or why a part of it cannot be read at present. */
	int (*trouble)(struct queue *, struct err *e);

	/* Now and then: removes what was committed and is past its time. */
	void (*retention)(struct queue *);
};
