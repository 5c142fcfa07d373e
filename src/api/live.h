/*
 * The live feed: what the stats worker has just committed, to whoever watches /api/v1/live as server-sent
 * events. Under load it is a sample: at most LIVE_ITEMS_MAX visits and impressions a batch, with the true
 * numbers beside them.
 */
#pragma once

#include "handler/api.h"

struct live;

enum {
	LIVE_ITEMS_MAX = 50,
	LIVE_WATCHERS_MAX = 256,
	LIVE_WATCHERS_USER_MAX = 16, /* of one user, on one worker */
};

/* The api's workers must be set. */
int live_new(struct api *api, struct live **ret, struct err *e);
void live_free(struct live *live); /* when no loop and no stats worker runs any more */

/* A stats_worker's publish; ctx is the struct live. */
void live_publish(void *ctx, const struct live_batch *news);
bool live_is_watched(void *ctx); /* now; any thread */

void live_worker_init(struct api_worker *w);
