/* The id of an event, and how far streams of events were read. Queues give both, sinks keep them. */
#pragma once

#include "base/def.h"

/* An event's place in the log that it was first written to. It is unique, and stays the same wherever the
 * event is read again. */
struct event_id {
	uint64_t node;
	uint64_t segment;
	uint64_t position;
};

static inline bool event_id_equals(struct event_id a, struct event_id b)
{
	return a.node == b.node && a.segment == b.segment && a.position == b.position;
}

struct position {
	uint64_t stream;
	uint64_t offset; /* of the next event */
};

/* A step forward in a stream. When `from` is not the stored position, another reader was there. */
struct advance {
	uint64_t stream;
	uint64_t from; /* 0: nothing was read before */
	uint64_t to;
};
