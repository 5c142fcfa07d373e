#include "queue/topics.h"

#include <stdio.h>

enum { TOPIC_BYTES_MAX = 249 }; /* Kafka's bound */

int topics_init(struct topics *t, const struct queue_settings *settings, struct err *e)
{
	*t = (struct topics){.kafka = {.options = settings->options,
	                               .topic_count = WIRE_TOPICS,
	                               .partitions = (unsigned)settings->partitions}};
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t len = strlen(settings->prefix);
	if (strspn(settings->prefix, allowed) != len || len > TOPIC_BYTES_MAX / 2)
		return err_set(
		    e, ERR_INVALID,
		    "queue.prefix: '%s' is not valid; use at most %d letters, digits, dots, dashes and "
		    "underscores",
		    settings->prefix, TOPIC_BYTES_MAX / 2);
	if (!settings->group[0])
		return err_set(e, ERR_INVALID,
		               "queue.group: it is empty; set the name of the consumer group");
	for (unsigned i = 0; i < WIRE_TOPICS; i++) {
		snprintf(t->names[i], sizeof(t->names[i]), "%s%s", settings->prefix, wire_topic_names[i]);
		t->kafka.topics[i] = t->names[i];
	}
	return kafka_options_check(settings->options, e)
	           ?: settings->url[0] ? kafka_url_brokers(settings->url, &t->kafka.brokers, e)
	                               : 0;
}
