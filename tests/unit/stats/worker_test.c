/* Catching up: a worker whose interval is a minute, on a sink that can be held up. */
#include "lib/event_kit.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/clock.h"
#include "queue/queue_log.h"
#include "sink/sink.h"
#include "stats/batch.h"
#include "stats/worker.h"

enum { WRITERS = 4, LINKS_MAX = 16, TIMEOUT_MS = 30000, SHORT_MS = 20, FED_EACH = 32, BATCH = 16 };

/* A sink that counts the visits of each link. */
static struct fake {
	struct sink base;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	uint64_t visits[LINKS_MAX];
	unsigned commits, begun;
	bool held;                 /* commits wait */
	int fails;                 /* what a commit says instead of 0 */
	struct event_writer *feed; /* each commit writes more into the log than a batch has room for */
} fake;

static struct temp dir;
static struct event_log *events;
static struct queue *queue;
static struct stats_worker *worker;
static struct stats_settings settings;
static const uint8_t dedup_secret[DEDUP_SECRET_BYTES];

static void write_clicks(struct event_writer *w, uint64_t link, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_true(kit_click(w, link, SAMPLE_TIME_MS));
	assert_int_equal(event_writer_flush(w, SAMPLE_TIME_MS), 0);
}

static int fake_commit(struct sink *s, const struct sink_batch *b, uint64_t *ret_duplicates)
{
	(void)s;
	pthread_mutex_lock(&fake.lock);
	fake.begun++;
	pthread_cond_broadcast(&fake.changed);
	while (fake.held)
		pthread_cond_wait(&fake.changed, &fake.lock);
	int r = fake.fails;
	for (size_t i = 0; r == 0 && i < b->visit_count; i++)
		fake.visits[b->visits[i].link]++;
	fake.commits += r == 0;
	if (r == 0 && fake.feed)
		write_clicks(fake.feed, 2, FED_EACH);
	pthread_mutex_unlock(&fake.lock);
	*ret_duplicates = 0;
	return r;
}

static int fake_tidy(struct sink *s, int64_t now_ms)
{
	(void)s;
	(void)now_ms;
	return 0;
}

static int fake_totals(struct sink *s, size_t max, struct arena *arena, struct sink_total **ret,
                       size_t *ret_count)
{
	(void)s;
	(void)max;
	(void)arena;
	(void)ret;
	*ret_count = 0;
	return 0;
}

static const struct sink_ops fake_ops = {
    .commit = fake_commit, .retention = fake_tidy, .totals = fake_totals};

static uint64_t visits_of(uint64_t link)
{
	pthread_mutex_lock(&fake.lock);
	uint64_t visits = fake.visits[link];
	pthread_mutex_unlock(&fake.lock);
	return visits;
}

static void set_held(bool held)
{
	pthread_mutex_lock(&fake.lock);
	fake.held = held;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static void set_failing(int r)
{
	pthread_mutex_lock(&fake.lock);
	fake.fails = r;
	pthread_mutex_unlock(&fake.lock);
}

static void set_feed(struct event_writer *w)
{
	pthread_mutex_lock(&fake.lock);
	fake.feed = w;
	pthread_mutex_unlock(&fake.lock);
}

static int setup(void **state)
{
	temp_init(&dir);
	log_level_set(LOG_ERROR + 1);
	fake = (struct fake){.base.ops = &fake_ops};
	pthread_mutex_init(&fake.lock, NULL);
	pthread_cond_init(&fake.changed, NULL);
	settings = (struct stats_settings){
	    .batch = 65536, .interval_ms = 60000, .totals_ms = 3600000, .places = ""};
	events = kit_log_open(dir.path, &kit_settings, WRITERS);
	return 0;
}

static void start(void)
{
	const struct queue_log_config log = {.log = events, .settings = &kit_settings};
	MUST(queue_log_new(&log, &queue, &why));
	const struct stats_worker_config config = {.settings = &settings,
	                                           .queue = queue,
	                                           .sink = &fake.base,
	                                           .folder = dir.path,
	                                           .seen_ms = 1000,
	                                           .dedup_secret = dedup_secret};
	MUST(stats_worker_start(&config, &worker, &why));
}

static int teardown(void **state)
{
	stats_worker_stop(worker);
	worker = NULL;
	if (queue)
		queue->ops->free(queue);
	queue = NULL;
	event_log_close(events);
	pthread_cond_destroy(&fake.changed);
	pthread_mutex_destroy(&fake.lock);
	temp_release(&dir);
	return 0;
}

TEST(what_was_written_before_is_in_the_sink_at_once)
{
	start();
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
	for (unsigned i = 1; i <= 20; i++) {
		write_clicks(event_log_writer(events, i % WRITERS), 1, 7);
		assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
		assert_int_equal(visits_of(1), i * 7);
	}
}

TEST(a_worker_with_nothing_to_read_has_caught_up)
{
	start();
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
	assert_int_equal(fake.commits, 0);
}

TEST(more_than_a_batch_is_waited_for)
{
	settings.batch = BATCH;
	start();
	for (unsigned i = 0; i < WRITERS; i++)
		write_clicks(event_log_writer(events, i), 1, 100 * BATCH + 1);
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
	assert_int_equal(visits_of(1), WRITERS * (100 * BATCH + 1));
}

/* Every commit brings in more than it takes away. */
TEST(under_a_load_that_never_ends_it_still_returns)
{
	settings.batch = BATCH;
	start();
	struct event_writer *w = event_log_writer(events, 0);
	write_clicks(w, 2, FED_EACH);
	set_feed(w);
	for (unsigned i = 1; i <= 10; i++) {
		write_clicks(event_log_writer(events, 1), 1, 5);
		assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
		assert_true(visits_of(1) == i * 5);
	}
	set_feed(NULL);
}

static void *write_and_catch_up(void *arg)
{
	unsigned number = *(unsigned *)arg;
	uint64_t bad = 0;
	for (unsigned i = 1; i <= 50; i++) {
		write_clicks(event_log_writer(events, number), 1 + number, number + 1);
		bad += queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS) != 0;
		bad += visits_of(1 + number) != i * (number + 1);
	}
	return (void *)(uintptr_t)bad;
}

TEST(several_at_once_each_find_what_they_wrote)
{
	pthread_t threads[WRITERS];
	unsigned numbers[WRITERS];
	start();
	for (unsigned i = 0; i < WRITERS; i++) {
		numbers[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, write_and_catch_up, &numbers[i]), 0);
	}
	for (unsigned i = 0; i < WRITERS; i++) {
		void *bad;
		pthread_join(threads[i], &bad);
		assert_ptr_equal(bad, NULL);
	}
}

TEST(what_cannot_be_committed_in_time_is_reported)
{
	start();
	set_failing(ERR_UNAVAILABLE);
	write_clicks(event_log_writer(events, 0), 1, 3);
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), SHORT_MS), ERR_UNAVAILABLE);
	set_failing(0);
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
	assert_int_equal(visits_of(1), 3);
}

/* One that was written after the cut waits for a cut of its own. */
TEST(who_asks_while_a_commit_is_under_way_gets_what_came_after_it_too)
{
	start();
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
	set_held(true);
	write_clicks(event_log_writer(events, 0), 1, 3);
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), SHORT_MS),
	                 ERR_UNAVAILABLE); /* it is read, and held */
	write_clicks(event_log_writer(events, 0), 1, 4);
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), SHORT_MS), ERR_UNAVAILABLE);
	set_held(false);
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
	assert_int_equal(visits_of(1), 7);
}

static void *catch_up_until_told(void *arg)
{
	int *r = arg;
	*r = queue_consumer_catch_up(stats_worker_consumer(worker), 10 * TIMEOUT_MS);
	set_held(false); /* so that the worker can end at all */
	return NULL;
}

TEST(who_waits_is_told_when_the_worker_ends)
{
	pthread_t thread;
	int r = 0;
	start();
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
	set_held(true);
	write_clicks(event_log_writer(events, 0), 1, 3);
	assert_int_equal(pthread_create(&thread, NULL, catch_up_until_told, &r), 0);
	pthread_mutex_lock(&fake.lock);
	while (fake.begun == 0) /* which the other thread has caused */
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
	stats_worker_stop(worker);
	worker = NULL;
	pthread_join(thread, NULL);
	assert_int_equal(r, ERR_UNAVAILABLE);
	assert_int_equal(visits_of(1), 3); /* what was read is committed all the same */
}

TEST(nobody_waits_for_a_worker_that_lets_go)
{
	start();
	set_failing(ERR_UNAVAILABLE);
	write_clicks(event_log_writer(events, 0), 1, 3);
	queue_consumer_cancel_waits(stats_worker_consumer(worker));
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), 100 * TIMEOUT_MS),
	                 ERR_UNAVAILABLE);
	set_failing(0);
}

TEST(a_segment_that_cannot_be_read_is_not_waited_for)
{
	struct arena CLEANUP(arena_release) arena = {0};
	CLEANUP(buf_release) struct buf bytes = {0};
	struct event_segment_state *segments;
	size_t count;
	write_clicks(event_log_writer(events, 0), 1, 3);
	write_clicks(event_log_writer(events, 1), 3, 4);
	assert_int_equal(event_log_segments(events, &arena, &segments, &count), 0);
	assert_true(count >= 2);
	segment_file_read(dir.path, segments[0].segment, &bytes);
	memset(bytes.data + EVENT_HEADER_BYTES, 0x5a, segments[0].end - EVENT_HEADER_BYTES);
	segment_file_write(dir.path, segments[0].segment, bytes.data, bytes.len);
	start();
	assert_int_equal(queue_consumer_catch_up(stats_worker_consumer(worker), TIMEOUT_MS), 0);
	assert_int_equal(visits_of(1), 0);
	assert_int_equal(visits_of(3), 4);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
