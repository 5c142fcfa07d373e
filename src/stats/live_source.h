/*
 * Feeds the live feed of a server that only forwards its events: builds batches of what its forwarder sends,
 * while the feed has viewers. It cannot know which impressions are duplicates of earlier ones.
 *
 * Owned by the forwarder's thread once that runs.
 */
#pragma once

#include "queue/forwarder.h"
#include "stats/worker.h"

struct live_source_config {
	const struct stats_settings *settings; /* outlives the live source */
	uint64_t seen_ms;
	bool (*is_watched)(void *ctx);
	void (*publish)(void *ctx, const struct live_batch *batch);
	void *ctx;
};

struct live_source;

int live_source_new(const struct live_source_config *config, struct live_source **ret, struct err *e);
void live_source_free(struct live_source *s); /* after the forwarder; NULL is fine */

/* For the forwarder's config; owned by the live source. */
const struct forwarder_watch *live_source_watch(const struct live_source *s);
