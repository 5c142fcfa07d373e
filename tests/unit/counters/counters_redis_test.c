#include "counters/backends.h"
#include "lib/redis_kit.h"
#include "lib/test.h"

enum { SOURCE = 99, STREAM = 7, LINKS_MAX = 100 };

static struct counters *counters;
static struct counter links[8];

static struct counters *open_counters(void)
{
	char urls[REDIS_KIT_URLS_BYTES];
	struct err e;
	const struct counters_redis_config config = {
	    .urls = redis_kit_urls(urls), .installation = "test", .stream_links_max = LINKS_MAX};
	struct counters *c = NULL;
	assert_int_equal(counters_redis_open(&config, &c, &e), 0);
	return c;
}

static void begin(void)
{
	redis_kit_need();
	counters = open_counters();
}

static int end(void **state)
{
	if (counters)
		counters->ops->free(counters);
	counters = NULL;
	return 0;
}

static struct counters_step step_of(uint64_t from, uint64_t to, struct counter *of, size_t count)
{
	return (struct counters_step){.source = SOURCE,
	                              .at = {.stream = STREAM, .from = from, .to = to},
	                              .reach = to,
	                              .links = of,
	                              .count = count};
}

/* The links 1 and 2 had so many clicks between two offsets. */
static enum counters_fate add(uint64_t from, uint64_t to, uint64_t first, uint64_t second)
{
	links[0] = (struct counter){.link = 1, .clicks = first};
	links[1] = (struct counter){.link = 2, .clicks = second};
	struct counters_step s = step_of(from, to, links, 2);
	counters->ops->add(counters, &s);
	return s.fate;
}

static void put(uint64_t to, uint64_t first, uint64_t second)
{
	links[0] = (struct counter){.link = 1, .clicks = first};
	links[1] = (struct counter){.link = 2, .clicks = second};
	struct counters_step s = step_of(0, to, links, 2);
	counters->ops->put(counters, &s);
}

static void assert_missing(bool first, bool second)
{
	assert_int_equal(links[0].is_missing, first);
	assert_int_equal(links[1].is_missing, second);
}

static void assert_shown(uint64_t first, uint64_t second)
{
	struct counter asked[] = {{.link = 1}, {.link = 2}, {.link = 1000}};
	assert_int_equal(counters->ops->get(counters, asked, 3), 0);
	assert_false(asked[0].is_missing || asked[1].is_missing);
	assert_int_equal(asked[0].clicks, first);
	assert_int_equal(asked[1].clicks, second);
	assert_true(asked[2].is_missing);
}

/* What the link 1 has at the end of a step that ended there; -1: nothing to rely on. */
static int64_t read_first(uint64_t to)
{
	struct counter one = {.link = 1};
	struct counters_step s = step_of(0, to, &one, 1);
	counters->ops->read(counters, &s);
	return one.is_missing ? -1 : (int64_t)one.clicks;
}

static void start_at(uint64_t to, uint64_t first, uint64_t second)
{
	assert_int_equal(add(0, to, first, second), COUNTERS_ANEW);
	put(to, first, second);
}

static struct test_list on_three_servers;

TEST(totals_are_wanted_at_first_and_added_to_from_then_on)
{
	begin();
	assert_int_equal(add(40, 50, 3, 1), COUNTERS_ANEW);
	assert_missing(true, true);
	put(50, 103, 201);
	assert_shown(103, 201);
	assert_int_equal(add(50, 60, 2, 5), COUNTERS_ADDED);
	assert_missing(false, false);
	assert_shown(105, 206);
	assert_int_equal(read_first(60), 105);
}

TEST(a_step_without_links_moves_on)
{
	begin();
	start_at(10, 1, 1);
	struct counters_step s = step_of(10, 20, NULL, 0);
	counters->ops->add(counters, &s);
	assert_int_equal(s.fate, COUNTERS_ADDED);
	assert_int_equal(add(20, 30, 1, 1), COUNTERS_ADDED);
	assert_shown(2, 2);
}

TEST(what_is_read_again_is_not_added_again)
{
	begin();
	start_at(10, 1, 1);
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_ADDED);
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_AGAIN);
	assert_int_equal(add(0, 15, 7, 7), COUNTERS_AGAIN);
	assert_missing(false, false);
	assert_shown(2, 2);
}

TEST(after_a_gap_totals_are_shown_but_not_relied_on)
{
	begin();
	start_at(10, 5, 6);
	assert_int_equal(add(20, 30, 1, 1), COUNTERS_ANEW);
	assert_missing(true, true);
	assert_shown(5, 6);
	assert_int_equal(read_first(30), -1);
	/* One that nobody had the time to ask for stays old. */
	struct counter one = {.link = 1, .clicks = 9};
	struct counters_step s = step_of(0, 30, &one, 1);
	counters->ops->put(counters, &s);
	assert_int_equal(add(30, 40, 1, 1), COUNTERS_ADDED);
	assert_missing(false, true);
	assert_shown(10, 6);
}

TEST(a_step_that_begins_before_the_last_one_ended_is_a_gap)
{
	begin();
	start_at(10, 5, 6);
	assert_int_equal(add(5, 15, 1, 1), COUNTERS_ANEW);
	assert_missing(true, true);
}

TEST(no_total_is_taken_while_the_sink_is_ahead)
{
	begin();
	start_at(10, 5, 6);
	/* Two batches go to the sink; the worker dies before the second is counted here. */
	const struct advance steps[] = {{.stream = STREAM, .from = 10, .to = 20},
	                                {.stream = STREAM, .from = 20, .to = 30}};
	counters->ops->announce(counters, SOURCE, steps, 1);
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_ADDED);
	counters->ops->announce(counters, SOURCE, steps + 1, 1);
	/* Read again from elsewhere: the sink's totals hold what is still to come. */
	assert_int_equal(add(15, 25, 1, 1), COUNTERS_ANEW);
	assert_missing(false, false);
	assert_int_equal(add(25, 28, 1, 1), COUNTERS_ADDED);
	assert_missing(false, false);
	put(28, 500, 600);
	assert_shown(6, 7);
	assert_int_equal(add(28, 31, 1, 1), COUNTERS_ADDED);
	assert_missing(true, true);
	put(31, 50, 60);
	assert_shown(50, 60);
}

TEST(what_the_caller_knows_of_the_sink_holds_too)
{
	begin();
	links[0] = (struct counter){.link = 1, .clicks = 1};
	struct counters_step s = step_of(0, 10, links, 1);
	s.reach = 11;
	counters->ops->add(counters, &s);
	assert_int_equal(s.fate, COUNTERS_ANEW);
	assert_false(links[0].is_missing);
}

TEST(a_total_that_comes_late_is_not_taken)
{
	begin();
	start_at(10, 5, 6);
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_ADDED);
	put(10, 500, 600);
	assert_shown(6, 7);
	assert_int_equal(read_first(10), -1);
}

TEST(a_flushed_server_begins_anew)
{
	begin();
	start_at(10, 5, 6);
	redis_kit_ask(redis_kit_servers[0].url, REDIS_ARGS(STR("FLUSHALL")));
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_ANEW);
	assert_missing(true, true);
	put(20, 6, 7);
	assert_shown(6, 7);
}

TEST(one_that_was_started_again_begins_anew_even_if_it_kept_its_data)
{
	begin();
	start_at(10, 5, 6);
	/* What it has kept is of another life. */
	redis_kit_ask(redis_kit_servers[0].url, REDIS_ARGS(STR("HSET"), STR("curt:c:test:0000000000000063:7"),
	                                                   STR("@"), STR("1 0123456789 10")));
	assert_int_equal(read_first(10), -1);
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_ANEW);
	assert_missing(true, true);
	assert_shown(5, 6);
}

TEST(a_stream_that_begins_from_far_back_is_another_one)
{
	begin();
	start_at(1000000000, 5, 6);
	assert_int_equal(add(0, 10, 1, 1), COUNTERS_ANEW);
	put(10, 6, 7);
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_ADDED);
	assert_shown(7, 8);
}

TEST(another_worker_goes_on_where_the_first_was)
{
	begin();
	start_at(10, 5, 6);
	counters->ops->free(counters);
	counters = open_counters();
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_ADDED);
	assert_shown(6, 7);
}

TEST(of_several_streams_the_largest_total_is_shown)
{
	begin();
	start_at(10, 5, 6);
	struct counter other[] = {{.link = 1, .clicks = 4}, {.link = 2, .clicks = 9}};
	struct counters_step s = step_of(0, 10, other, 2);
	s.at.stream = STREAM + 1;
	counters->ops->add(counters, &s);
	counters->ops->put(counters, &s);
	assert_shown(5, 9);
}

TEST(a_server_that_is_down_counts_nothing_and_says_so)
{
	struct err e;
	struct counter one = {.link = 1};
	begin();
	start_at(10, 5, 6);
	assert_int_equal(counters->ops->trouble(counters, &e), 0);
	redis_server_kill(&redis_kit_servers[0]);
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_AWAY);
	assert_missing(false, false);
	assert_int_equal(read_first(20), -1);
	assert_int_equal(counters->ops->get(counters, &one, 1), ERR_UNAVAILABLE);
	assert_true(one.is_missing);
	assert_int_equal(counters->ops->trouble(counters, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "as of the link store"));
}

/* What the store was told */

static struct {
	uint64_t links[1 << 15];
	size_t count;
} found;

static void find(void *ctx, uint64_t link)
{
	(void)ctx;
	assert_true(found.count < ARRAY_LEN(found.links));
	found.links[found.count++] = link;
}

static void find_dirty(void)
{
	uint64_t cursor = 0;
	found.count = 0;
	do {
		assert_int_equal(counters->ops->dirty_links(counters, SOURCE, STREAM, &cursor, find, NULL),
		                 0);
	} while (cursor != 0);
}

TEST(totals_are_dirty_until_the_store_has_them)
{
	begin();
	start_at(10, 5, 6);
	find_dirty();
	assert_int_equal(found.count, 2);
	struct counter updated = {.link = 1, .clicks = 5};
	struct counters_step s = step_of(0, 10, &updated, 1);
	counters->ops->updated(counters, &s);
	find_dirty();
	assert_int_equal(found.count, 1);
	assert_int_equal(found.links[0], 2);
	assert_int_equal(add(10, 20, 1, 0), COUNTERS_ADDED);
	find_dirty();
	assert_int_equal(found.count, 2);
	/* Nor does a gap make a total one that was flushed. */
	assert_int_equal(add(30, 40, 1, 0), COUNTERS_ANEW);
	find_dirty();
	assert_int_equal(found.count, 2);
}

static struct counter *many_links(size_t count)
{
	struct counter *many = calloc(count, sizeof(*many));
	assert_non_null(many);
	for (size_t i = 0; i < count; i++)
		many[i] = (struct counter){.link = i + 1, .clicks = 1 + i % 7};
	return many;
}

TEST(a_stream_with_too_many_links_is_forgotten_and_goes_on)
{
	begin();
	struct counter *many = many_links(LINKS_MAX);
	struct counters_step s = step_of(0, 10, many, LINKS_MAX);
	counters->ops->add(counters, &s);
	counters->ops->put(counters, &s);
	counters->ops->trim(counters, SOURCE, STREAM);
	assert_int_equal(read_first(10), -1);
	assert_int_equal(add(10, 20, 1, 1), COUNTERS_ADDED);
	assert_missing(true, true);
	put(20, 2, 3);
	counters->ops->trim(counters, SOURCE, STREAM);
	assert_shown(2, 3);
	free(many);
}

TEST(many_links_are_added_in_parts)
{
	enum { COUNT = 20000 };
	begin();
	struct counter *many = many_links(COUNT);
	for (uint64_t round = 0; round < 3; round++) {
		struct counters_step s = step_of(10 * round, 10 * round + 10, many, COUNT);
		counters->ops->add(counters, &s);
		assert_int_equal(s.fate, round == 0 ? COUNTERS_ANEW : COUNTERS_ADDED);
		for (size_t i = 0; i < COUNT; i++)
			assert_int_equal(many[i].is_missing, round == 0);
		if (round == 0)
			counters->ops->put(counters, &s);
	}
	struct counters_step s = step_of(0, 30, many, COUNT);
	counters->ops->read(counters, &s);
	for (size_t i = 0; i < COUNT; i++) {
		assert_false(many[i].is_missing);
		assert_int_equal(many[i].clicks, 3 * (1 + i % 7));
	}
	find_dirty();
	assert_true(found.count >= COUNT);
	free(many);
}

TEST(a_step_of_which_a_part_is_missing_is_a_gap)
{
	enum { COUNT = 2000 };
	begin();
	struct counter *many = many_links(COUNT);
	struct counters_step s = step_of(0, 10, many, COUNT);
	counters->ops->add(counters, &s);
	counters->ops->put(counters, &s);
	/* As a worker that died after the first of the parts leaves it. */
	redis_kit_ask(
	    redis_kit_servers[0].url,
	    REDIS_ARGS(STR("EVAL"),
	               STR("local v = redis.call('HGET', KEYS[1], '@')\n"
	                   "return redis.call('HSET', KEYS[1], '@', (string.gsub(v, ' 10$', ' 10>20/1')))"),
	               STR("1"), STR("curt:c:test:0000000000000063:7")));
	s = step_of(10, 20, many, COUNT);
	counters->ops->add(counters, &s);
	assert_int_equal(s.fate, COUNTERS_ANEW);
	for (size_t i = 0; i < COUNT; i++)
		assert_true(many[i].is_missing);
	free(many);
}

static _Atomic bool is_over;

/* NULL: the count never went down, and was known all the time. */
static void *ask_again_and_again(void *arg)
{
	(void)arg;
	uint64_t last = 0;
	while (!atomic_load(&is_over)) {
		struct counter one = {.link = 1};
		if (counters->ops->get(counters, &one, 1) < 0 || one.is_missing || one.clicks < last)
			return (void *)"it went down, or was not known";
		last = one.clicks;
	}
	return NULL;
}

TEST(others_may_ask_while_clicks_are_added)
{
	enum { THREADS = 3, STEPS = 300 };
	pthread_t threads[THREADS];
	begin();
	start_at(10, 1, 1);
	atomic_store(&is_over, false);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_again_and_again, NULL), 0);
	for (uint64_t i = 0; i < STEPS; i++)
		add(10 + i, 11 + i, 1, 0);
	atomic_store(&is_over, true);
	for (size_t i = 0; i < THREADS; i++) {
		void *complaint;
		assert_int_equal(pthread_join(threads[i], &complaint), 0);
		assert_null(complaint);
	}
	assert_shown(1 + STEPS, 1);
}

TEST_IN(on_three_servers, streams_lie_on_several_servers)
{
	enum { STREAMS = 32 };
	begin();
	for (uint64_t i = 0; i < STREAMS; i++) {
		struct counter one = {.link = 1 + i, .clicks = 100 + i};
		struct counters_step s = step_of(0, 10, &one, 1);
		s.at.stream = i;
		counters->ops->add(counters, &s);
		assert_int_equal(s.fate, COUNTERS_ANEW);
		counters->ops->put(counters, &s);
	}
	struct counter asked[STREAMS];
	for (uint64_t i = 0; i < STREAMS; i++)
		asked[i] = (struct counter){.link = 1 + i};
	assert_int_equal(counters->ops->get(counters, asked, STREAMS), 0);
	for (uint64_t i = 0; i < STREAMS; i++) {
		assert_false(asked[i].is_missing);
		assert_int_equal(asked[i].clicks, 100 + i);
	}
	/* One of them away: the others' links are known. */
	redis_server_kill(&redis_kit_servers[1]);
	assert_int_equal(counters->ops->get(counters, asked, STREAMS), ERR_UNAVAILABLE);
	size_t known = 0;
	for (size_t i = 0; i < STREAMS; i++)
		known += !asked[i].is_missing;
	assert_in_range(known, 1, STREAMS - 1);
}

int main(void)
{
	int failed = RUN_TESTS(.group_setup = redis_kit_one, .group_teardown = redis_kit_down,
	                       .setup = redis_kit_renew, .teardown = end);
	return failed + RUN_LIST(on_three_servers, .group_setup = redis_kit_three,
	                         .group_teardown = redis_kit_down, .setup = redis_kit_renew, .teardown = end);
}
