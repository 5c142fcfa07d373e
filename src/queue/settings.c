#include "queue/settings.h"

#define FIELD(f) offsetof(struct queue_settings, f)

const struct conf_row queue_rows[] = {
    {"queue", "url", CONF_STRING, FIELD(url), .def = "", .flags = CONF_SECRET,
     .help = "Where servers send their events, and where workers take them from: kafka://HOST:PORT, several "
             "brokers as kafka://HOST:PORT,HOST:PORT. Empty: each server analyses its own event log."},
    {"queue", "group", CONF_STRING, FIELD(group), .def = "curt",
     .help = "The consumer group of the workers: those of one group share the events between them."},
    {"queue", "prefix", CONF_STRING, FIELD(prefix), .def = "",
     .help = "What the names of the topics begin with, where several installations share a Kafka; without it "
             "they are impressions and url-access-events."},
    {"queue", "partitions", CONF_UINT, FIELD(partitions), .def = "8", .min = 1, .max = 10000,
     .help = "Partitions of topics that are missing and therefore made; as many workers can share one."},
    {"queue", "options", CONF_STRING, FIELD(options), .def = "", .flags = CONF_SECRET,
     .help = "Properties of librdkafka, such as security.protocol=SASL_SSL,sasl.mechanisms=PLAIN,"
             "sasl.username=NAME,sasl.password=SECRET; a comma within a value is written twice."},
};
const size_t queue_row_count = ARRAY_LEN(queue_rows);
