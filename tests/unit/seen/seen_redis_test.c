#include "lib/redis_kit.h"
#include "lib/test.h"
#include "seen/backends.h"

static const int64_t start_ms = 1790000000000, minute_ms = 60000, hour_ms = 3600000;
enum { WINDOW_MS = 24 * 3600000 };

static struct seen *seen;
static struct advance partitions[2];
static struct seen_item items[8];

static int sink_empty; /* what the sink says to that question */
static unsigned sink_asked;

static int sink_is_empty(void *ctx)
{
	(void)ctx;
	sink_asked++;
	return sink_empty;
}

static struct seen *open_filter(void)
{
	char urls[REDIS_KIT_URLS_BYTES];
	struct err e;
	const struct seen_redis_config config = {.urls = redis_kit_urls(urls),
	                                         .installation = "test",
	                                         .window_ms = WINDOW_MS,
	                                         .sink_is_empty = sink_is_empty};
	struct seen *s = NULL;
	assert_int_equal(seen_redis_open(&config, &s, &e), 0);
	return s;
}

static void begin(bool is_fresh)
{
	redis_kit_need();
	sink_empty = is_fresh;
	sink_asked = 0;
	seen = open_filter();
	partitions[0] = (struct advance){.stream = 7};
	partitions[1] = (struct advance){.stream = 8};
}

static int end(void **state)
{
	if (seen)
		seen->ops->free(seen);
	seen = NULL;
	return 0;
}

/* The impression of that fingerprint that came as event `event`, in partition 7 or 8. */
static struct seen_item item(unsigned fingerprint, uint64_t event, int64_t received_ms)
{
	struct seen_item i = {
	    .event = {1, 2, event}, .received_ms = received_ms, .partition = 7 + fingerprint % 2};
	for (unsigned k = 0; k < SEEN_FINGERPRINT_BYTES; k++)
		i.fingerprint[k] = (uint8_t)(fingerprint * 37 + k);
	return i;
}

static struct seen_batch batch_of(size_t count, int64_t now_ms)
{
	for (size_t i = 0; i < ARRAY_LEN(partitions); i++)
		partitions[i].to = partitions[i].from + 10;
	return (struct seen_batch){.items = items,
	                           .count = count,
	                           .source = 99,
	                           .partitions = partitions,
	                           .partition_count = ARRAY_LEN(partitions),
	                           .now_ms = now_ms};
}

static enum seen_verdict ask(struct seen_item about, int64_t now_ms)
{
	items[0] = about;
	struct seen_batch b = batch_of(1, now_ms);
	seen->ops->check(seen, &b);
	return items[0].verdict;
}

static void mark_asked(size_t count, int64_t now_ms)
{
	struct seen_batch b = batch_of(count, now_ms);
	seen->ops->record(seen, &b);
	for (size_t i = 0; i < ARRAY_LEN(partitions); i++)
		partitions[i].from = partitions[i].to;
}

static void count_one(struct seen_item about, int64_t now_ms)
{
	assert_int_not_equal(ask(about, now_ms), SEEN_DUPLICATE);
	mark_asked(1, now_ms);
}

static struct test_list on_three_servers;

TEST(a_fresh_installation_is_sure_from_the_beginning)
{
	begin(true);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(ask(item(i, i, start_ms), start_ms), SEEN_NEVER);
		mark_asked(1, start_ms);
	}
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(ask(item(i, i, start_ms), start_ms + minute_ms), SEEN_REPLAY);
		assert_int_equal(ask(item(i, 100 + i, start_ms + 1), start_ms + minute_ms), SEEN_DUPLICATE);
		assert_int_equal(ask(item(i, 100 + i, start_ms), start_ms + minute_ms), SEEN_DUPLICATE);
	}
}

TEST(one_that_knows_nothing_of_the_past_leaves_it_to_the_sink)
{
	begin(false);
	partitions[0].from = partitions[1].from = 1000;
	assert_int_equal(ask(item(1, 1, start_ms), start_ms), SEEN_UNKNOWN);
	mark_asked(1, start_ms);
	assert_int_equal(ask(item(2, 2, start_ms + hour_ms), start_ms + hour_ms), SEEN_UNKNOWN);
	mark_asked(1, start_ms + hour_ms);
	assert_int_equal(ask(item(1, 3, start_ms + hour_ms), start_ms + hour_ms), SEEN_DUPLICATE);
	/* A window later it knows all that matters. */
	int64_t later_ms = start_ms + WINDOW_MS + 6 * minute_ms;
	assert_int_equal(ask(item(3, 4, later_ms), later_ms), SEEN_NEVER);
}

TEST(beyond_the_window_it_is_not_the_same)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	assert_int_equal(ask(item(1, 2, start_ms + WINDOW_MS - 1), start_ms + WINDOW_MS - 1), SEEN_DUPLICATE);
	assert_int_equal(ask(item(1, 2, start_ms + WINDOW_MS), start_ms + WINDOW_MS), SEEN_NEVER);
	mark_asked(1, start_ms + WINDOW_MS);
	assert_int_equal(ask(item(1, 3, start_ms + 2 * WINDOW_MS - 1), start_ms + 2 * WINDOW_MS - 1),
	                 SEEN_DUPLICATE);
}

TEST(an_old_event_is_for_the_sink_and_does_not_hide_a_later_one)
{
	begin(true);
	int64_t now_ms = start_ms + WINDOW_MS + hour_ms;
	count_one(item(1, 2, now_ms), now_ms);
	assert_int_equal(ask(item(1, 1, start_ms), now_ms), SEEN_UNKNOWN);
	mark_asked(1, now_ms);
	assert_int_equal(ask(item(1, 3, now_ms + 1), now_ms + 1), SEEN_DUPLICATE);
	assert_int_equal(ask(item(2, 4, now_ms - 2 * hour_ms), now_ms), SEEN_UNKNOWN);
}

TEST(a_flushed_server_is_not_sure_any_more)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	redis_kit_ask(redis_kit_servers[0].url, REDIS_ARGS(STR("FLUSHALL")));
	assert_int_equal(ask(item(1, 2, start_ms + 1), start_ms + 1), SEEN_UNKNOWN);
	mark_asked(1, start_ms + 1);
	assert_int_equal(ask(item(3, 3, start_ms + hour_ms), start_ms + hour_ms), SEEN_UNKNOWN);
}

TEST(one_that_is_flushed_between_asking_and_marking_is_not_sure_either)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	assert_int_equal(ask(item(3, 2, start_ms + 1), start_ms + 1), SEEN_NEVER);
	redis_kit_ask(redis_kit_servers[0].url, REDIS_ARGS(STR("FLUSHALL")));
	mark_asked(1, start_ms + 1);
	assert_int_equal(ask(item(1, 3, start_ms + 2), start_ms + 2), SEEN_UNKNOWN);
	mark_asked(1, start_ms + 2);
	assert_int_equal(ask(item(1, 4, start_ms + 3), start_ms + 3), SEEN_DUPLICATE);
}

TEST(one_that_was_started_again_is_not_sure_even_if_it_kept_its_data)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	/* What it has kept is of another life. */
	redis_kit_ask(redis_kit_servers[0].url,
	              REDIS_ARGS(STR("HSET"), STR("curt:seen:test:lanes"), STR("0000000000000063:7"),
	                         STR("20 0 0 0 0123456789"), STR("0000000000000063:8"),
	                         STR("20 0 0 0 0123456789")));
	assert_int_equal(ask(item(3, 3, start_ms + 1), start_ms + 1), SEEN_UNKNOWN);
}

TEST(one_that_has_evicted_something_is_not_sure_any_more)
{
	begin(true);
	const char *url = redis_kit_servers[0].url;
	count_one(item(1, 1, start_ms), start_ms);
	assert_int_equal(ask(item(3, 3, start_ms), start_ms), SEEN_NEVER);
	/* As many others as it takes until a key has to go, whichever. */
	redis_kit_ask(url,
	              REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("maxmemory-policy"), STR("volatile-random")));
	redis_kit_ask(url, REDIS_ARGS(STR("SET"), STR("victim"), STR("x"), STR("EX"), STR("1000")));
	redis_kit_ask(url, REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("maxmemory"), STR("1")));
	redis_kit_ask(url, REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("maxmemory"), STR("0")));
	if (redis_kit_answers(url, "evicted_keys:0", REDIS_ARGS(STR("INFO"), STR("stats"))))
		fail_msg("the server has not evicted anything");
	assert_int_equal(ask(item(3, 3, start_ms + 1), start_ms + 1), SEEN_UNKNOWN);
	mark_asked(1, start_ms + 1);
	assert_int_equal(ask(item(5, 5, start_ms + hour_ms), start_ms + hour_ms), SEEN_UNKNOWN);
	mark_asked(1, start_ms + hour_ms);
	int64_t later_ms = start_ms + WINDOW_MS + 6 * minute_ms;
	assert_int_equal(ask(item(7, 7, later_ms), later_ms), SEEN_NEVER);
}

TEST(partitions_that_begin_soon_after_others_are_sure_too)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	sink_empty = 0; /* it has the first one now */
	seen->ops->free(seen);
	seen = open_filter();
	partitions[0].stream = 17;
	partitions[0].from = 0;
	struct seen_item i = item(2, 2, start_ms + hour_ms);
	i.partition = 17;
	assert_int_equal(ask(i, start_ms + hour_ms), SEEN_NEVER);
	assert_int_equal(sink_asked, 1);
}

TEST(partitions_that_are_added_later_are_not)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	sink_empty = 0;
	partitions[0].stream = 17;
	partitions[0].from = 0;
	int64_t later_ms = start_ms + WINDOW_MS;
	struct seen_item i = item(2, 2, later_ms);
	i.partition = 17;
	assert_int_equal(ask(i, later_ms), SEEN_UNKNOWN);
}

TEST(partitions_that_are_added_after_something_was_forgotten_are_not_sure)
{
	struct seen_item i = item(2, 2, start_ms + 1);
	i.partition = 17;
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	sink_empty = 0;
	struct advance before = partitions[0];
	/* A batch of another partition was not marked; that shows, and new partitions are not sure any more. */
	partitions[0].from += 10;
	assert_int_equal(ask(item(4, 4, start_ms), start_ms), SEEN_UNKNOWN);
	mark_asked(1, start_ms);
	partitions[0] = (struct advance){.stream = 17};
	assert_int_equal(ask(i, start_ms + 1), SEEN_UNKNOWN);
	/* Likewise when all of it is gone. */
	redis_kit_ask(redis_kit_servers[0].url, REDIS_ARGS(STR("FLUSHALL")));
	partitions[0] = (struct advance){.stream = 18};
	i.partition = 18;
	assert_int_equal(ask(i, start_ms + 1), SEEN_UNKNOWN);
	partitions[0] = before;
}

TEST(a_sink_that_cannot_be_asked_is_not_taken_for_empty)
{
	struct err e;
	begin(true);
	sink_empty = ERR_UNAVAILABLE;
	assert_int_equal(ask(item(1, 1, start_ms), start_ms), SEEN_UNKNOWN);
	assert_int_equal(seen->ops->trouble(seen, &e), 0);
	sink_empty = 1; /* asked anew, as nothing was counted */
	assert_int_equal(ask(item(1, 1, start_ms), start_ms), SEEN_NEVER);
}

TEST(marks_of_a_clock_that_is_ahead_are_not_relied_on)
{
	begin(true);
	int64_t ahead_ms = start_ms + hour_ms;
	count_one(item(1, 1, start_ms), ahead_ms);
	assert_int_equal(ask(item(3, 3, start_ms), start_ms), SEEN_UNKNOWN);
	assert_int_equal(ask(item(3, 3, ahead_ms), ahead_ms - 4 * minute_ms), SEEN_NEVER);
	/* An event from the future tells nothing about what was before it. */
	assert_int_equal(ask(item(3, 3, ahead_ms + 6 * minute_ms), ahead_ms), SEEN_UNKNOWN);
}

TEST(many_partitions_are_kept_apart)
{
	enum { LANES = 5000 };
	begin(true);
	struct advance *many = calloc(LANES, sizeof(*many));
	assert_non_null(many);
	struct seen_batch b = {
	    .items = items, .count = 1, .source = 99, .partitions = many, .partition_count = LANES};
	b.now_ms = start_ms;
	for (size_t i = 0; i < LANES; i++)
		many[i] = (struct advance){.stream = LANES - i, .to = 10 + i};
	items[0] = item(1, 1, start_ms);
	items[0].partition = 4321;
	seen->ops->check(seen, &b);
	assert_int_equal(items[0].verdict, SEEN_NEVER);
	seen->ops->record(seen, &b);
	for (size_t i = 0; i < LANES; i++)
		many[i].from = many[i].to + (many[i].stream == 7); /* one has a gap */
	for (unsigned partition = 5; partition <= 9; partition++) {
		items[0] = item(2, 2, start_ms);
		items[0].partition = partition;
		seen->ops->check(seen, &b);
		assert_int_equal(items[0].verdict, partition == 7 ? SEEN_UNKNOWN : SEEN_NEVER);
	}
	free(many);
}

TEST(a_batch_without_partitions_is_no_trouble)
{
	struct err e;
	begin(true);
	struct seen_batch b = {.items = items, .source = 99, .now_ms = start_ms};
	seen->ops->check(seen, &b);
	seen->ops->record(seen, &b);
	assert_int_equal(seen->ops->trouble(seen, &e), 0);
}

TEST(a_server_that_refuses_is_quoted)
{
	struct err e;
	begin(true);
	const char *url = redis_kit_servers[0].url;
	redis_kit_ask(url, REDIS_ARGS(STR("SET"), STR("curt:seen:test:lanes"), STR("of another kind")));
	assert_int_equal(ask(item(1, 1, start_ms), start_ms), SEEN_UNKNOWN);
	assert_int_equal(seen->ops->trouble(seen, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "WRONGTYPE"));
	redis_kit_ask(url, REDIS_ARGS(STR("DEL"), STR("curt:seen:test:lanes")));
	/* It can be read, but is full. */
	redis_kit_ask(url, REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("maxmemory-policy"), STR("noeviction")));
	count_one(item(1, 1, start_ms), start_ms);
	assert_int_equal(seen->ops->trouble(seen, &e), 0);
	redis_kit_ask(url, REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("maxmemory"), STR("1")));
	ask(item(2, 2, start_ms), start_ms);
	mark_asked(1, start_ms);
	assert_int_equal(ask(item(4, 4, start_ms), start_ms), SEEN_UNKNOWN);
	assert_int_equal(seen->ops->trouble(seen, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "OOM"));
	redis_kit_ask(url, REDIS_ARGS(STR("CONFIG"), STR("SET"), STR("maxmemory"), STR("0")));
	mark_asked(1, start_ms);
	assert_int_equal(seen->ops->trouble(seen, &e), 0);
}

TEST(marks_that_were_not_given_are_a_gap)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	/* A batch that nobody marked, then the next. */
	partitions[0].from += 10;
	partitions[1].from += 10;
	assert_int_equal(ask(item(3, 3, start_ms + 1), start_ms + 1), SEEN_UNKNOWN);
	assert_int_equal(ask(item(1, 3, start_ms + 1), start_ms + 1), SEEN_DUPLICATE);
}

TEST(a_partition_that_is_read_again_has_no_gap)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	partitions[0].from -= 10;
	partitions[1].from -= 10;
	assert_int_equal(ask(item(1, 1, start_ms), start_ms), SEEN_REPLAY);
	assert_int_equal(ask(item(3, 3, start_ms), start_ms), SEEN_NEVER);
}

TEST(another_filter_goes_on_where_the_first_was)
{
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	seen->ops->free(seen);
	sink_empty = 0;
	seen = open_filter();
	assert_int_equal(ask(item(1, 2, start_ms), start_ms), SEEN_DUPLICATE);
	assert_int_equal(ask(item(3, 3, start_ms), start_ms), SEEN_NEVER);
}

TEST(a_server_that_is_down_knows_nothing_and_says_so)
{
	struct err e;
	begin(true);
	count_one(item(1, 1, start_ms), start_ms);
	assert_int_equal(seen->ops->trouble(seen, &e), 0);
	redis_server_kill(&redis_kit_servers[0]);
	assert_int_equal(ask(item(1, 2, start_ms), start_ms), SEEN_UNKNOWN);
	mark_asked(1, start_ms);
	assert_int_equal(seen->ops->trouble(seen, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "the sink is queried"));
}

TEST_IN(on_three_servers, many_items_over_several_servers_are_distinguished)
{
	enum { COUNT = 5000 };
	begin(true);
	struct seen_item *many = calloc(COUNT, sizeof(*many));
	assert_non_null(many);
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < COUNT; i++) {
			many[i] = item(0, i + (round && i % 3 == 0 ? COUNT : 0), start_ms);
			memcpy(many[i].fingerprint, &i, sizeof(i));
		}
		struct seen_batch b = batch_of(0, start_ms);
		b.items = many;
		b.count = COUNT;
		seen->ops->check(seen, &b);
		for (unsigned i = 0; i < COUNT; i++)
			assert_int_equal(many[i].verdict, round == 0   ? SEEN_NEVER
			                                  : i % 3 == 0 ? SEEN_DUPLICATE
			                                               : SEEN_REPLAY);
		seen->ops->record(seen, &b);
	}
	free(many);
}

int main(void)
{
	int failed = RUN_TESTS(.group_setup = redis_kit_one, .group_teardown = redis_kit_down,
	                       .setup = redis_kit_renew, .teardown = end);
	return failed + RUN_LIST(on_three_servers, .group_setup = redis_kit_three,
	                         .group_teardown = redis_kit_down, .setup = redis_kit_renew, .teardown = end);
}
