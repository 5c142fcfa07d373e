/*
 * The reader of a data folder's event log changes with the settings. The checkpoint is kept by the forwarder
 * (file `forwarded` beside the log), by a stats worker whose sink keeps no positions (`counted`), or by the
 * sink. A starting reader resumes at the furthest position of its predecessors in each segment, so that no
 * event is counted or forwarded by two of them. It then owns the checkpoint, and the others' files are
 * removed.
 */
#pragma once

#include "queue/checkpoint.h"
#include "sink/sink.h"

enum checkpoint_owner { OWNER_FORWARDER, OWNER_WORKER, OWNER_SINK };

struct handover_config {
	const char *folder; /* of the log */
	enum checkpoint_owner owner;
	struct sink *sink;
	bool sink_is_unavailable; /* it may have positions, and cannot be asked */
};

/* The owner's file in the log's folder; NULL: none. */
const char *handover_file(enum checkpoint_owner owner);

/*
 * The positions at which `node`'s log is resumed, and the counts of all events read so far. (If the sink
 * keeps positions, these are the counts of the files; its reconciliation may know of more.) ERR_UNAVAILABLE
 * if only the sink knows and it does not answer.
 */
int checkpoint_handover(const struct handover_config *c, uint64_t node, struct arena *arena,
                        struct checkpoint *ret, struct err *e);

/* The maximum of each number. */
struct event_counts event_counts_max(struct event_counts a, struct event_counts b);

/* The counts of this node's events that the sink has consumed. */
int handover_consumed(struct sink *sink, uint64_t node, struct event_counts *ret, struct err *e);
