#include "stats/herald.h"

#include "os/clock.h"
#include "stats/batch.h"

#include <stdlib.h>

enum { EVENTS_MAX = 32768, AGENTS_MAX = 4096 };

struct herald {
	struct herald_config config;
	struct forwarder_watch watch;
	struct agents *agents;
	struct places *places;
	struct batch *batch;
	bool is_watched; /* this batch */
};

static void herald_begin(void *ctx)
{
	struct herald *h = ctx;
	h->is_watched = h->config.is_watched(h->config.ctx);
	if (h->is_watched)
		batch_begin(h->batch, clock_real_ms());
}

/* What has no room is not told. */
static void herald_event(void *ctx, const struct queue_event *ev)
{
	struct herald *h = ctx;
	if (h->is_watched && !batch_is_full(h->batch))
		(void)batch_add(h->batch, NULL, ev);
}

static void herald_delivered(void *ctx)
{
	struct herald *h = ctx;
	if (!h->is_watched)
		return;
	struct stats_news news = {.batch = batch_result(h->batch)};
	news.recent = batch_recent(h->batch, &news.recent_count);
	h->config.publish(h->config.ctx, &news);
}

int herald_new(const struct herald_config *config, struct herald **ret, struct err *e)
{
	struct herald *h = calloc(1, sizeof(*h));
	if (!h)
		return err_set(e, ERR_NOMEM, "out of memory for the live feed");
	h->config = *config;
	h->watch = (struct forwarder_watch){herald_begin, herald_event, herald_delivered, h};
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
		herald_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

void herald_free(struct herald *h)
{
	if (!h)
		return;
	batch_free(h->batch);
	places_close(h->places);
	agents_free(h->agents);
	free(h);
}

const struct forwarder_watch *herald_watch(const struct herald *h)
{
	return &h->watch;
}
