/*
 * The live feed at /api/v1/live: sends what the stats worker has just committed to watchers, as server-sent
 * events. Under load it is a sample: each batch has at most LIVE_ITEMS_MAX visits and as many impressions,
 * and the exact totals.
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
void live_free(struct live *live); /* after all loops and the stats worker have stopped */

/* For the stats worker, on its thread; ctx is the struct live. */
void live_publish(void *ctx, const struct live_batch *news);
bool live_is_watched(void *ctx); /* now; any thread */

void live_worker_init(struct api_worker *w);
