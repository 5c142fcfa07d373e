/* A stream of clicks, a sink that may forget where it was, workers that die, and a Redis that forgets all. */
#include "counters/backends.h"
#include "lib/redis_kit.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/sys.h"
#include "stats/clicks.h"

enum {
	SOURCE = 5,
	NODE = 6,
	STREAM = 7,
	OTHER_STREAM = 8, /* it brings no clicks */
	LINKS = 40,
	EVENTS = 6000,
	BATCH_MAX = 60,
	LONG_MS = 3600000,
	LIVES = 4,
};

static struct {
	unsigned seed;
	uint64_t links[EVENTS]; /* what was clicked; 0: a HEAD request */
	uint64_t sink_at;       /* the sink has all before that, each once */
	uint64_t group_at;      /* where a reader goes on if the sink does not know */
	uint64_t at;            /* where the reader is */
	bool sink_keeps_place;
	int store_fails;
	uint64_t stored[LINKS + 1];
	uint64_t counted_at, counted[LINKS + 1];
	unsigned store_calls, sink_calls;
	int64_t sink_ms;  /* how long it takes to answer */
	int64_t later_ms; /* the clock is ahead of the real one */
	char dirty_links[TEMP_PATH_BYTES];
} world;

static unsigned seed = 4711;
static struct sink sink;
static struct store store;
static struct counters *counters;
static struct clicks *clicks;

static unsigned dice(unsigned sides)
{
	world.seed = world.seed * 1103515245u + 12345u;
	return (world.seed >> 16) % sides;
}

/* The sink's clicks only grow. */
static uint64_t truth_of(uint64_t link)
{
	for (; world.counted_at < world.sink_at; world.counted_at++)
		world.counted[world.links[world.counted_at]]++;
	return world.counted[link];
}

static int later_clock(clockid_t clock, struct timespec *ret)
{
	int r = clock_gettime(clock, ret);
	ret->tv_sec += world.later_ms / 1000;
	return r;
}

static int sink_clicks(struct sink *s, struct sink_total *totals, size_t n)
{
	(void)s;
	world.sink_calls++;
	world.later_ms += world.sink_ms;
	assert_in_range(n, 1, SINK_CLICKS_MAX);
	for (size_t i = 0; i < n; i++)
		totals[i].clicks = truth_of(totals[i].link);
	return 0;
}

static int sink_resume(struct sink *s, uint64_t source, struct arena *arena, struct position **ret,
                       size_t *ret_count)
{
	(void)s, (void)source, (void)arena, (void)ret, (void)ret_count;
	fail();
	return 0;
}

static const struct sink_ops sink_with_places = {.clicks = sink_clicks, .resume = sink_resume};
static const struct sink_ops sink_without_places = {.clicks = sink_clicks};

static int store_clicks(struct store *s, uint64_t node, const struct store_count *counts, size_t n)
{
	(void)s;
	assert_int_equal(node, NODE);
	assert_in_range(n, 1, STORE_COUNTS_MAX);
	world.store_calls++;
	if (world.store_fails)
		return world.store_fails;
	for (size_t i = 0; i < n; i++)
		world.stored[counts[i].id] = counts[i].clicks;
	return 0;
}

static const struct store_ops store_ops = {.set_clicks = store_clicks};

static void worker_start(uint64_t flush_ms)
{
	static struct metrics *metrics;
	if (!metrics)
		metrics = metrics_register();
	const struct clicks_config config = {.sink = &sink,
	                                     .counters = counters,
	                                     .store = world.sink_keeps_place ? NULL : &store,
	                                     .node = NODE,
	                                     .flush_ms = flush_ms,
	                                     .dirty_links = world.dirty_links[0] ? world.dirty_links : NULL,
	                                     .metrics = metrics};
	assert_int_equal(clicks_new(&config, &clicks), 0);
	world.at = world.sink_keeps_place ? world.sink_at : world.group_at;
}

static void worker_die(void)
{
	clicks_free(clicks);
	clicks = NULL;
}

static void begin(bool with_counters, bool sink_keeps_place, uint64_t flush_ms)
{
	memset(&world, 0, sizeof(world));
	world.seed = seed;
	world.sink_keeps_place = sink_keeps_place;
	sink.ops = sink_keeps_place ? &sink_with_places : &sink_without_places;
	store.ops = &store_ops;
	for (size_t i = 0; i < EVENTS;
	     i++) { /* some links have most of the clicks; others soon have no more */
		uint64_t lately = 1 + (i * LINKS / EVENTS + dice(3)) % LINKS;
		world.links[i] = dice(20) == 0 ? 0 : dice(3) == 0 ? 1 + dice(1 + dice(LINKS / 4)) : lately;
	}
	log_level_set(LOG_ERROR + 1);
	os_sys.clock_gettime = later_clock;
	if (with_counters) {
		redis_kit_need();
		char urls[REDIS_KIT_URLS_BYTES];
		struct err e;
		const struct counters_redis_config config = {
		    .urls = redis_kit_urls(urls), .installation = "test", .stream_links_max = 1000000};
		assert_int_equal(counters_redis_open(&config, &counters, &e), 0);
	}
	worker_start(flush_ms);
}

static int end(void **state)
{
	worker_die();
	if (counters)
		counters->ops->free(counters);
	counters = NULL;
	return 0;
}

/* The next events as a batch. The last of them dies with a part of it done: `steps` of announce, commit,
 * count and the queue's commit. */
static void batch_run(uint64_t size, unsigned steps)
{
	static const struct dimension_set sets[] = {{.kind = VISIT_CLICK}, {.kind = VISIT_HEAD}};
	struct sink_visit visits[BATCH_MAX];
	uint64_t to = MIN(world.at + size, (uint64_t)EVENTS);
	const struct advance advances[] = {{.stream = OTHER_STREAM, .from = 3 * world.at, .to = 3 * to},
	                                   {.stream = STREAM, .from = world.at, .to = to}};
	struct sink_batch b = {.visits = visits,
	                       .sets = sets,
	                       .set_count = ARRAY_LEN(sets),
	                       .source = SOURCE,
	                       .advances = advances,
	                       .advance_count = ARRAY_LEN(advances)};
	for (uint64_t i = world.at; i < to; i++)
		visits[b.visit_count++] = (struct sink_visit){.link = world.links[i] ? world.links[i] : 1,
		                                              .stream = STREAM,
		                                              .set = world.links[i] == 0};
	clicks_announce(clicks, &b);
	if (steps > 1)
		world.sink_at = MAX(world.sink_at, to);
	if (steps > 2)
		clicks_count(clicks, &b);
	if (steps > 3 && dice(3) == 0) /* it may be late */
		world.group_at = MAX(world.group_at, to);
	world.at = to;
}

static void read_all(void)
{
	while (world.at < EVENTS)
		batch_run(1 + dice(BATCH_MAX), 4);
}

/* Live counts are at most what the sink has; when all was told they are just that. How many are. */
static size_t assert_live(bool is_exact)
{
	struct counter asked[LINKS];
	size_t n = 0;
	for (uint64_t i = 0; i < LINKS; i++)
		asked[i] = (struct counter){.link = 1 + i};
	assert_int_equal(counters->ops->get(counters, asked, LINKS), 0);
	for (size_t i = 0; i < LINKS; i++) {
		uint64_t truth = truth_of(asked[i].link);
		bool is_live = !asked[i].is_missing && asked[i].clicks == truth;
		assert_true(asked[i].is_missing || asked[i].clicks <= truth);
		assert_true(is_live || truth == 0 || !is_exact);
		n += is_live;
	}
	return n;
}

static void assert_stored(void)
{
	for (uint64_t link = 1; link <= LINKS; link++)
		assert_int_equal(world.stored[link], truth_of(link));
}

TEST(clicks_are_live_after_each_batch_and_stored_at_the_end)
{
	begin(true, false, LONG_MS);
	while (world.at < EVENTS) {
		batch_run(BATCH_MAX, 4);
		clicks_maintain(clicks);
	}
	assert_live(true);
	assert_int_equal(world.store_calls, 0);
	clicks_finish(clicks);
	assert_int_equal(world.store_calls, 1);
	assert_stored();
}

TEST(the_sink_is_asked_about_links_that_are_new)
{
	begin(true, true, LONG_MS);
	read_all();
	assert_live(true);
	assert_in_range(world.sink_calls, 1, LINKS);
}

TEST(totals_are_stored_when_it_is_time)
{
	begin(true, false, 0);
	read_all();
	clicks_maintain(clicks);
	assert_stored();
	unsigned calls = world.store_calls;
	clicks_maintain(clicks);
	assert_int_equal(world.store_calls, calls); /* nothing has changed */
}

TEST(totals_are_stored_later_when_the_store_fails)
{
	begin(true, false, 0);
	batch_run(BATCH_MAX, 4);
	world.store_fails = ERR_UNAVAILABLE;
	clicks_maintain(clicks);
	assert_int_equal(world.store_calls, 1);
	read_all();
	world.store_fails = 0;
	clicks_maintain(clicks);
	assert_int_equal(world.store_calls, 1); /* it is left alone for a while */
	clicks_finish(clicks);
	assert_stored();
}

TEST(totals_that_a_worker_left_are_stored_by_the_next)
{
	begin(true, false, LONG_MS);
	while (world.at < EVENTS - 1)
		batch_run(MIN((uint64_t)BATCH_MAX, EVENTS - 1 - world.at), 4);
	worker_die();
	assert_int_equal(world.store_calls, 0);
	worker_start(LONG_MS);
	read_all();
	clicks_finish(clicks);
	assert_stored();
}

TEST(a_slow_sink_is_asked_now_and_then_and_the_counters_otherwise)
{
	begin(true, false, 0);
	world.sink_ms = 3000;
	batch_run(BATCH_MAX, 4);
	assert_int_equal(world.sink_calls, 1);
	assert_live(true);
	clicks_maintain(clicks);
	assert_int_equal(world.sink_calls, 1);
	assert_stored();
	/* The next links are not known to either: they have to wait. */
	while (truth_of(LINKS / 2) == 0)
		batch_run(BATCH_MAX, 4);
	clicks_maintain(clicks);
	assert_int_equal(world.sink_calls, 1);
	assert_live(false);
	world.later_ms += 60000;
	batch_run(BATCH_MAX, 4);
	assert_int_equal(world.sink_calls, 2);
	clicks_finish(clicks);
	assert_stored();
}

TEST(totals_that_are_too_high_are_put_right)
{
	begin(true, false, 0);
	batch_run(BATCH_MAX, 4);
	struct counter one = {.link = 1, .clicks = 1000};
	while (truth_of(one.link) == 0)
		one.link++;
	const struct counters_step step = {
	    .source = SOURCE, .at = {.stream = STREAM, .to = world.at}, .links = &one, .count = 1};
	counters->ops->put(counters, &step);
	clicks_maintain(clicks);
	assert_live(true);
	assert_stored();
}

TEST(without_counters_the_store_gets_the_totals_of_the_sink)
{
	begin(false, false, 0);
	read_all();
	clicks_maintain(clicks);
	assert_stored();
}

/* More links than one flush may leave for the next. */
static struct {
	bool is_stored[(1 << 20) + 3 * 65536];
	size_t stored;
} many;

static int many_clicks(struct sink *s, struct sink_total *totals, size_t n)
{
	(void)s;
	for (size_t i = 0; i < n; i++)
		totals[i].clicks = 1;
	return 0;
}

static int many_store(struct store *s, uint64_t node, const struct store_count *counts, size_t n)
{
	(void)s, (void)node;
	for (size_t i = 0; world.store_fails == 0 && i < n; i++) {
		many.stored += !many.is_stored[counts[i].id - 1];
		many.is_stored[counts[i].id - 1] = true;
	}
	return world.store_fails;
}

TEST(without_counters_no_link_is_forgotten_while_the_store_fails)
{
	enum { AT_ONCE = 65536, PATIENCE = 1000 };
	static const struct sink_ops sink_ops = {.clicks = many_clicks};
	static const struct store_ops ops = {.set_clicks = many_store};
	static const struct dimension_set click = {.kind = VISIT_CLICK};
	struct sink_visit *visits = calloc(AT_ONCE, sizeof(*visits));
	struct sink_batch b = {.visits = visits, .visit_count = AT_ONCE, .sets = &click, .set_count = 1};
	begin(false, false, 0);
	sink.ops = &sink_ops;
	store.ops = &ops;
	world.store_fails = ERR_UNAVAILABLE;
	for (size_t at = 0; at < ARRAY_LEN(many.is_stored); at += AT_ONCE) {
		for (size_t i = 0; i < AT_ONCE; i++)
			visits[i].link = 1 + at + i;
		clicks_announce(clicks, &b);
		clicks_count(clicks, &b);
		clicks_maintain(clicks);
	}
	world.store_fails = 0;
	for (int i = 0; i < PATIENCE && many.stored < ARRAY_LEN(many.is_stored); i++) {
		world.later_ms += LONG_MS;
		clicks_maintain(clicks);
	}
	assert_int_equal(many.stored, ARRAY_LEN(many.is_stored));
	free(visits);
}

/* Faults at any moment. */
static void live_once(bool sink_keeps_place, bool workers_die, bool redis_forgets)
{
	begin(true, sink_keeps_place, 0);
	size_t live = 0;
	while (world.at < EVENTS - BATCH_MAX) {
		unsigned steps = workers_die && dice(4) == 0 ? dice(4) : 4;
		batch_run(1 + dice(BATCH_MAX), steps);
		if (steps < 4) {
			worker_die();
			worker_start(0);
		}
		if (!sink_keeps_place && dice(5) == 0)
			world.at = world.group_at; /* the queue goes back */
		if (redis_forgets && dice(4) == 0)
			redis_kit_ask(redis_kit_servers[0].url, REDIS_ARGS(STR("FLUSHALL")));
		if (!sink_keeps_place && dice(8) == 0)
			clicks_maintain(clicks);
		live += assert_live(false);
	}
	assert_true(live > 1000); /* most of the time most of them are known */
	read_all();
	if (sink_keeps_place)
		return;
	clicks_finish(clicks);
	assert_stored();
}

static void live_through(bool sink_keeps_place, bool workers_die, bool redis_forgets)
{
	for (unsigned life = 0; life < LIVES; life++, seed++) {
		live_once(sink_keeps_place, workers_die, redis_forgets);
		end(NULL);
		redis_kit_renew(NULL);
	}
	seed -= LIVES;
}

TEST(workers_that_die_lose_nothing)
{
	live_through(false, true, false);
}

TEST(a_redis_that_forgets_loses_nothing)
{
	live_through(false, false, true);
}

TEST(with_a_sink_that_keeps_its_place_workers_and_redis_may_fail_at_once)
{
	live_through(true, true, true);
}

/* Dies after any step, again and again; what comes after it has read all has nothing to read. */
TEST(without_counters_totals_of_a_killed_worker_are_stored_by_the_next)
{
	struct temp dir;
	temp_init(&dir);
	begin(false, false, LONG_MS);
	temp_path(&dir, "dirty-links", world.dirty_links);
	worker_die();
	worker_start(LONG_MS);
	while (world.at < EVENTS) {
		for (unsigned n = dice(8); n > 0; n--)
			batch_run(1 + dice(BATCH_MAX), 4);
		if (dice(4) == 0) {
			world.later_ms += 2 * LONG_MS;
			world.store_fails = dice(2) ? ERR_UNAVAILABLE : 0;
			clicks_maintain(clicks); /* perhaps all of it, perhaps a part */
			world.store_fails = 0;
		}
		batch_run(1 + dice(BATCH_MAX), 1 + dice(4));
		worker_die();
		worker_start(LONG_MS);
	}
	world.group_at = EVENTS;
	worker_die();
	worker_start(LONG_MS);
	world.later_ms += 2 * LONG_MS;
	clicks_maintain(clicks);
	assert_stored();
	unsigned calls = world.store_calls;
	worker_die();
	worker_start(LONG_MS); /* nothing is left */
	clicks_finish(clicks);
	assert_int_equal(world.store_calls, calls);
	worker_die();
	temp_release(&dir);
}

TEST(a_redis_that_was_down_is_put_right)
{
	begin(true, false, LONG_MS);
	batch_run(BATCH_MAX, 4);
	redis_server_kill(&redis_kit_servers[0]);
	while (world.at < EVENTS / 2)
		batch_run(BATCH_MAX, 4);
	redis_server_restart(&redis_kit_servers[0], NULL);
	while (redis_kit_ask(redis_kit_servers[0].url,
	                     REDIS_ARGS(STR("EXISTS"), STR("curt:c:test:streams"))) == 0) {
		assert_true(world.at < EVENTS);
		batch_run(1, 4);
		world.later_ms += 1000; /* then it is tried again */
	}
	read_all();
	assert_live(false);
	clicks_finish(clicks);
	assert_stored();
}

int main(int argc, char **argv)
{
	if (argc > 1) /* other lives */
		seed = (unsigned)strtoul(argv[1], NULL, 10);
	return RUN_TESTS(.group_setup = redis_kit_one, .group_teardown = redis_kit_down,
	                 .setup = redis_kit_renew, .teardown = end);
}
