/*
 * News for the live feed of a server that analyses nothing itself: makes them of what its forwarder sends. As
 * long as nobody watches it does nothing. What it cannot know is which impressions were counted before.
 *
 * Owned by the forwarder's thread once that runs.
 */
#pragma once

#include "queue/forwarder.h"
#include "stats/worker.h"

struct live_source_config {
	const struct stats_settings *settings; /* outlives the herald */
	uint64_t seen_ms;
	bool (*is_watched)(void *ctx);
	void (*publish)(void *ctx, const struct stats_news *news);
	void *ctx;
};

struct live_source;

int live_source_new(const struct live_source_config *config, struct live_source **ret, struct err *e);
void live_source_free(struct live_source *h); /* after the forwarder; NULL is fine */

/* For the forwarder's config; the herald's own. */
const struct forwarder_watch *live_source_watch(const struct live_source *h);
