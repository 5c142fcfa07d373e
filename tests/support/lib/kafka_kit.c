#include "lib/kafka_kit.h"
#include "lib/test.h"

#include <librdkafka/rdkafka.h>
/* which stands in front: */
#include <librdkafka/rdkafka_mock.h>

enum { PATIENCE_MS = 20000 };

static void init_at(struct kafka_kit *k, const char *address, unsigned partitions)
{
	static unsigned number;
	*k = (struct kafka_kit){.settings.partitions = partitions};
	snprintf(k->url, sizeof(k->url), "kafka://%s", address);
	snprintf(k->group, sizeof(k->group), "test-%d-%u", (int)getpid(), ++number);
	snprintf(k->prefix, sizeof(k->prefix), "%s-", k->group);
	for (unsigned i = 0; i < WIRE_TOPICS; i++)
		snprintf(k->topics[i], sizeof(k->topics[i]), "%s%s", k->prefix, wire_topic_names[i]);
	k->settings.url = k->url;
	k->settings.group = k->group;
	k->settings.prefix = k->prefix;
	k->settings.options = k->options;
}

void kafka_kit_init(struct kafka_kit *k, unsigned partitions)
{
	const char *address = getenv("CURT_TEST_KAFKA");
	if (address && address[0])
		init_at(k, address, partitions);
	else
		*k = (struct kafka_kit){.settings.url = NULL};
}

void kafka_kit_need(const struct kafka_kit *k)
{
	if (k->settings.url)
		return;
	print_message("CURT_TEST_KAFKA is not set: there is no Kafka to test with\n");
	skip();
}

struct kafka_mock {
	rd_kafka_t *owner;
	rd_kafka_mock_cluster_t *cluster;
};

struct kafka_mock *kafka_mock_start(struct kafka_kit *k, unsigned partitions)
{
	char why[256];
	struct kafka_mock *m = calloc(1, sizeof(*m));
	assert_non_null(m);
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_conf_set(conf, "bootstrap.servers", "127.0.0.1:1", why,
	                  sizeof(why)); /* it has none itself */
	rd_kafka_conf_set(conf, "log_level", "0", why, sizeof(why));
	m->owner = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof(why));
	assert_non_null(m->owner);
	m->cluster = rd_kafka_mock_cluster_new(m->owner, 1);
	assert_non_null(m->cluster);
	init_at(k, rd_kafka_mock_cluster_bootstraps(m->cluster), partitions);
	for (unsigned i = 0; i < WIRE_TOPICS; i++)
		assert_int_equal(rd_kafka_mock_topic_create(m->cluster, k->topics[i], (int)partitions, 1), 0);
	return m;
}

void kafka_mock_stop(struct kafka_mock *m)
{
	rd_kafka_mock_cluster_destroy(m->cluster);
	rd_kafka_destroy(m->owner);
	free(m);
}

void kafka_mock_set_away(struct kafka_mock *m, bool is_away)
{
	if (is_away)
		rd_kafka_mock_broker_set_down(m->cluster, 1);
	else
		rd_kafka_mock_broker_set_up(m->cluster, 1);
}

static rd_kafka_t *client_new(const struct kafka_kit *k, rd_kafka_type_t type)
{
	char why[256];
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_conf_set(conf, "bootstrap.servers", k->url + strlen("kafka://"), why, sizeof(why));
	if (type == RD_KAFKA_CONSUMER) {
		rd_kafka_conf_set(conf, "group.id", "test-other-team", why, sizeof(why));
		rd_kafka_conf_set(conf, "enable.partition.eof", "true", why, sizeof(why));
		rd_kafka_conf_set(conf, "fetch.wait.max.ms", "10", why, sizeof(why));
	}
	rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof(why));
	assert_non_null(rk);
	return rk;
}

/* Waits for the answer to one admin call, whose topics must all be well. */
static void admin_end(rd_kafka_t *rk, rd_kafka_queue_t *answers, bool must)
{
	rd_kafka_event_t *ev = rd_kafka_queue_poll(answers, PATIENCE_MS);
	assert_non_null(ev);
	if (must && rd_kafka_event_error(ev))
		fail_msg("%s", rd_kafka_event_error_string(ev));
	rd_kafka_event_destroy(ev);
	rd_kafka_queue_destroy(answers);
	rd_kafka_destroy(rk);
}

static void topics_delete(struct kafka_kit *k, bool must)
{
	if (k->producer)
		rd_kafka_destroy(k->producer);
	k->producer = NULL;
	rd_kafka_t *rk = client_new(k, RD_KAFKA_PRODUCER);
	rd_kafka_DeleteTopic_t *topics[WIRE_TOPICS];
	for (unsigned i = 0; i < WIRE_TOPICS; i++)
		topics[i] = rd_kafka_DeleteTopic_new(k->topics[i]);
	rd_kafka_queue_t *answers = rd_kafka_queue_new(rk);
	rd_kafka_DeleteTopics(rk, topics, WIRE_TOPICS, NULL, answers);
	rd_kafka_DeleteTopic_destroy_array(topics, WIRE_TOPICS);
	admin_end(rk, answers, must);
}

void kafka_kit_release(struct kafka_kit *k)
{
	if (!k->settings.url)
		return;
	topics_delete(k, false);
	k->settings.url = NULL;
}

void kafka_kit_remake(struct kafka_kit *k)
{
	topics_delete(k, true);
	kafka_kit_make(k, NULL, NULL);
}

static rd_kafka_topic_partition_list_t *all_partitions(const struct kafka_kit *k, int64_t offset)
{
	unsigned count = WIRE_TOPICS * (unsigned)k->settings.partitions;
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
	for (unsigned i = 0; i < count; i++)
		rd_kafka_topic_partition_list_add(list, k->topics[i % WIRE_TOPICS],
		                                  (int32_t)(i / WIRE_TOPICS))
		    ->offset = offset;
	return list;
}

void kafka_kit_trim(const struct kafka_kit *k)
{
	rd_kafka_t *rk = client_new(k, RD_KAFKA_PRODUCER);
	rd_kafka_topic_partition_list_t *list = all_partitions(k, RD_KAFKA_OFFSET_END);
	rd_kafka_DeleteRecords_t *wanted = rd_kafka_DeleteRecords_new(list);
	rd_kafka_topic_partition_list_destroy(list);
	rd_kafka_queue_t *answers = rd_kafka_queue_new(rk);
	rd_kafka_DeleteRecords(rk, &wanted, 1, NULL, answers);
	rd_kafka_DeleteRecords_destroy(wanted);
	admin_end(rk, answers, true);
}

void kafka_kit_make(struct kafka_kit *k, const char *property, const char *value)
{
	char why[256];
	rd_kafka_t *rk = client_new(k, RD_KAFKA_PRODUCER);
	rd_kafka_NewTopic_t *topics[WIRE_TOPICS];
	for (unsigned i = 0; i < WIRE_TOPICS; i++) {
		topics[i] = rd_kafka_NewTopic_new(k->topics[i], (int)k->settings.partitions, 1, why,
		                                  sizeof(why));
		assert_non_null(topics[i]);
		if (property)
			rd_kafka_NewTopic_set_config(topics[i], property, value);
	}
	rd_kafka_queue_t *answers = rd_kafka_queue_new(rk);
	rd_kafka_CreateTopics(rk, topics, WIRE_TOPICS, NULL, answers);
	rd_kafka_NewTopic_destroy_array(topics, WIRE_TOPICS);
	admin_end(rk, answers, true);
}

void kafka_kit_alter(struct kafka_kit *k, const char *property, const char *value)
{
	rd_kafka_t *rk = client_new(k, RD_KAFKA_PRODUCER);
	rd_kafka_ConfigResource_t *topics[WIRE_TOPICS];
	for (unsigned i = 0; i < WIRE_TOPICS; i++) {
		topics[i] = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, k->topics[i]);
		rd_kafka_ConfigResource_set_config(topics[i], property, value);
	}
	rd_kafka_queue_t *answers = rd_kafka_queue_new(rk);
	rd_kafka_AlterConfigs(rk, topics, WIRE_TOPICS, NULL, answers);
	rd_kafka_ConfigResource_destroy_array(topics, WIRE_TOPICS);
	admin_end(rk, answers, true);
}

void kafka_kit_produce(struct kafka_kit *k, enum wire_topic topic, const char *key, struct str value)
{
	if (!k->producer)
		k->producer = client_new(k, RD_KAFKA_PRODUCER);
	rd_kafka_resp_err_t r = rd_kafka_producev(k->producer, RD_KAFKA_V_TOPIC(k->topics[topic]),
	                                          RD_KAFKA_V_KEY(key, strlen(key)),
	                                          RD_KAFKA_V_VALUE((void *)value.ptr, value.len),
	                                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
	assert_int_equal(r, RD_KAFKA_RESP_ERR_NO_ERROR);
	assert_int_equal(rd_kafka_flush(k->producer, PATIENCE_MS), RD_KAFKA_RESP_ERR_NO_ERROR);
}

size_t kafka_kit_each(const struct kafka_kit *k,
                      void (*seen)(void *ctx, enum wire_topic topic, int32_t partition, struct str key,
                                   struct str value),
                      void *ctx)
{
	rd_kafka_t *rk = client_new(k, RD_KAFKA_CONSUMER);
	unsigned open = WIRE_TOPICS * (unsigned)k->settings.partitions;
	size_t count = 0;
	rd_kafka_topic_partition_list_t *list = all_partitions(k, RD_KAFKA_OFFSET_BEGINNING);
	rd_kafka_poll_set_consumer(rk);
	assert_int_equal(rd_kafka_assign(rk, list), RD_KAFKA_RESP_ERR_NO_ERROR);
	rd_kafka_topic_partition_list_destroy(list);
	while (open > 0) {
		rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, PATIENCE_MS);
		assert_non_null(m);
		if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
			open--;
		} else if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
			fail_msg("%s", rd_kafka_message_errstr(m));
		} else {
			bool visits = strcmp(rd_kafka_topic_name(m->rkt), k->topics[WIRE_VISITS]) == 0;
			count++;
			seen(ctx, visits ? WIRE_VISITS : WIRE_IMPRESSIONS, m->partition,
			     str_n(m->key, m->key_len), str_n(m->payload, m->len));
		}
		rd_kafka_message_destroy(m);
	}
	rd_kafka_consumer_close(rk);
	rd_kafka_destroy(rk);
	return count;
}
