/* The queue consumer, with a scripted queue and a scripted handler. Catching up is in worker_test.c, through the
 * stats worker. */
#include "lib/test.h"
#include "obs/log.h"
#include "queue/consumer.h"

enum { BATCH = 10 };

/* A stream of the numbers 1, 2, 3 …; everything under the lock. */
static struct source {
	struct queue base;
	pthread_mutex_t lock;
	uint64_t written, read, committed;
	int next_says;    /* once, instead of an event */
	int trouble_says; /* with the sentence "the queue hurts" */
	unsigned rewinds;
	struct event event;
	struct queue_stream stream;
	struct advance advance;
} source;

static struct sink_like {
	uint64_t batch[BATCH], count;
	uint64_t taken;     /* the last number committed */
	uint64_t offered;   /* batches */
	bool hangs;         /* commits do */
	int commit_says;    /* until it is changed; once if it is ERR_UNCERTAIN */
	uint64_t refuse_at; /* this number does not go with those before it; 0: none */
	bool is_full;
	bool finished;
} taker;

static struct queue_consumer *consumer;
static char refuses[64];

#define LOCKED(...)                                 \
	do {                                        \
		pthread_mutex_lock(&source.lock);   \
		__VA_ARGS__;                        \
		pthread_mutex_unlock(&source.lock); \
	} while (0)

static uint64_t number_of(const uint64_t *n)
{
	uint64_t value;
	LOCKED(value = *n);
	return value;
}

static int queue_refresh(struct queue *q)
{
	(void)q;
	return 0;
}

static int queue_next(struct queue *q, struct queue_event *ret)
{
	int r = 0;
	(void)q;
	LOCKED({
		r = source.next_says;
		source.next_says = 0;
		if (r == 0 && source.read < source.written) {
			source.event = (struct event){.kind = EVENT_TALLY, .position = ++source.read};
			*ret = (struct queue_event){.event = &source.event, .stream = &source.stream};
			r = 1;
		}
	});
	return r;
}

static void queue_put_back(struct queue *q)
{
	(void)q;
	LOCKED(source.read--);
}

static size_t queue_advances(struct queue *q, const struct advance **ret)
{
	size_t n;
	(void)q;
	LOCKED({
		source.advance = (struct advance){1, source.committed, source.read};
		n = source.read > source.committed;
	});
	*ret = &source.advance;
	return n;
}

static int queue_commit(struct queue *q)
{
	(void)q;
	LOCKED(source.committed = source.read);
	return 0;
}

static void queue_rewind(struct queue *q)
{
	(void)q;
	LOCKED({
		source.read = source.committed;
		source.rewinds++;
	});
}

static bool queue_is_behind(const struct queue *q)
{
	bool behind;
	(void)q;
	LOCKED(behind = source.read < source.written);
	return behind;
}

static int queue_trouble(struct queue *q, struct err *e)
{
	int r;
	(void)q;
	LOCKED(r = source.trouble_says);
	return r < 0 ? err_set(e, r, "the queue hurts") : 0;
}

static void queue_tidy(struct queue *q)
{
	(void)q;
}

static const struct queue_ops queue_ops = {
    .refresh = queue_refresh,
    .next = queue_next,
    .put_back = queue_put_back,
    .advances = queue_advances,
    .commit = queue_commit,
    .rewind = queue_rewind,
    .is_behind = queue_is_behind,
    .trouble = queue_trouble,
    .retention = queue_tidy,
};

static void taker_begin(void *ctx)
{
	(void)ctx;
	LOCKED({
		taker.count = 0;
		taker.is_full = false;
	});
}

static bool taker_is_full(void *ctx)
{
	bool full;
	(void)ctx;
	LOCKED(full = taker.is_full || taker.count == BATCH);
	return full;
}

static int taker_add(void *ctx, struct queue *q, const struct queue_event *ev)
{
	int r = 0;
	(void)ctx;
	(void)q;
	LOCKED({
		if (taker.refuse_at == ev->event->position && taker.count > 0) {
			taker.is_full = true;
			r = ERR_LIMIT;
		} else {
			taker.batch[taker.count++] = ev->event->position;
		}
	});
	return r;
}

static int taker_commit(void *ctx, const struct advance *advances, size_t count)
{
	int r;
	(void)ctx;
	bool hangs = true;
	LOCKED(taker.offered++);
	while (hangs) {
		LOCKED(hangs = taker.hangs);
		if (hangs)
			until_pause();
	}
	LOCKED({
		r = taker.commit_says;
		if (r == ERR_UNCERTAIN)
			taker.commit_says = 0;
		for (uint64_t i = 0; r == 0 && i < taker.count; i++)
			taker.taken = taker.batch[i] == taker.taken + 1 ? taker.batch[i] : UINT64_MAX;
		if (r == 0 && (count != 1 || advances[0].to != taker.taken))
			taker.taken = UINT64_MAX;
	});
	return r;
}

static void taker_chores(void *ctx, bool caught_up)
{
	(void)ctx;
	(void)caught_up;
}

static void taker_finish(void *ctx)
{
	(void)ctx;
	LOCKED(taker.finished = true);
}

static const struct batch_handler handler = {taker_begin,  taker_is_full, taker_add,
                                             taker_commit, taker_chores,  taker_finish};

static int setup(void **state)
{
	log_level_set(LOG_ERROR + 1);
	source = (struct source){.base.ops = &queue_ops};
	taker = (struct sink_like){0};
	pthread_mutex_init(&source.lock, NULL);
	snprintf(refuses, sizeof(refuses), "nobody takes it");
	const struct queue_consumer_config config = {.name = "consumer",
	                                             .refuses = refuses,
	                                             .queue = &source.base,
	                                             .handler = &handler,
	                                             .interval_ms = 1};
	MUST(queue_consumer_start(&config, &consumer, &why));
	return 0;
}

static int teardown(void **state)
{
	queue_consumer_stop(consumer);
	consumer = NULL;
	pthread_mutex_destroy(&source.lock);
	return 0;
}

TEST(events_go_over_in_batches_and_in_order)
{
	for (unsigned i = 1; i <= 20; i++) {
		LOCKED(source.written += i);
		UNTIL(number_of(&taker.taken) == number_of(&source.written));
	}
	UNTIL(number_of(&source.committed) == 210);
	assert_true(number_of(&taker.offered) >= 21);
}

TEST(a_batch_that_is_refused_is_offered_again)
{
	struct err e = {""};
	LOCKED(taker.commit_says = ERR_UNAVAILABLE; source.written = 3);
	UNTIL(queue_consumer_trouble(consumer, &e) == ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "nobody takes it"));
	assert_int_equal(number_of(&source.committed), 0);
	LOCKED(taker.commit_says = 0);
	UNTIL(number_of(&source.committed) == 3);
	assert_int_equal(number_of(&taker.taken), 3);
	UNTIL(queue_consumer_trouble(consumer, &e) == 0);
	unsigned rewinds;
	LOCKED(rewinds = source.rewinds);
	assert_int_equal(rewinds, 0);
}

TEST(in_doubt_all_is_read_again)
{
	LOCKED(taker.commit_says = ERR_UNCERTAIN; source.written = 3);
	UNTIL(number_of(&source.committed) == 3);
	assert_int_equal(number_of(&taker.taken), 3);
	LOCKED(source.next_says = ERR_UNCERTAIN; source.written = 8);
	UNTIL(number_of(&source.committed) == 8);
	assert_int_equal(number_of(&taker.taken), 8);
	unsigned rewinds;
	LOCKED(rewinds = source.rewinds);
	assert_int_equal(rewinds, 2);
}

TEST(an_event_that_must_not_be_in_the_batch_is_in_the_next)
{
	LOCKED(taker.refuse_at = 5; source.written = 9);
	UNTIL(number_of(&source.committed) == 9);
	assert_int_equal(number_of(&taker.taken), 9);
	assert_int_equal(number_of(&taker.offered), 2);
}

/* Also when no event comes that could show it. */
TEST(a_trouble_of_the_queue_is_reported_until_it_is_over)
{
	struct err e = {""};
	LOCKED(source.trouble_says = ERR_UNAVAILABLE);
	UNTIL(queue_consumer_trouble(consumer, &e) == ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "the queue hurts"));
	LOCKED(source.trouble_says = 0);
	UNTIL(queue_consumer_trouble(consumer, &e) == 0);
}

TEST(one_that_stops_takes_what_is_left)
{
	LOCKED(source.written = 500);
	queue_consumer_stop(consumer);
	consumer = NULL;
	assert_int_equal(taker.taken, 500);
	assert_int_equal(source.committed, 500);
	assert_true(taker.finished);
}

TEST(one_that_stops_does_not_wait_for_a_handler_that_refuses)
{
	struct err e;
	LOCKED(taker.commit_says = ERR_UNAVAILABLE; source.written = 3);
	UNTIL(queue_consumer_trouble(consumer, &e) == ERR_UNAVAILABLE);
	queue_consumer_stop(consumer);
	consumer = NULL;
	assert_int_equal(source.committed, 0);
	assert_true(taker.finished);
}

TEST(a_handler_that_hangs_is_a_trouble_and_is_not_waited_for_longer_than_one_wants)
{
	struct err e = {""};
	LOCKED(taker.hangs = true; source.written = 3);
	UNTIL(queue_consumer_trouble(consumer, &e) == ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "the commit of a batch has taken"));
	queue_consumer_ask_stop(consumer);
	assert_false(queue_consumer_wait_stop(consumer, 20));
	LOCKED(taker.hangs = false; taker.commit_says = ERR_UNAVAILABLE);
	assert_true(queue_consumer_wait_stop(consumer, UNTIL_MS));
	assert_true(taker.finished);
	assert_int_equal(source.committed, 0);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
