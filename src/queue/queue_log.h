/* The role `queue` on the event log of this data folder: its segments are the streams. */
#pragma once

#include "queue/checkpoint.h"
#include "queue/queue.h"

struct queue_log_config {
	struct event_log *log;                 /* outlives the queue */
	const struct event_settings *settings; /* for what is kept; likewise */
	const struct position *read;           /* where to go on */
	size_t read_count;
	/* A file that keeps what was committed (checkpoint.h), and what was read in all until now; NULL: the
	 * consumer keeps it. */
	const char *checkpoint;
	struct event_counts counts;
	/* What earlier boots left is read whole before anything of a later one: so a writer's events come in
	 * the order of their ids, whichever boot they are of. */
	bool boots_in_order;
	/* Before segments are removed: makes sure that what was committed survives power loss. Afterwards:
	 * their positions need not be kept. */
	int (*sync)(void *ctx);
	void (*forget)(void *ctx, const uint64_t *segments, size_t count);
	void *ctx;
};

int queue_log_new(const struct queue_log_config *config, struct queue **ret, struct err *e);
