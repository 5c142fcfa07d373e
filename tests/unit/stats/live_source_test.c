/* News for the live feed from what a forwarder sends. */
#include "lib/test.h"
#include "stats/live_source.h"

static struct stats_settings settings = {.places = ""};
static bool is_watched;
static struct heard {
	unsigned times;
	uint64_t clicks, orphans, impressions;
	size_t recent;
	char key[EVENT_KEY_BYTES_MAX + 1];
	struct str browser; /* of the first visit; only whether there is one */
} heard;

static bool watched(void *ctx)
{
	(void)ctx;
	return is_watched;
}

static void publish(void *ctx, const struct live_batch *news)
{
	(void)ctx;
	heard.times++;
	heard.clicks = news->batch->tally.clicks;
	heard.orphans = news->batch->tally.orphans;
	heard.impressions = news->batch->impression_count;
	heard.recent = news->recent_count;
	if (news->recent_count > 0) {
		const struct sink_visit *v = &news->batch->visits[news->recent[0].visit];
		memcpy(heard.key, news->recent[0].key, news->recent[0].key_len);
		heard.browser = news->batch->sets[v->set].dims[DIM_BROWSER];
	}
}

static struct live_source *live_source;

static int setup(void **state)
{
	const struct live_source_config config = {
	    .settings = &settings, .seen_ms = 1000, .is_watched = watched, .publish = publish};
	heard = (struct heard){0};
	return live_source_new(&config, &live_source, NULL);
}

static int teardown(void **state)
{
	live_source_free(live_source);
	return 0;
}

static void tell(const struct event *ev)
{
	const struct forwarder_watch *w = live_source_watch(live_source);
	static struct queue_stream stream;
	const struct queue_event with = {
	    .id = {1, 2, 3},
	    .stream = &stream,
	    .event = ev,
	    .has_texts = true,
	    .agent = STR("Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"),
	};
	w->event(w->ctx, &with);
}

static void tell_some(void)
{
	const struct forwarder_watch *w = live_source_watch(live_source);
	w->begin(w->ctx);
	tell(&(struct event){.kind = EVENT_VISIT, .visit = {.time_ms = 1, .link = 7, .key = STR("aB3")}});
	tell(&(struct event){.kind = EVENT_VISIT, .visit = {.time_ms = 1, .kind = EVENT_ORPHAN_ROOT}});
	tell(&(struct event){.kind = EVENT_IMPRESSION, .impression = {1, 1, STR("i"), STR("u"), STR("a")}});
	/* What cannot be processed is the worker's business. */
	tell(&(struct event){.kind = EVENT_VISIT, .visit = {.time_ms = -1, .link = 7}});
}

TEST(what_was_delivered_is_reported)
{
	const struct forwarder_watch *w = live_source_watch(live_source);
	is_watched = true;
	tell_some();
	assert_int_equal(heard.times, 0); /* it is not delivered yet */
	w->delivered(w->ctx);
	assert_int_equal(heard.times, 1);
	assert_int_equal(heard.clicks, 2);
	assert_int_equal(heard.orphans, 1);
	assert_int_equal(heard.impressions, 1);
	assert_int_equal(heard.recent, 2);
	assert_string_equal(heard.key, "aB3");
	assert_true(heard.browser.len > 0);
}

TEST(a_batch_that_was_given_up_is_not)
{
	const struct forwarder_watch *w = live_source_watch(live_source);
	is_watched = true;
	tell_some();
	w->begin(w->ctx);
	w->delivered(w->ctx);
	assert_int_equal(heard.clicks + heard.orphans + heard.impressions, 0);
}

TEST(while_nobody_watches_nothing_is)
{
	const struct forwarder_watch *w = live_source_watch(live_source);
	is_watched = false;
	tell_some();
	is_watched = true; /* who comes in the middle waits for the next batch */
	w->delivered(w->ctx);
	assert_int_equal(heard.times, 0);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
