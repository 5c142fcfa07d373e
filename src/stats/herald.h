/*
 * News for the live feed of a server that analyses nothing itself: makes them of what its forwarder sends. As
 * long as nobody watches it does nothing. What it cannot know is which impressions were counted before.
 *
 * Owned by the forwarder's thread once that runs.
 */
#pragma once

#include "queue/forwarder.h"
#include "stats/worker.h"

struct herald_config {
	const struct stats_settings *settings; /* outlives the herald */
	uint64_t seen_ms;
	bool (*is_watched)(void *ctx);
	void (*publish)(void *ctx, const struct stats_news *news);
	void *ctx;
};

struct herald;

int herald_new(const struct herald_config *config, struct herald **ret, struct err *e);
void herald_free(struct herald *h); /* after the forwarder; NULL is fine */

/* For the forwarder's config; the herald's own. */
const struct forwarder_watch *herald_watch(const struct herald *h);
