/* The forwarder: on a real Kafka, and on librdkafka's mock where the broker has to go away. */
#include "lib/event_kit.h"
#include "lib/kafka_kit.h"
#include "lib/test.h"
#include "obs/log.h"
#include "obs/metrics.h"
#include "os/sys.h"
#include "queue/forwarder.h"
#include "queue/queue_log.h"

#include <jansson.h>

enum { WRITERS = 2, PARTITIONS = 3, PATIENCE_MS = 30000, MESSAGES_MAX = 4096 };

static struct temp dir;
static struct event_log *events;
static struct event_settings settings; /* nothing is removed */
static struct kafka_kit kafka;
static struct arena arena;
static struct queue *queue;
static struct forwarder *forwarder;
static char checkpoint[TEMP_PATH_BYTES];
static struct kafka_mock *mock;

static int setup(void **state)
{
	temp_init(&dir);
	temp_path(&dir, "checkpoint", checkpoint);
	log_level_set(LOG_ERROR + 1);
	kit_syncs_skip();
	settings = kit_settings;
	settings.keep_ms = 3600 * 1000;
	events = kit_log_open(dir.path, &settings, WRITERS);
	return 0;
}

static int setup_real(void **state)
{
	kafka_kit_init(&kafka, PARTITIONS);
	return setup(state);
}

static int setup_mock(void **state)
{
	mock = kafka_mock_start(&kafka, PARTITIONS);
	return setup(state);
}

static void stop(void)
{
	forwarder_stop(forwarder);
	forwarder = NULL;
	if (queue)
		queue->ops->free(queue);
	queue = NULL;
}

static int teardown(void **state)
{
	stop();
	event_log_close(events);
	arena_release(&arena);
	temp_release(&dir);
	os_sys = os_sys_real;
	return 0;
}

static int teardown_real(void **state)
{
	int r = teardown(state);
	kafka_kit_release(&kafka);
	return r;
}

static int teardown_mock(void **state)
{
	int r = teardown(state);
	kafka_mock_stop(mock);
	return r;
}

static void start(const struct forwarder_watch *watch)
{
	struct err e = {""};
	struct checkpoint c;
	assert_int_equal(checkpoint_read(checkpoint, &arena, &c, &e), 0);
	const struct queue_log_config log = {.log = events,
	                                     .settings = &settings,
	                                     .read = c.positions,
	                                     .read_count = c.count,
	                                     .checkpoint = checkpoint,
	                                     .counts = c.counts,
	                                     .boots_in_order = true};
	MUST(queue_log_new(&log, &queue, &why));
	const struct forwarder_config config = {.settings = &kafka.settings, .queue = queue, .watch = watch};
	MUST(forwarder_start(&config, &forwarder, &why));
}

static void write_events(unsigned from, unsigned count)
{
	for (unsigned i = from; i < from + count; i++) {
		struct event_writer *w = event_log_writer(events, i % WRITERS);
		assert_true(kit_click(w, 1 + i % 5, SAMPLE_TIME_MS + i));
		assert_true(kit_impression(w, i, SAMPLE_TIME_MS + i));
	}
	for (unsigned i = 0; i < WRITERS; i++)
		assert_int_equal(event_writer_flush(event_log_writer(events, i), SAMPLE_TIME_MS), 0);
}

static void catch_up(void)
{
	assert_int_equal(queue_consumer_catch_up(forwarder_consumer(forwarder), PATIENCE_MS), 0);
}

static uint64_t clicks_in_checkpoint(void)
{
	struct checkpoint c;
	assert_int_equal(checkpoint_read(checkpoint, &arena, &c, NULL), 0);
	return c.counts.clicks;
}

/* What another team's consumer finds */

static struct found {
	size_t impressions, clicks;
	char ids[MESSAGES_MAX][EVENT_ID_TEXT_BYTES];
	size_t count;
	int32_t partition_of[8]; /* of a link; -1: none yet */
} found;

static void found_message(void *ctx, enum wire_topic topic, int32_t partition, struct str key,
                          struct str value)
{
	(void)ctx;
	json_t *json = json_loadb(value.ptr, value.len, 0, NULL);
	assert_non_null(json);
	const char *id = json_string_value(json_object_get(json, "eventId"));
	assert_non_null(id);
	assert_true(found.count < MESSAGES_MAX);
	snprintf(found.ids[found.count++], EVENT_ID_TEXT_BYTES, "%s", id);
	if (topic == WIRE_IMPRESSIONS) {
		found.impressions++;
		assert_true(str_eq(key, str_of(json_string_value(json_object_get(json, "id")))));
		assert_string_equal(json_string_value(json_object_get(json, "userId")), "user");
		assert_string_equal(json_string_value(json_object_get(json, "adId")), "ad");
		assert_true(json_integer_value(json_object_get(json, "ts")) >= SAMPLE_TIME_MS);
	} else {
		json_int_t link = json_integer_value(json_object_get(json, "link"));
		found.clicks++;
		assert_string_equal(json_string_value(json_object_get(json, "kind")), "click");
		assert_string_equal(json_string_value(json_object_get(json, "agent")), "agent/1.0");
		assert_true(link > 0 && link < 8);
		assert_true(found.partition_of[link] == -1 || found.partition_of[link] == partition);
		found.partition_of[link] = partition;
	}
	json_decref(json);
}

static int id_order(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* How many different events there are. */
static size_t find(void)
{
	found = (struct found){.count = 0};
	for (unsigned i = 0; i < ARRAY_LEN(found.partition_of); i++)
		found.partition_of[i] = -1;
	kafka_kit_each(&kafka, found_message, NULL);
	qsort(found.ids, found.count, sizeof(found.ids[0]), id_order);
	size_t different = 0;
	for (size_t i = 0; i < found.count; i++)
		different += i == 0 || strcmp(found.ids[i], found.ids[i - 1]) != 0;
	return different;
}

/* Tests */

TEST(other_teams_find_each_event_once_under_its_key, setup_real, teardown_real)
{
	kafka_kit_need(&kafka);
	uint64_t sent = metrics_sum(offsetof(struct metrics, queue_sent));
	start(NULL);
	write_events(0, 200);
	catch_up();
	write_events(200, 100);
	catch_up();
	assert_int_equal(find(), 600);
	assert_int_equal(found.count, 600);
	assert_int_equal(found.impressions, 300);
	assert_int_equal(metrics_sum(offsetof(struct metrics, queue_sent)) - sent, 600);
	assert_int_equal(clicks_in_checkpoint(), 300);
}

TEST(one_that_starts_again_goes_on_where_its_receipts_end, setup_real, teardown_real)
{
	kafka_kit_need(&kafka);
	start(NULL);
	write_events(0, 50);
	catch_up();
	stop();
	write_events(50, 50);
	start(NULL);
	catch_up();
	assert_int_equal(find(), 200);
	assert_int_equal(found.count, 200);
	/* Without the checkpoint all goes out again, with the same ids. */
	stop();
	assert_int_equal(unlink(checkpoint), 0);
	start(NULL);
	catch_up();
	assert_int_equal(find(), 200);
	assert_int_equal(found.count, 400);
}

/* A broker that refuses a message ends the producer: nothing behind it may pass. */
TEST(a_producer_that_failed_for_good_is_replaced_and_nothing_is_lost, setup_real, teardown_real)
{
	struct err e = {""};
	kafka_kit_need(&kafka);
	kafka_kit_make(&kafka, "max.message.bytes", "150");
	uint64_t before = metrics_sum(offsetof(struct metrics, queue_producers_replaced));
	start(NULL);
	write_events(0, 100);
	UNTIL(metrics_sum(offsetof(struct metrics, queue_producers_replaced)) - before >= 2);
	UNTIL(queue_consumer_trouble(forwarder_consumer(forwarder), &e) == ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, kafka.url + strlen("kafka://")));
	assert_int_equal(clicks_in_checkpoint(), 0);
	kafka_kit_alter(&kafka, "max.message.bytes", "1000000");
	catch_up();
	assert_int_equal(find(), 200);
	assert_int_equal(clicks_in_checkpoint(), 100);
	UNTIL(queue_consumer_trouble(forwarder_consumer(forwarder), &e) == 0);
}

/* librdkafka has a bound of its own: with it a letter could be refused, and those behind it pass. */
TEST(a_bound_in_the_options_that_a_message_does_not_fit_into_does_not_hold, setup_real, teardown_real)
{
	kafka_kit_need(&kafka);
	snprintf(kafka.options, sizeof(kafka.options), "message.max.bytes=1000");
	struct event_writer *w = event_log_writer(events, 0);
	char agent[1024];
	memset(agent, 'a', sizeof(agent));
	struct event_visit long_one = {.time_ms = SAMPLE_TIME_MS, .link = 1};
	assert_true(
	    event_writer_visit(w, &long_one, &(struct event_visitor){.agent = str_n(agent, sizeof(agent))}));
	write_events(0, 10);
	start(NULL);
	catch_up();
	assert_int_equal(clicks_in_checkpoint(), 11);
}

/* Events wait in the log, and neither the broker nor we need be there all the time. */
TEST(while_the_broker_is_down_events_wait_in_the_log, setup_mock, teardown_mock)
{
	struct err e = {""};
	start(NULL);
	write_events(0, 20);
	catch_up();
	assert_int_equal(clicks_in_checkpoint(), 20);
	kafka_mock_set_away(mock, true);
	write_events(20, 100);
	UNTIL(queue_consumer_trouble(forwarder_consumer(forwarder), &e) == ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, kafka.url + strlen("kafka://")));
	assert_int_equal(clicks_in_checkpoint(), 20);
	stop(); /* which has an end */
	assert_int_equal(clicks_in_checkpoint(), 20);
	start(NULL);
	write_events(120, 10);
	kafka_mock_set_away(mock, false);
	catch_up();
	assert_int_equal(clicks_in_checkpoint(), 130);
	assert_int_equal(find(), 260);
	UNTIL(queue_consumer_trouble(forwarder_consumer(forwarder), &e) == 0);
}

/* What passes can be seen */

static struct seen {
	size_t begun, events, delivered, in_batch, with_texts;
} seen;

static void seen_begin(void *ctx)
{
	(void)ctx;
	seen.begun++;
	seen.in_batch = 0;
}

static void seen_event(void *ctx, const struct queue_event *ev)
{
	(void)ctx;
	seen.in_batch++;
	seen.with_texts += ev->has_texts && str_eq(ev->agent, STR("agent/1.0")) &&
	                   str_eq(ev->language, STR("en"));
}

static void seen_delivered(void *ctx)
{
	(void)ctx;
	seen.delivered++;
	seen.events += seen.in_batch;
}

TEST(who_watches_sees_what_was_delivered, setup_mock, teardown_mock)
{
	static const struct forwarder_watch watch = {seen_begin, seen_event, seen_delivered, NULL};
	seen = (struct seen){0};
	start(&watch);
	write_events(0, 40);
	catch_up();
	stop();
	assert_int_equal(seen.events, 80);
	assert_int_equal(seen.with_texts, 40);
	assert_true(seen.delivered > 0 && seen.begun >= seen.delivered);
}

TEST(wrong_settings_are_reported_at_the_start_without_passwords)
{
	static const struct {
		const char *url, *options, *says;
	} wrong[] = {
	    {"http://127.0.0.1:9092", "", "kafka://"},
	    {"kafka://", "", "kafka://"},
	    {"kafka://user:hush@host:9092", "", "queue.options"},
	    {"kafka://127.0.0.1:1", "sasl.pasword=hush", "sasl.pasword"},
	    {"kafka://127.0.0.1:1", "security.protocol=hush", "security.protocol"},
	    {"kafka://127.0.0.1:1", "hush", "NAME=VALUE"},
	};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct err e = {""};
		const struct queue_settings s = {.url = (char *)wrong[i].url,
		                                 .options = (char *)wrong[i].options,
		                                 .group = "g",
		                                 .prefix = "",
		                                 .partitions = 1};
		const struct forwarder_config config = {.settings = &s, .queue = queue};
		assert_int_equal(forwarder_start(&config, &forwarder, &e), ERR_INVALID);
		if (!strstr(e.text, wrong[i].says) || strstr(e.text, "hush"))
			fail_msg("it says: %s", e.text);
	}
}

TEST_MAIN()
