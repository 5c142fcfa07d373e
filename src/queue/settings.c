#include "queue/settings.h"

#define FIELD(f) offsetof(struct queue_settings, f)

const struct conf_row queue_rows[] = {
    {"queue", "url", CONF_STRING, FIELD(url), .def = "", .flags = CONF_SECRET,
     .help =
         "The Kafka to which servers send events, and from which workers read them: kafka://HOST:PORT, "
         "several brokers as kafka://HOST:PORT,HOST:PORT. Empty: each server analyses its own event log."},
    {"queue", "group", CONF_STRING, FIELD(group), .def = "curt",
     .help = "The consumer group of the workers; the workers of one group share the events."},
    {"queue", "prefix", CONF_STRING, FIELD(prefix), .def = "",
     .help = "A prefix for topic names, where several installations share a Kafka. Empty: the topics are "
             "impressions and url-access-events."},
    {"queue", "partitions", CONF_UINT, FIELD(partitions), .def = "8", .min = 1, .max = 10000,
     .help = "How many partitions a missing topic is created with; so many workers can share it."},
    {"queue", "options", CONF_STRING, FIELD(options), .def = "", .flags = CONF_SECRET,
     .help = "Properties of librdkafka, such as "
             "security.protocol=SASL_SSL,sasl.mechanisms=PLAIN,sasl.username=NAME,sasl.password=SECRET. "
             "Write a comma within a value twice."},
};
const size_t queue_row_count = ARRAY_LEN(queue_rows);
