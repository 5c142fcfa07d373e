/* Shared by producer and consumer: creating a client, its errors, and topics. */
#pragma once

#include "client/kafka.h"

#include <librdkafka/rdkafka.h>

/* The last error of librdkafka; "" if none. */
struct kafka_said {
	char text[256];
};

struct kafka_property {
	const char *name, *value;
};

/* Creates a client with our defaults, the options, and `fixed`, which overrides both. `conf_more` may set
 * callbacks; `opaque` is theirs. */
int kafka_client_new(rd_kafka_type_t type, const struct kafka_config *config,
                     const struct kafka_property *defaults, const struct kafka_property *fixed,
                     void (*conf_more)(rd_kafka_conf_t *conf), void *opaque, rd_kafka_t **ret, struct err *e);

/* Creates missing topics. ERR_UNAVAILABLE: they do not exist. */
int kafka_topics_make(rd_kafka_t *rk, const struct kafka_config *config, uint64_t timeout_ms, struct err *e);

/* The index of a topic of the config. */
unsigned kafka_topic_index(const struct kafka_config *config, const char *name);
