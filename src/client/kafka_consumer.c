#include "client/kafka_private.h"

#include "obs/log.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	/* since this version a consumer without an assignment can be freed */
	EMPTY_ASSIGN_FIXED = 0x020300ff,
	LEAVE_MS = 2000,
	LOOK_MS = 500,
	SEEK_MS = 1000,
};

struct kafka_consumer {
	struct kafka_config config;
	struct kafka_listener listener;
	rd_kafka_t *rk;
	rd_kafka_queue_t *queue;
	rd_kafka_topic_partition_list_t *assigned; /* assigned but not started; NULL: none */
	bool is_leaving;
	bool was_assigned; /* the group has accepted us */
	char *cluster;     /* NULL: unknown yet */
	struct kafka_said said;
	bool is_refused; /* access was denied */
	size_t count;
	rd_kafka_message_t *vendor[KAFKA_READ_MAX];
	struct kafka_message messages[KAFKA_READ_MAX];
};

static const struct kafka_property fixed[] = {
    {"enable.auto.commit", "false"},
    {"enable.auto.offset.store", "false"},
    {"auto.offset.reset", "earliest"},
    {"partition.assignment.strategy", "cooperative-sticky"},
    {NULL, NULL},
};
static const struct kafka_property defaults[] = {
    {"topic.metadata.refresh.interval.ms", "2000"}, /* detects new topics */
    {"session.timeout.ms", "10000"},                /* then others take over from a dead consumer */
    {"max.poll.interval.ms", "1800000"}, /* bounds a slow commit to the sink: clickhouse_intake.c */
    {"queued.max.messages.kbytes", "32768"},
    {"fetch.wait.max.ms", "100"}, /* a late partition waits for running fetches */
    {NULL, NULL},
};

/* The group */

/* With room for at least one. NULL: out of memory. */
static struct kafka_place *places_of(const struct kafka_consumer *c,
                                     const rd_kafka_topic_partition_list_t *list)
{
	struct kafka_place *places = calloc((size_t)list->cnt + 1, sizeof(*places));
	for (int i = 0; places && i < list->cnt; i++)
		places[i] = (struct kafka_place){kafka_topic_index(&c->config, list->elems[i].topic),
		                                 list->elems[i].partition, KAFKA_OFFSET_NONE};
	return places;
}

static rd_kafka_topic_partition_list_t *list_of(const struct kafka_consumer *c,
                                                const struct kafka_place *places, size_t count)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
	for (size_t i = 0; i < count; i++) {
		rd_kafka_topic_partition_t *to = rd_kafka_topic_partition_list_add(
		    list, c->config.topics[places[i].topic], places[i].partition);
		to->offset = places[i].offset;
	}
	return list;
}

static void group_answer(rd_kafka_error_t *error, const char *what)
{
	if (!error)
		return;
	log_debug("client", "kafka: partitions could not be %s: %s", what, rd_kafka_error_string(error));
	rd_kafka_error_destroy(error);
}

/* The group waits until an assignment was started, even before it can be revoked, or the group left. */
static void given_start(struct kafka_consumer *c)
{
	if (!c->assigned)
		return;
	group_answer(rd_kafka_incremental_assign(c->rk, c->assigned), "started");
	rd_kafka_topic_partition_list_destroy(c->assigned);
	c->assigned = NULL;
}

static void group_gave(struct kafka_consumer *c, const rd_kafka_topic_partition_list_t *list)
{
	struct kafka_place *places = c->is_leaving ? NULL : places_of(c, list);
	given_start(c);
	c->is_refused = false;
	c->was_assigned = true;
	c->assigned = rd_kafka_topic_partition_list_copy(list);
	if (places)
		c->listener.assigned(c->listener.ctx, places, (size_t)list->cnt);
	if (!places || list->cnt == 0)
		given_start(c);
	free(places);
}

static void group_took(struct kafka_consumer *c, const rd_kafka_topic_partition_list_t *list)
{
	struct kafka_place *places = c->is_leaving ? NULL : places_of(c, list);
	given_start(c);
	if (places)
		c->listener.taken(c->listener.ctx, places, (size_t)list->cnt);
	free(places);
	group_answer(rd_kafka_incremental_unassign(c->rk, list), "given back");
}

static void rebalanced(rd_kafka_t *rk, rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *list,
                       void *opaque)
{
	(void)rk;
	if (err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS)
		group_gave(opaque, list);
	else
		group_took(opaque, list);
}

static bool is_refusal(rd_kafka_resp_err_t err)
{
	return err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED ||
	       err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
	       err == RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL;
}

static void say(struct kafka_consumer *c, rd_kafka_resp_err_t err, const char *what)
{
	if (c->is_refused && !is_refusal(err))
		return;
	c->is_refused = is_refusal(err);
	snprintf(c->said.text, sizeof(c->said.text), "%s", what);
}

/* One of several brokers down is not worth a message. */
static void complained(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
	(void)rk;
	if (err != RD_KAFKA_RESP_ERR__TRANSPORT && err != RD_KAFKA_RESP_ERR__RESOLVE)
		say(opaque, err, reason);
}

static void callbacks_set(rd_kafka_conf_t *conf)
{
	rd_kafka_conf_set_rebalance_cb(conf, rebalanced);
	rd_kafka_conf_set_error_cb(conf, complained);
}

/* Coming and going */

int kafka_consumer_new(const struct kafka_config *config, const char *group,
                       const struct kafka_listener *listener, struct kafka_consumer **ret, struct err *e)
{
	const struct kafka_property with_group[] = {
	    fixed[0], fixed[1], fixed[2], fixed[3], {"group.id", group}, {NULL, NULL}};
	struct kafka_consumer *c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ERR_NOMEM, "out of memory");
	c->config = *config;
	c->listener = *listener;
	int r = kafka_client_new(RD_KAFKA_CONSUMER, config, defaults, with_group, callbacks_set, c, &c->rk,
	                         e);
	if (r < 0) {
		free(c);
		return r;
	}
	rd_kafka_poll_set_consumer(c->rk);
	c->queue = rd_kafka_queue_get_consumer(c->rk);
	say(c, RD_KAFKA_RESP_ERR_NO_ERROR, "it was not reached yet");
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)config->topic_count);
	for (unsigned i = 0; i < config->topic_count; i++)
		rd_kafka_topic_partition_list_add(list, config->topics[i], RD_KAFKA_PARTITION_UA);
	rd_kafka_resp_err_t error = rd_kafka_subscribe(c->rk, list);
	rd_kafka_topic_partition_list_destroy(list);
	if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
		kafka_consumer_free(c);
		return err_set(e, ERR_INVALID, "the topics cannot be subscribed to: %s",
		               rd_kafka_err2str(error));
	}
	*ret = c;
	return 0;
}

static void messages_release(struct kafka_consumer *c)
{
	for (size_t i = 0; i < c->count; i++)
		rd_kafka_message_destroy(c->vendor[i]);
	c->count = 0;
}

static void leave(struct kafka_consumer *c)
{
	int64_t until_ms = clock_mono_ms() + LEAVE_MS;
	rd_kafka_error_t *error = rd_kafka_consumer_close_queue(c->rk, c->queue);
	if (error) {
		rd_kafka_error_destroy(error);
		return;
	}
	while (!rd_kafka_consumer_closed(c->rk) && clock_mono_ms() < until_ms) {
		const struct kafka_message *ignored;
		kafka_consumer_read(c, 10, &ignored);
	}
}

/* Threads still use the libraries: skip their destructors. */
static void end_at_once(int status, void *ctx)
{
	(void)ctx;
	fflush(NULL);
	_exit(status);
}

void kafka_consumer_free(struct kafka_consumer *c)
{
	if (!c)
		return;
	c->is_leaving = true;
	given_start(c);
	messages_release(c);
	leave(c);
	messages_release(c);
	/* librdkafka waits for ever for a member that could not leave (before 2.4.0 also after a late
	 * assignment). Before 2.3.0 it aborts the process if there was no assignment yet. */
	if (rd_kafka_consumer_closed(c->rk) &&
	    (c->was_assigned || rd_kafka_version() >= EMPTY_ASSIGN_FIXED)) {
		rd_kafka_queue_destroy(c->queue);
		rd_kafka_destroy_flags(c->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	} else { /* its threads run until the process ends; callbacks only come with reads */
		log_debug("client", "kafka: the group could not be left in order; it will miss us");
		on_exit(end_at_once, NULL);
	}
	if (c->assigned)
		rd_kafka_topic_partition_list_destroy(c->assigned);
	free(c->cluster);
	free(c);
}

struct str kafka_consumer_cluster(struct kafka_consumer *c, uint64_t timeout_ms)
{
	if (!c->cluster) {
		char *name = rd_kafka_clusterid(c->rk, (int)timeout_ms);
		c->cluster = name ? strdup(name) : NULL;
		if (name)
			rd_kafka_mem_free(c->rk, name);
	}
	return str_of(c->cluster);
}

/* Reading */

size_t kafka_consumer_read(struct kafka_consumer *c, uint64_t timeout_ms, const struct kafka_message **ret)
{
	messages_release(c);
	ssize_t n = rd_kafka_consume_batch_queue(c->queue, (int)timeout_ms, c->vendor, KAFKA_READ_MAX);
	for (ssize_t i = 0; i < n; i++) {
		rd_kafka_message_t *m = c->vendor[i];
		if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
			say(c, m->err, rd_kafka_message_errstr(m));
			rd_kafka_message_destroy(m);
			continue;
		}
		rd_kafka_timestamp_type_t stamped;
		int64_t time_ms = rd_kafka_message_timestamp(m, &stamped);
		c->vendor[c->count] = m;
		c->messages[c->count++] = (struct kafka_message){
		    .topic = kafka_topic_index(&c->config, rd_kafka_topic_name(m->rkt)),
		    .partition = m->partition,
		    .offset = m->offset,
		    .time_ms = stamped == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? 0 : time_ms,
		    .value = str_n(m->payload, m->len),
		};
	}
	*ret = c->messages;
	return c->count;
}

/* Only if all partitions of the list are known. */
static bool is_answered(rd_kafka_resp_err_t r, const rd_kafka_topic_partition_list_t *list)
{
	for (int i = 0; r == RD_KAFKA_RESP_ERR_NO_ERROR && i < list->cnt; i++)
		r = list->elems[i].err;
	return r == RD_KAFKA_RESP_ERR_NO_ERROR;
}

int kafka_consumer_find(struct kafka_consumer *c, const struct kafka_place *places, size_t count,
                        struct kafka_bounds *ret, uint64_t timeout_ms)
{
	if (count == 0)
		return 0;
	rd_kafka_topic_partition_list_t *list = list_of(c, places, count);
	bool found = is_answered(rd_kafka_committed(c->rk, list, (int)timeout_ms), list);
	for (size_t i = 0; i < count; i++) {
		int64_t offset = list->elems[i].offset;
		ret[i].group = offset >= 0 ? offset : KAFKA_OFFSET_NONE;
		list->elems[i].offset = RD_KAFKA_OFFSET_BEGINNING;
	}
	found = found && is_answered(rd_kafka_offsets_for_times(c->rk, list, (int)timeout_ms), list);
	for (size_t i = 0; i < count; i++) {
		ret[i].first = list->elems[i].offset;
		found &= ret[i].first >= 0;
	}
	rd_kafka_topic_partition_list_destroy(list);
	return found ? 0 : ERR_UNAVAILABLE;
}

bool kafka_consumer_start(struct kafka_consumer *c, const struct kafka_place *places, size_t count)
{
	if (!c->assigned)
		return false;
	rd_kafka_topic_partition_list_destroy(c->assigned);
	c->assigned = list_of(c, places, count);
	given_start(c);
	return true;
}

int kafka_consumer_seek(struct kafka_consumer *c, const struct kafka_place *place)
{
	rd_kafka_topic_partition_list_t *list = list_of(c, place, 1);
	rd_kafka_error_t *error = rd_kafka_seek_partitions(c->rk, list, SEEK_MS);
	rd_kafka_resp_err_t r = error ? rd_kafka_error_code(error) : list->elems[0].err;
	if (error)
		rd_kafka_error_destroy(error);
	rd_kafka_topic_partition_list_destroy(list);
	return r == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : ERR_UNAVAILABLE;
}

void kafka_consumer_commit(struct kafka_consumer *c, const struct kafka_place *places, size_t count)
{
	rd_kafka_topic_partition_list_t *list = list_of(c, places, count);
	rd_kafka_commit(c->rk, list, 1);
	rd_kafka_topic_partition_list_destroy(list);
}

int64_t kafka_consumer_end(struct kafka_consumer *c, unsigned topic, int32_t partition)
{
	int64_t low, high;
	rd_kafka_resp_err_t r = rd_kafka_get_watermark_offsets(c->rk, c->config.topics[topic], partition,
	                                                       &low, &high);
	return r == RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0 ? high : KAFKA_OFFSET_NONE;
}

int64_t kafka_consumer_first(struct kafka_consumer *c, unsigned topic, int32_t partition)
{
	int64_t low, high;
	rd_kafka_resp_err_t r = rd_kafka_get_watermark_offsets(c->rk, c->config.topics[topic], partition,
	                                                       &low, &high);
	return r == RD_KAFKA_RESP_ERR_NO_ERROR && low >= 0 ? low : KAFKA_OFFSET_NONE;
}

int kafka_consumer_trouble(struct kafka_consumer *c, struct err *e)
{
	struct err why;
	if (!c->said.text[0])
		return 0;
	if (c->is_refused)
		return err_set(e, ERR_UNAVAILABLE, "Kafka at %s: %s", c->config.brokers, c->said.text);
	if (kafka_topics_make(c->rk, &c->config, LOOK_MS, &why) < 0)
		return err_set(e, ERR_UNAVAILABLE, "%s (%s)", why.text, c->said.text);
	c->said.text[0] = '\0';
	return 0;
}
