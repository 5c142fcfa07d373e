/* The queue on Kafka, where it differs from others: groups, what was sent twice, what is no event, and a
 * broker that is down. What all queues promise is in the conformance suite. */
#include "lib/kafka_kit.h"
#include "lib/queue_suite.h"
#include "lib/test.h"
#include "obs/log.h"
#include "obs/metrics.h"
#include "queue/queue_kafka.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PARTITIONS = 2, EVENTS_MAX = 4096 };

static struct kafka_kit kafka;
static struct queue_keeper keeper;
static int resume_says;

static int setup(void **state)
{
	log_level_set(LOG_ERROR + 1);
	kafka_kit_init(&kafka, PARTITIONS);
	snprintf(kafka.options, sizeof(kafka.options), "heartbeat.interval.ms=100");
	resume_says = 0;
	if (kafka.settings.url)
		kafka_kit_make(&kafka, NULL, NULL);
	return 0;
}

static int teardown(void **state)
{
	kafka_kit_release(&kafka);
	keeper_release(&keeper);
	return 0;
}

static int resume(void *ctx, uint64_t source, struct arena *arena, struct position **ret, size_t *ret_count)
{
	(void)ctx;
	(void)source;
	(void)arena;
	*ret = keeper.positions;
	*ret_count = keeper.count;
	return resume_says;
}

static struct queue *open_queue(const struct queue_settings *settings, bool keeps)
{
	struct queue *q = NULL;
	const struct queue_kafka_config config = {.settings = settings, .resume = keeps ? resume : NULL};
	MUST(queue_kafka_new(&config, &q, &why));
	return q;
}

/* Messages */

/* Number `n` of a writer, as a forwarder sends it; every other one is a click. */
static void send(unsigned writer, unsigned n)
{
	struct buf CLEANUP(buf_release) text = {0};
	char id[32], key[32], scratch[WIRE_KEY_BYTES_MAX];
	snprintf(id, sizeof(id), "i%u", n);
	struct event ev = {.kind = EVENT_IMPRESSION,
	                   .impression = {1, 2, str_of(id), STR("user"), STR("ad")}};
	if (n / 2 % 2)
		ev = (struct event){.kind = EVENT_VISIT, .visit = {.time_ms = 1, .link = 1 + n}};
	struct str by = wire_key(&ev, scratch);
	wire_encode(&text, (struct event_id){7, event_segment(1, writer, 0), 64 + n}, &ev,
	            &(struct wire_texts){0});
	snprintf(key, sizeof(key), "%.*s", STR_ARG(by));
	kafka_kit_produce(&kafka, wire_topic_of(&ev), key, buf_view(&text));
}

struct got {
	struct event_id ids[EVENTS_MAX];
	enum event_kind kinds[EVENTS_MAX];
	size_t count;
};

static void got_add(struct got *g, const struct queue_event *ev)
{
	assert_true(g->count < EVENTS_MAX);
	g->ids[g->count] = ev->id;
	g->kinds[g->count++] = ev->event->kind;
}

static size_t different(const struct got *g)
{
	size_t n = 0;
	for (size_t i = 0; i < g->count; i++) {
		size_t k = 0;
		while (k < i && !event_id_equals(g->ids[k], g->ids[i]))
			k++;
		n += k == i;
	}
	return n;
}

/* One round: what `next` said last. */
static int round_read(struct queue *q, struct got *g)
{
	struct queue_event ev;
	int r;
	assert_int_equal(q->ops->refresh(q), 0);
	while ((r = q->ops->next(q, &ev)) == 1)
		got_add(g, &ev);
	return r;
}

static void commit(struct queue *q, bool keeps)
{
	const struct advance *advances;
	size_t count = q->ops->advances(q, &advances);
	if (keeps)
		keeper_take(&keeper, advances, count);
	assert_int_equal(q->ops->commit(q), 0);
}

/* Rounds until there are so many with those that are there already; begins again when the group wants it. */
static void read_count(struct queue *q, size_t count, struct got *g)
{
	size_t before = g->count;
	int64_t end_ms = until_now_ms() + UNTIL_MS;
	while (g->count < count) {
		if (round_read(q, g) == ERR_UNCERTAIN) {
			q->ops->rewind(q);
			g->count = before;
		}
		if (until_now_ms() > end_ms)
			fail_msg("%zu of %zu events came", g->count, count);
		until_pause();
	}
	assert_int_equal(g->count, count);
}

static void assert_nothing_more(struct queue *q, struct got *g)
{
	size_t before = g->count;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(round_read(q, g), 0);
		until_pause();
	}
	assert_int_equal(g->count, before);
}

/* Tests */

static uint64_t replays(void)
{
	return metrics_sum(offsetof(struct metrics, queue_duplicates));
}

TEST(what_a_forwarder_sent_twice_comes_once, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got;
	got.count = 0;
	uint64_t before = replays();
	for (unsigned n = 0; n < 6; n++)
		send(n % 2, n);
	for (unsigned n = 2; n < 8; n++)
		send(n % 2, n);
	struct queue *q = open_queue(&kafka.settings, true);
	read_count(q, 8, &got);
	assert_nothing_more(q, &got);
	assert_int_equal(different(&got), 8);
	assert_int_equal(replays() - before, 4);
	/* Also when it was read again, */
	q->ops->rewind(q);
	got.count = 0;
	read_count(q, 8, &got);
	commit(q, true);
	/* and when it comes later, to another reader, who goes by what was kept. */
	q->ops->free(q);
	for (unsigned n = 5; n < 9; n++)
		send(n % 2, n);
	q = open_queue(&kafka.settings, true);
	read_count(q, 9, &got);
	assert_nothing_more(q, &got);
	assert_int_equal(different(&got), 9);
	commit(q, true);
	q->ops->free(q);
}

TEST(what_is_no_event_comes_as_unusable_and_holds_nobody_up, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got, again;
	got.count = again.count = 0;
	send(0, 1);
	kafka_kit_produce(&kafka, WIRE_IMPRESSIONS, "i1", STR("{\"id\":"));
	kafka_kit_produce(&kafka, WIRE_IMPRESSIONS, "i1", STR(""));
	kafka_kit_produce(&kafka, WIRE_IMPRESSIONS, "i1",
	                  STR("{\"id\":\"i1\",\"ts\":1600000000000,\"userId\":\"u\",\"adId\":\"a\"}"));
	kafka_kit_produce(&kafka, WIRE_VISITS, "1", STR("\xff"));
	send(0, 2);
	struct queue *q = open_queue(&kafka.settings, true);
	read_count(q, 6, &got);
	assert_int_equal(different(&got), 6);
	size_t unusable = 0, foreign = 0;
	for (size_t i = 0; i < got.count; i++) {
		unusable += got.kinds[i] == EVENT_UNUSABLE;
		foreign += got.ids[i].node != 7;
		assert_true(got.ids[i].node == 7 || got.ids[i].segment == 0);
	}
	assert_int_equal(unusable, 3);
	assert_int_equal(foreign, 4);
	/* Their ids are their places, which stay. */
	q->ops->rewind(q);
	read_count(q, 6, &again);
	for (size_t i = 0; i < again.count; i++)
		got_add(&got, &(struct queue_event){.id = again.ids[i], .event = &(struct event){0}});
	assert_int_equal(different(&got), 6);
	commit(q, true);
	assert_nothing_more(q, &again);
	q->ops->free(q);
}

static uint64_t lag_of(struct queue *q)
{
	struct queue_lag lags[16];
	uint64_t sum = 0;
	size_t n = queue_kafka_lags(q, lags, ARRAY_LEN(lags));
	for (size_t i = 0; i < n; i++)
		sum += lags[i].messages;
	return sum;
}

TEST(who_is_behind_says_by_how_much, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got;
	got.count = 0;
	for (unsigned n = 0; n < 5; n++)
		send(0, n);
	struct queue *q = open_queue(&kafka.settings, false);
	read_count(q, 5, &got);
	assert_int_equal(q->ops->refresh(q), 0);
	assert_int_equal(lag_of(q), 5);
	commit(q, false);
	assert_int_equal(lag_of(q), 0);
	assert_false(q->ops->is_behind(q));
	q->ops->free(q);
}

/* Somebody who came meanwhile takes partitions over; what was not committed there is his. */
TEST(who_loses_a_partition_in_the_middle_begins_again_with_the_others, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got mine, his;
	mine.count = his.count = 0;
	for (unsigned n = 0; n < 20; n++)
		send(0, n);
	struct queue *a = open_queue(&kafka.settings, true);
	read_count(a, 20, &mine); /* of all partitions, and nothing is committed */
	struct queue *b = open_queue(&kafka.settings, true);
	int r = 0;
	UNTIL((r = round_read(a, &mine), round_read(b, &his), r == ERR_UNCERTAIN));
	a->ops->rewind(a);
	mine.count = 0;
	UNTIL((round_read(a, &mine), round_read(b, &his), mine.count + his.count >= 20));
	assert_true(mine.count > 0 && his.count > 0);
	assert_int_equal(mine.count + his.count, 20);
	commit(a, true);
	commit(b, true);
	/* He goes, and all is mine. */
	b->ops->free(b);
	for (unsigned n = 20; n < 40; n++)
		send(0, n);
	mine.count = 0;
	read_count(a, 20, &mine);
	commit(a, true);
	a->ops->free(a);
}

/* One whose sink does not answer for long, as the group sees it. */
TEST(who_does_not_come_for_long_is_overtaken_and_may_come_back, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got mine, his;
	mine.count = his.count = 0;
	snprintf(kafka.options, sizeof(kafka.options),
	         "heartbeat.interval.ms=100,session.timeout.ms=1500,max.poll.interval.ms=1500");
	for (unsigned n = 0; n < 20; n++)
		send(0, n);
	struct queue *a = open_queue(&kafka.settings, true);
	read_count(a, 20, &mine);
	struct queue *b = open_queue(&kafka.settings, true);
	read_count(b, 20, &his); /* meanwhile nobody asks for the others */
	commit(b, true);
	UNTIL(round_read(a, &mine) == ERR_UNCERTAIN);
	a->ops->rewind(a);
	b->ops->free(b);
	for (unsigned n = 20; n < 30; n++)
		send(0, n);
	mine.count = 0;
	read_count(a, 10, &mine);
	commit(a, true);
	a->ops->free(a);
}

/* Reads what is new with another reader, who takes it for good. */
static void read_later(size_t count, bool keeps, struct got *g)
{
	g->count = 0;
	struct queue *q = open_queue(&kafka.settings, keeps);
	read_count(q, count, g);
	assert_nothing_more(q, g);
	commit(q, keeps);
	q->ops->free(q);
}

static uint64_t lost(void)
{
	return metrics_sum(offsetof(struct metrics, queue_lost));
}

TEST(a_topic_that_was_made_again_is_read_from_its_beginning, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got;
	for (unsigned n = 0; n < 8; n++)
		send(0, n);
	read_later(8, true, &got);
	kafka_kit_remake(&kafka);
	/* It is longer than the first one was, and some were there before. */
	for (unsigned n = 4; n < 40; n++)
		send(0, n);
	uint64_t before = lost();
	read_later(32, true, &got);
	assert_int_equal(different(&got), 32);
	assert_int_equal(lost(), before);
	send(0, 40);
	read_later(1, true, &got);
}

TEST(of_what_a_sink_has_nothing_it_gets_all_whatever_the_group_says, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got;
	for (unsigned n = 0; n < 8; n++)
		send(0, n);
	read_later(8, true, &got);
	keeper_release(&keeper); /* as a database that was put back from an early copy */
	read_later(8, true, &got);
}

static void messages_that_are_gone_before_they_were_read_are_counted(bool keeps)
{
	static struct got got;
	uint64_t before = lost();
	for (unsigned n = 0; n < 8; n++)
		send(0, n);
	read_later(8, keeps, &got);
	for (unsigned n = 8; n < 18; n++)
		send(0, n);
	kafka_kit_trim(&kafka);
	assert_int_equal(lost(), before);
	/* Nothing came after them, */
	struct queue *q = open_queue(&kafka.settings, keeps);
	UNTIL((round_read(q, &got), lost() - before == 10));
	q->ops->rewind(q);
	assert_nothing_more(q, &got);
	commit(q, keeps);
	q->ops->free(q);
	/* and they are not lost again. */
	send(0, 18);
	read_later(1, keeps, &got);
	assert_int_equal(lost() - before, 10);
}

TEST(a_sink_that_keeps_positions_hears_of_what_is_gone, setup, teardown)
{
	kafka_kit_need(&kafka);
	messages_that_are_gone_before_they_were_read_are_counted(true);
}

TEST(a_sink_that_keeps_none_hears_of_what_is_gone, setup, teardown)
{
	kafka_kit_need(&kafka);
	messages_that_are_gone_before_they_were_read_are_counted(false);
}

/* librdkafka 2.0.2 ends the process when a member is freed that is not assigned anything yet. */
TEST(who_goes_while_he_joins_goes_in_peace, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got;
	for (int tries = 0; tries < 12; tries++) {
		struct queue *q = open_queue(&kafka.settings, true);
		for (int i = 0; i < 4 * tries; i++) {
			round_read(q, &got);
			until_pause();
		}
		q->ops->free(q);
	}
	assert_int_equal(got.count, 0);
}

/* The sink has more than we know of: another worker was there. */
TEST(who_rewinds_goes_by_what_is_kept_by_then, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got;
	got.count = 0;
	for (unsigned n = 0; n < 10; n++)
		send(0, n);
	struct queue *q = open_queue(&kafka.settings, true);
	const struct advance *advances;
	read_count(q, 10, &got);
	keeper_take(&keeper, advances, q->ops->advances(q, &advances));
	q->ops->rewind(q); /* as after a commit of which nobody knew that it had worked */
	assert_nothing_more(q, &got);
	for (unsigned n = 9; n < 12; n++)
		send(0, n);
	read_count(q, 12, &got);
	commit(q, true);
	assert_int_equal(different(&got), 12);
	q->ops->free(q);
}

TEST(a_sink_that_does_not_answer_is_a_trouble_and_nothing_is_read, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got;
	struct err e = {""};
	got.count = 0;
	send(0, 1);
	resume_says = ERR_UNAVAILABLE;
	struct queue *q = open_queue(&kafka.settings, true);
	UNTIL((round_read(q, &got), q->ops->trouble(q, &e) < 0 && strstr(e.text, "sink")));
	assert_int_equal(got.count, 0);
	resume_says = 0;
	read_count(q, 1, &got);
	assert_int_equal(q->ops->trouble(q, &e), 0);
	q->ops->free(q);
}

/* Another worker, in a process of its own, until it is killed. */
static NORETURN void reader_main(char **args)
{
	const struct queue_settings settings = {.url = args[1],
	                                        .group = args[2],
	                                        .prefix = args[3],
	                                        .options = args[4],
	                                        .partitions = PARTITIONS};
	static struct got got;
	struct queue *q = open_queue(&settings, false);
	for (;;) {
		got.count = 0;
		round_read(q, &got);
		if (got.count > 0)
			assert_int_equal(write(STDOUT_FILENO, "x", 1), 1);
		until_pause();
	}
}

TEST(the_partitions_of_a_worker_that_was_killed_go_to_the_others, setup, teardown)
{
	kafka_kit_need(&kafka);
	static struct got got;
	int out[2];
	char byte;
	got.count = 0;
	snprintf(kafka.options, sizeof(kafka.options), "heartbeat.interval.ms=100,session.timeout.ms=1500");
	for (unsigned n = 0; n < 20; n++)
		send(0, n);
	assert_int_equal(pipe(out), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDOUT_FILENO);
		execl("/proc/self/exe", "reader", "queue_kafka_test", kafka.settings.url,
		      kafka.settings.group, kafka.settings.prefix, kafka.options, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	assert_int_equal(read(out[0], &byte, 1), 1); /* it has some, and commits nothing */
	struct queue *q = open_queue(&kafka.settings, false);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(out[0]);
	read_count(q, 20, &got);
	assert_int_equal(different(&got), 20);
	q->ops->free(q);
}

TEST(a_broker_that_is_down_is_a_trouble_until_it_is_back)
{
	struct kafka_kit kit;
	struct err e = {""};
	static struct got got;
	log_level_set(LOG_ERROR + 1);
	got.count = 0;
	struct kafka_mock *mock = kafka_mock_start(&kit, PARTITIONS);
	struct queue *q = open_queue(&kit.settings, false);
	UNTIL((round_read(q, &got), q->ops->trouble(q, &e) == 0));
	kafka_mock_set_away(mock, true);
	UNTIL((round_read(q, &got), q->ops->trouble(q, &e) == ERR_UNAVAILABLE));
	assert_non_null(strstr(e.text, kit.url + strlen("kafka://")));
	kafka_mock_set_away(mock, false);
	UNTIL((round_read(q, &got), q->ops->trouble(q, &e) == 0));
	kafka_mock_set_away(mock, true);
	q->ops->free(q); /* which has an end */
	kafka_mock_stop(mock);
}

int main(int argc, char **argv)
{
	if (argc == 5)
		reader_main(argv);
	return RUN_TESTS();
}
