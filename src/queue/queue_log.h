/* The role `queue` on the event log of a data folder: its segments are the streams. */
#pragma once

#include "queue/checkpoint.h"
#include "queue/queue.h"

struct queue_log_config {
	struct event_log *log;                 /* outlives the queue */
	const struct event_settings *settings; /* for retention; likewise */
	const struct position *read;           /* where to continue */
	size_t read_count;
	/* The checkpoint file, and the counts so far; NULL: the handler stores positions and counts. */
	const char *checkpoint;
	struct event_counts counts;
	/* Reads earlier boots completely before later ones, so that a writer's events come in the order of
	 * their ids. */
	bool boots_in_order;
	/* `sync` makes commits durable before segments are removed; `forget` drops their positions after. */
	int (*sync)(void *ctx);
	void (*forget)(void *ctx, const uint64_t *segments, size_t count);
	void *ctx;
};

int queue_log_new(const struct queue_log_config *config, struct queue **ret, struct err *e);
