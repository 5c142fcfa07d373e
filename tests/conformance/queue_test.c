/* The promises of the role `queue`: on a log, and on a Kafka that a forwarder has filled from one; with a
 * reader that keeps positions, and with one that leaves that to the queue. */
#include "lib/event_kit.h"
#include "lib/kafka_kit.h"
#include "lib/queue_suite.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/sys.h"
#include "queue/forwarder.h"
#include "queue/queue_kafka.h"
#include "queue/queue_log.h"

enum { WRITERS = 3, PARTITIONS = 3, PATIENCE_MS = 30000 };

static struct temp dir;
static struct event_log *events;
static struct queue_keeper keeper;
static struct kafka_kit kafka;
static struct arena arena;
static struct queue *forwarded; /* the forwarder's log */
static struct forwarder *forwarder;
static char checkpoint[TEMP_PATH_BYTES];
static struct event_settings settings; /* nothing is removed */

/* Logs */

static struct queue *log_queue(bool by_checkpoint, bool boots_in_order)
{
	struct queue *q = NULL;
	struct err e = {""};
	struct checkpoint c = {.positions = keeper.positions, .count = keeper.count};
	if (by_checkpoint)
		assert_int_equal(checkpoint_read(checkpoint, &arena, &c, &e), 0);
	const struct queue_log_config config = {
	    .log = events,
	    .settings = &settings,
	    .read = c.positions,
	    .read_count = c.count,
	    .checkpoint = by_checkpoint ? checkpoint : NULL,
	    .counts = c.counts,
	    .boots_in_order = boots_in_order,
	};
	MUST(queue_log_new(&config, &q, &why));
	return q;
}

static struct queue *log_open(void)
{
	return log_queue(!queue_bed.keeps_positions, false);
}

static void log_need(void)
{
}

static void log_arrive(void)
{
}

static void log_reboot(void)
{
	event_log_close(events);
	events = kit_log_open(dir.path, &settings, WRITERS);
}

static int log_setup(bool keeps_positions)
{
	temp_init(&dir);
	settings = kit_settings;
	settings.keep_ms = 3600 * 1000;
	log_level_set(LOG_ERROR + 1);
	kit_syncs_skip();
	temp_path(&dir, "checkpoint", checkpoint);
	events = kit_log_open(dir.path, &settings, WRITERS);
	queue_bed = (struct queue_bed){
	    .folder = dir.path,
	    .log = &events,
	    .keeps_positions = keeps_positions,
	    .keeper = &keeper,
	    .need = log_need,
	    .arrive = log_arrive,
	    .open = log_open,
	    .reboot = log_reboot,
	};
	return 0;
}

static int log_setup_kept(void **state)
{
	return log_setup(true);
}

static int log_setup_checkpoint(void **state)
{
	return log_setup(false);
}

static int log_teardown(void **state)
{
	event_log_close(events);
	events = NULL;
	keeper_release(&keeper);
	arena_release(&arena);
	temp_release(&dir);
	os_sys = os_sys_real;
	return 0;
}

/* Kafka */

static int resume(void *ctx, uint64_t source, struct arena *to, struct position **ret, size_t *ret_count)
{
	(void)ctx;
	(void)to;
	assert_true(source != 0);
	*ret = keeper.positions;
	*ret_count = keeper.count;
	return 0;
}

static struct queue *kafka_open(void)
{
	struct queue *q = NULL;
	const struct queue_kafka_config config = {.settings = &kafka.settings,
	                                          .resume = queue_bed.keeps_positions ? resume : NULL};
	MUST(queue_kafka_new(&config, &q, &why));
	return q;
}

static void forwarder_up(void)
{
	forwarded = log_queue(true, true);
	const struct forwarder_config config = {.settings = &kafka.settings, .queue = forwarded};
	MUST(forwarder_start(&config, &forwarder, &why));
}

static void forwarder_down(void)
{
	forwarder_stop(forwarder);
	forwarder = NULL;
	if (forwarded)
		forwarded->ops->free(forwarded);
	forwarded = NULL;
}

static void kafka_need(void)
{
	kafka_kit_need(&kafka);
}

static void kafka_arrive(void)
{
	if (!forwarder)
		forwarder_up();
	assert_int_equal(queue_consumer_catch_up(forwarder_consumer(forwarder), PATIENCE_MS), 0);
}

static void kafka_reboot(void)
{
	forwarder_down();
	log_reboot();
}

static int kafka_setup(bool keeps_positions)
{
	kafka_kit_init(&kafka, PARTITIONS);
	log_setup(keeps_positions);
	queue_bed.has_one_order = true;
	queue_bed.need = kafka_need;
	queue_bed.arrive = kafka_arrive;
	queue_bed.open = kafka_open;
	queue_bed.reboot = kafka_reboot;
	return 0;
}

static int kafka_setup_kept(void **state)
{
	return kafka_setup(true);
}

static int kafka_setup_group(void **state)
{
	return kafka_setup(false);
}

static int kafka_teardown(void **state)
{
	forwarder_down();
	kafka_kit_release(&kafka);
	return log_teardown(state);
}

int main(void)
{
	int failed = queue_suite_run("log, positions kept by the reader", log_setup_kept, log_teardown);
	failed += queue_suite_run("log with a checkpoint", log_setup_checkpoint, log_teardown);
	failed += queue_suite_run("Kafka, positions kept by the reader", kafka_setup_kept, kafka_teardown);
	failed += queue_suite_run("Kafka, positions kept by the group", kafka_setup_group, kafka_teardown);
	return failed;
}
