/*
 * Who reads the event log of a data folder changes with the settings: the forwarder, whose place is in the
 * file `forwarded` beside the log; a stats worker whose sink keeps no positions (`counted`); or one whose
 * sink does. Whoever starts takes over from those before him: in each segment he goes on where the furthest
 * of them was, so that no event is counted, or sent to be counted, by two of them. From then on he alone
 * keeps the place: the others' files are gone.
 */
#pragma once

#include "queue/checkpoint.h"
#include "sink/sink.h"

enum log_keeper { KEEPER_FORWARDER, KEEPER_COUNTER, KEEPER_SINK };

struct handover_config {
	const char *folder; /* of the log */
	enum log_keeper keeper;
	struct sink *sink;
	bool sink_is_away; /* it may have positions, and cannot be asked */
};

/* The keeper's file in the log's folder; NULL: none. */
const char *handover_file(enum log_keeper keeper);

/*
 * Where `node`'s log is read on, and what was read of it in all (of a sink that keeps positions: what the
 * files say, its own books may know of more). ERR_UNAVAILABLE when only the sink can tell, and does not.
 */
int checkpoint_handover(const struct handover_config *c, uint64_t node, struct arena *arena,
                        struct checkpoint *ret, struct err *e);

/* Of each number the larger one. */
struct event_counts event_counts_max(struct event_counts a, struct event_counts b);

/* What the sink consumed of this node's events. */
int handover_consumed(struct sink *sink, uint64_t node, struct event_counts *ret, struct err *e);
