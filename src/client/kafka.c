#include "client/kafka_private.h"

#include "obs/log.h"
#include "os/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME_BYTES_MAX = 128, VALUE_BYTES_MAX = 4096, WHY_BYTES = 256 };

int kafka_url_brokers(const char *url, const char **ret, struct err *e)
{
	struct str rest = str_of(url), scheme = STR("kafka://");
	if (!str_starts(rest, scheme) || rest.len == scheme.len || strpbrk(url + scheme.len, "/@ "))
		return err_set(
		    e, ERR_INVALID,
		    "queue.url must be kafka://HOST:PORT, several brokers separated by commas; users "
		    "and passwords belong into queue.options");
	*ret = url + scheme.len;
	return 0;
}

/* Settings */

/* Its values may be passwords: a sentence names the property only. */
static int property_set(rd_kafka_conf_t *conf, const char *name, const char *value, struct err *e)
{
	char why[WHY_BYTES];
	switch (rd_kafka_conf_set(conf, name, value, why, sizeof(why))) {
	case RD_KAFKA_CONF_OK: return 0;
	case RD_KAFKA_CONF_UNKNOWN:
		return err_set(e, ERR_INVALID, "queue.options: librdkafka knows no property %s", name);
	default:
		return err_set(e, ERR_INVALID, "queue.options: librdkafka does not take this value of %s",
		               name);
	}
}

static int properties_set(rd_kafka_conf_t *conf, const struct kafka_property *p, struct err *e)
{
	int r = 0;
	for (; r == 0 && p && p->name; p++)
		r = property_set(conf, p->name, p->value, e);
	return r;
}

/* Takes the value up to a single comma, or the end. False: it is too long. */
static bool value_take(const char **at, char out[VALUE_BYTES_MAX])
{
	size_t n = 0;
	while (**at && !((*at)[0] == ',' && (*at)[1] != ',')) {
		*at += **at == ',';
		if (n + 1 == VALUE_BYTES_MAX)
			return false;
		out[n++] = *(*at)++;
	}
	*at += **at == ',';
	out[n] = '\0';
	return true;
}

static int options_set(rd_kafka_conf_t *conf, const char *options, struct err *e)
{
	char name[NAME_BYTES_MAX], value[VALUE_BYTES_MAX];
	int r = 0;
	for (const char *at = options; r == 0 && *at;) {
		size_t n = strcspn(at, "=,");
		if (at[n] != '=' || n == 0 || n >= sizeof(name))
			return err_set(e, ERR_INVALID,
			               "queue.options must be NAME=VALUE, several separated by commas");
		snprintf(name, sizeof(name), "%.*s", (int)n, at);
		at += n + 1;
		r = value_take(&at, value)
		        ? property_set(conf, name, value, e)
		        : err_set(e, ERR_INVALID, "queue.options: the value of %s is too long", name);
	}
	return r;
}

int kafka_options_check(const char *options, struct err *e)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	int r = options_set(conf, options, e);
	rd_kafka_conf_destroy(conf);
	return r;
}

/* librdkafka's log lines are details; what matters is also an error. */
static void log_from_client(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
	(void)rk;
	(void)level;
	log_debug("client", "kafka: %s: %s", facility, text);
}

int kafka_client_new(rd_kafka_type_t type, const struct kafka_config *config,
                     const struct kafka_property *defaults, const struct kafka_property *fixed,
                     void (*conf_more)(rd_kafka_conf_t *conf), void *opaque, rd_kafka_t **ret, struct err *e)
{
	static const struct kafka_property ours[] = {
	    {"client.id", "curt"},
	    {"reconnect.backoff.max.ms", "1000"},
	    {"topic.metadata.refresh.interval.ms", "10000"}, /* partitions that were added are soon found */
	    {NULL, NULL},
	};
	char why[WHY_BYTES];
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	int r = properties_set(conf, ours, e)
	        ?: properties_set(conf, defaults, e)
	        ?: options_set(conf, config->options, e)
	        ?: properties_set(conf, fixed, e)
	        ?: property_set(conf, "bootstrap.servers", config->brokers, e);
	if (r == 0) {
		rd_kafka_conf_set_log_cb(conf, log_from_client);
		rd_kafka_conf_set_opaque(conf, opaque);
		conf_more(conf);
		*ret = rd_kafka_new(type, conf, why, sizeof(why));
		if (*ret)
			return 0;
		r = err_set(e, ERR_INVALID, "librdkafka cannot be set up for %s: %s", config->brokers, why);
	}
	rd_kafka_conf_destroy(conf);
	return r;
}

/* Topics */

unsigned kafka_topic_index(const struct kafka_config *config, const char *name)
{
	unsigned i = 0;
	while (i + 1 < config->topic_count && strcmp(config->topics[i], name) != 0)
		i++;
	return i;
}

static bool topic_is_listed(const struct rd_kafka_metadata *found, const char *name)
{
	for (int i = 0; i < found->topic_cnt; i++) {
		const struct rd_kafka_metadata_topic *t = &found->topics[i];
		if (strcmp(t->topic, name) == 0)
			return t->err == RD_KAFKA_RESP_ERR_NO_ERROR && t->partition_cnt > 0;
	}
	return false;
}

/* Those that are missing, as bits. All topics are asked for: a broker may make one that is asked for by name,
 * with as many partitions as it likes. */
static int topics_missing(rd_kafka_t *rk, const struct kafka_config *config, uint64_t timeout_ms,
                          unsigned *ret, struct err *e)
{
	const struct rd_kafka_metadata *found;
	rd_kafka_resp_err_t r = rd_kafka_metadata(rk, 1, NULL, &found, (int)timeout_ms);
	if (r != RD_KAFKA_RESP_ERR_NO_ERROR)
		return err_set(e, ERR_UNAVAILABLE, "Kafka at %s does not say which topics it has: %s",
		               config->brokers, rd_kafka_err2str(r));
	*ret = 0;
	for (unsigned i = 0; i < config->topic_count; i++)
		*ret |= topic_is_listed(found, config->topics[i]) ? 0 : 1U << i;
	rd_kafka_metadata_destroy(found);
	return 0;
}

static int topics_result(const struct kafka_config *config, rd_kafka_event_t *ev, struct err *e)
{
	const rd_kafka_CreateTopics_result_t *all = ev ? rd_kafka_event_CreateTopics_result(ev) : NULL;
	size_t count = 0;
	int r = 0;
	if (!all || rd_kafka_event_error(ev))
		return err_set(e, ERR_UNAVAILABLE, "Kafka at %s does not make topics: %s", config->brokers,
		               ev ? rd_kafka_event_error_string(ev) : "it does not answer");
	const rd_kafka_topic_result_t **topics = rd_kafka_CreateTopics_result_topics(all, &count);
	for (size_t i = 0; r == 0 && i < count; i++) {
		rd_kafka_resp_err_t error = rd_kafka_topic_result_error(topics[i]);
		const char *why = rd_kafka_topic_result_error_string(topics[i]);
		if (error != RD_KAFKA_RESP_ERR_NO_ERROR && error != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
			r = err_set(e, ERR_UNAVAILABLE,
			            "Kafka at %s has no topic %s and does not let us make it (%s): create it "
			            "with some %u partitions",
			            config->brokers, rd_kafka_topic_result_name(topics[i]),
			            why ? why : rd_kafka_err2str(error), config->partitions);
	}
	return r;
}

static int topics_create(rd_kafka_t *rk, const struct kafka_config *config, unsigned missing,
                         uint64_t timeout_ms, struct err *e)
{
	rd_kafka_NewTopic_t *wanted[KAFKA_TOPICS_MAX];
	size_t count = 0;
	char why[WHY_BYTES];
	for (unsigned i = 0; i < config->topic_count; i++) {
		if (!(missing & 1U << i))
			continue;
		wanted[count] = rd_kafka_NewTopic_new(config->topics[i], (int)config->partitions, -1, why,
		                                      sizeof(why));
		if (!wanted[count])
			break;
		count++;
	}
	rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
	rd_kafka_AdminOptions_set_request_timeout(options, (int)timeout_ms, why, sizeof(why));
	rd_kafka_queue_t *answers = rd_kafka_queue_new(rk);
	rd_kafka_CreateTopics(rk, wanted, count, options, answers);
	rd_kafka_event_t *ev = rd_kafka_queue_poll(answers, (int)timeout_ms);
	int r = topics_result(config, ev, e);
	if (ev)
		rd_kafka_event_destroy(ev);
	rd_kafka_queue_destroy(answers);
	rd_kafka_AdminOptions_destroy(options);
	rd_kafka_NewTopic_destroy_array(wanted, count);
	return r;
}

int kafka_topics_make(rd_kafka_t *rk, const struct kafka_config *config, uint64_t timeout_ms, struct err *e)
{
	unsigned missing = 0;
	int64_t until_ms = clock_mono_ms() + (int64_t)timeout_ms;
	int r = topics_missing(rk, config, timeout_ms, &missing, e);
	if (r < 0 || missing == 0)
		return r;
	int64_t left_ms = MAX(until_ms - clock_mono_ms(), (int64_t)1);
	return topics_create(rk, config, missing, (uint64_t)left_ms, e);
}
