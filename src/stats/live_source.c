#include "stats/live_source.h"

#include "os/clock.h"
#include "stats/batch.h"

#include <stdlib.h>

enum { EVENTS_MAX = 32768, AGENTS_MAX = 4096 };

struct live_source {
	struct live_source_config config;
	struct forwarder_watch watch;
	struct agents *agents;
	struct places *places;
	struct batch *batch;
	bool is_watched; /* this batch */
};

static void live_source_begin(void *ctx)
{
	struct live_source *h = ctx;
	h->is_watched = h->config.is_watched(h->config.ctx);
	if (h->is_watched)
		batch_begin(h->batch, clock_real_ms());
}

/* What has no room is not told. */
static void live_source_event(void *ctx, const struct queue_event *ev)
{
	struct live_source *h = ctx;
	if (h->is_watched && !batch_is_full(h->batch))
		(void)batch_add(h->batch, NULL, ev);
}

static void live_source_delivered(void *ctx)
{
	struct live_source *h = ctx;
	if (!h->is_watched)
		return;
	struct stats_news news = {.batch = batch_result(h->batch)};
	news.recent = batch_recent(h->batch, &news.recent_count);
	h->config.publish(h->config.ctx, &news);
}

int live_source_new(const struct live_source_config *config, struct live_source **ret, struct err *e)
{
	struct live_source *h = calloc(1, sizeof(*h));
	if (!h)
		return err_set(e, ERR_NOMEM, "out of memory for the live feed");
	h->config = *config;
	h->watch = (struct forwarder_watch){live_source_begin, live_source_event, live_source_delivered, h};
	int r = agents_new(AGENTS_MAX, &h->agents, e);
	if (r == 0 && config->settings->places[0])
		r = places_open(config->settings->places, &h->places, e);
	if (r == 0) {
		const struct batch_config batch = {
		    .events_max = EVENTS_MAX,
		    .dedup_key = config->settings->dedup_key,
		    .seen_ms = config->seen_ms,
		    .agents = h->agents,
		    .places = h->places,
		};
		r = batch_new(&batch, &h->batch);
		if (r < 0)
			err_set(e, r, "out of memory for the live feed");
	}
	if (r < 0) {
		live_source_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

void live_source_free(struct live_source *h)
{
	if (!h)
		return;
	batch_free(h->batch);
	places_close(h->places);
	agents_free(h->agents);
	free(h);
}

const struct forwarder_watch *live_source_watch(const struct live_source *h)
{
	return &h->watch;
}
