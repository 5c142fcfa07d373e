#include "client/kafka_private.h"

#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	CHUNK = 1024, /* messages per call */
	POLL_MS = 100,
};

struct kafka_producer {
	struct kafka_config config;
	rd_kafka_t *rk;
	rd_kafka_topic_t *topics[KAFKA_TOPICS_MAX]; /* once they exist */
	bool has_topics;
	size_t waiting; /* unacknowledged messages */
	bool failed;    /* a message failed: later ones must not overtake it */
	struct kafka_said said;
};

/* Order without gaps matters: readers detect duplicates by a writer's position. So no message is ever
 * dropped. If a broker refuses one, the producer fails (gapless) instead of letting later ones pass. */
static const struct kafka_property fixed[] = {
    {"enable.idempotence", "true"},
    {"enable.gapless.guarantee", "true"},
    {"acks", "all"},
    {"message.timeout.ms", "0"},
    {"partitioner", "murmur2_random"}, /* as Java producers do */
    {"message.max.bytes", "1000000"},  /* larger than any message */
    {NULL, NULL},
};
static const struct kafka_property defaults[] = {
    {"compression.type", "lz4"},
    {"linger.ms", "5"},
    {"batch.num.messages", "100000"},
    {"queue.buffering.max.messages", "500000"},
    {NULL, NULL},
};

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	struct kafka_producer *p = opaque;
	struct kafka_outgoing *sent = message->_private;
	(void)rk;
	p->waiting--;
	if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
		sent->state = MESSAGE_DELIVERED;
		return;
	}
	if (!p->failed)
		snprintf(p->said.text, sizeof(p->said.text), "%s", rd_kafka_message_errstr(message));
	p->failed = true;
}

static void complained(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
	struct kafka_producer *p = opaque;
	if (err == RD_KAFKA_RESP_ERR__FATAL) {
		char why[sizeof(p->said.text)];
		rd_kafka_fatal_error(rk, why, sizeof(why));
		snprintf(p->said.text, sizeof(p->said.text), "%s", why);
		p->failed = true;
	} else if (!p->failed) {
		snprintf(p->said.text, sizeof(p->said.text), "%s", reason);
	}
}

static void callbacks_set(rd_kafka_conf_t *conf)
{
	rd_kafka_conf_set_dr_msg_cb(conf, delivered);
	rd_kafka_conf_set_error_cb(conf, complained);
}

int kafka_producer_new(const struct kafka_config *config, struct kafka_producer **ret, struct err *e)
{
	struct kafka_producer *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	p->config = *config;
	int r = kafka_client_new(RD_KAFKA_PRODUCER, config, defaults, fixed, callbacks_set, p, &p->rk, e);
	if (r < 0) {
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void kafka_producer_free(struct kafka_producer *p)
{
	if (!p)
		return;
	for (unsigned i = 0; p->has_topics && i < p->config.topic_count; i++)
		rd_kafka_topic_destroy(p->topics[i]);
	rd_kafka_destroy(p->rk);
	free(p);
}

int kafka_producer_ping(struct kafka_producer *p, uint64_t timeout_ms, struct err *e)
{
	const struct rd_kafka_metadata *found;
	rd_kafka_resp_err_t r = rd_kafka_metadata(p->rk, 0, NULL, &found, (int)timeout_ms);
	if (r != RD_KAFKA_RESP_ERR_NO_ERROR)
		return err_set(e, ERR_UNAVAILABLE, "Kafka at %s does not answer: %s", p->config.brokers,
		               rd_kafka_err2str(r));
	rd_kafka_metadata_destroy(found);
	return 0;
}

/* Only once they exist: a broker may create a topic that it is asked about. */
static int topics_open(struct kafka_producer *p, uint64_t timeout_ms, struct err *e)
{
	if (p->has_topics)
		return 0;
	int r = kafka_topics_make(p->rk, &p->config, timeout_ms, e);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < p->config.topic_count; i++) {
		p->topics[i] = rd_kafka_topic_new(p->rk, p->config.topics[i], NULL);
		ASSERT(p->topics[i]);
	}
	p->has_topics = true;
	return 0;
}

/* librdkafka refuses a message. Later ones that it accepted must not be sent. */
static void refused(struct kafka_producer *p, rd_kafka_resp_err_t err)
{
	if (!p->failed) {
		snprintf(p->said.text, sizeof(p->said.text), "%s", rd_kafka_err2str(err));
		rd_kafka_purge(p->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
	}
	p->failed = true;
}

/* Enqueues the new messages of one topic, in order. False: librdkafka's queue is full. */
static bool messages_enqueue(struct kafka_producer *p, unsigned topic, struct kafka_outgoing *messages,
                             size_t count)
{
	rd_kafka_message_t chunk[CHUNK];
	for (size_t i = 0; i < count;) {
		int n = 0;
		for (; i < count && n < CHUNK; i++) {
			struct kafka_outgoing *l = &messages[i];
			if (l->topic != topic || l->state != MESSAGE_NEW)
				continue;
			chunk[n++] = (rd_kafka_message_t){
			    .payload = (void *)l->value.ptr,
			    .len = l->value.len,
			    .key = (void *)l->key.ptr,
			    .key_len = l->key.len,
			    ._private = l,
			};
		}
		int taken = n > 0
		                ? rd_kafka_produce_batch(p->topics[topic], RD_KAFKA_PARTITION_UA, 0, chunk, n)
		                : 0;
		for (int k = 0; k < n; k++) {
			if (chunk[k].err == RD_KAFKA_RESP_ERR_NO_ERROR)
				((struct kafka_outgoing *)chunk[k]._private)->state = MESSAGE_SENT;
			else if (chunk[k].err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
				refused(p, chunk[k].err);
		}
		p->waiting += (size_t)taken;
		if (taken < n)
			return false;
	}
	return true;
}

static bool all_enqueue(struct kafka_producer *p, struct kafka_outgoing *messages, size_t count)
{
	bool all = true;
	for (unsigned i = 0; i < p->config.topic_count; i++)
		all &= messages_enqueue(p, i, messages, count);
	return all;
}

int kafka_producer_send(struct kafka_producer *p, struct kafka_outgoing *messages, size_t count,
                        uint64_t timeout_ms, struct err *e)
{
	int64_t until_ms = clock_mono_ms() + (int64_t)timeout_ms;
	int r = topics_open(p, timeout_ms, e);
	if (r < 0) {
		rd_kafka_poll(p->rk, 0);
		return p->failed ? ERR_UNCERTAIN : r;
	}
	bool all = all_enqueue(p, messages, count);
	while (!p->failed && (p->waiting > 0 || !all) && clock_mono_ms() < until_ms) {
		rd_kafka_poll(p->rk, (int)MIN(until_ms - clock_mono_ms(), (int64_t)POLL_MS));
		if (!all)
			all = all_enqueue(p, messages, count);
	}
	if (!p->failed && p->waiting == 0 && all) {
		p->said.text[0] = '\0';
		return 0;
	}
	return err_set(e, p->failed ? ERR_UNCERTAIN : ERR_UNAVAILABLE, "Kafka at %s does not take events: %s",
	               p->config.brokers, p->said.text[0] ? p->said.text : "it does not answer in time");
}
