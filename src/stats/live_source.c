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
	struct live_source *s = ctx;
	s->is_watched = s->config.is_watched(s->config.ctx);
	if (s->is_watched)
		batch_begin(s->batch, clock_real_ms());
}

/* Events that do not fit are not shown. */
static void live_source_event(void *ctx, const struct queue_event *ev)
{
	struct live_source *s = ctx;
	if (s->is_watched && !batch_is_full(s->batch))
		(void)batch_add(s->batch, NULL, ev);
}

static void live_source_delivered(void *ctx)
{
	struct live_source *s = ctx;
	if (!s->is_watched)
		return;
	struct live_batch live = {.batch = batch_result(s->batch)};
	live.recent = batch_recent(s->batch, &live.recent_count);
	s->config.publish(s->config.ctx, &live);
}

int live_source_new(const struct live_source_config *config, struct live_source **ret, struct err *e)
{
	struct live_source *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory for the live feed");
	s->config = *config;
	s->watch = (struct forwarder_watch){live_source_begin, live_source_event, live_source_delivered, s};
	int r = agents_new(AGENTS_MAX, &s->agents, e);
	if (r == 0 && config->settings->places[0])
		r = places_open(config->settings->places, &s->places, e);
	if (r == 0) {
		const struct batch_config batch = {
		    .events_max = EVENTS_MAX,
		    .dedup_key = config->settings->dedup_key,
		    .seen_ms = config->seen_ms,
		    .agents = s->agents,
		    .places = s->places,
		};
		r = batch_new(&batch, &s->batch);
		if (r < 0)
			err_set(e, r, "out of memory for the live feed");
	}
	if (r < 0) {
		live_source_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void live_source_free(struct live_source *s)
{
	if (!s)
		return;
	batch_free(s->batch);
	places_close(s->places);
	agents_free(s->agents);
	free(s);
}

const struct forwarder_watch *live_source_watch(const struct live_source *s)
{
	return &s->watch;
}
