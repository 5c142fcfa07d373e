/* What producers and consumers share: how a client is set up, what it says, and the topics. */
#pragma once

#include "client/kafka.h"

#include <librdkafka/rdkafka.h>

/* What librdkafka last complained about; "" when it did not. */
struct kafka_said {
	char text[256];
};

struct kafka_property {
	const char *name, *value;
};

/* A client with our defaults, the options, and `fixed` on top: what must hold whatever the options say.
 * `conf_more` may set callbacks; `opaque` is theirs. */
int kafka_client_new(rd_kafka_type_t type, const struct kafka_config *config,
                     const struct kafka_property *defaults, const struct kafka_property *fixed,
                     void (*conf_more)(rd_kafka_conf_t *conf), void *opaque, rd_kafka_t **ret, struct err *e);

/* Makes the topics that are missing. ERR_UNAVAILABLE: they are not there. */
int kafka_topics_make(rd_kafka_t *rk, const struct kafka_config *config, uint64_t timeout_ms, struct err *e);

/* Index of a topic; the config has it. */
unsigned kafka_topic_index(const struct kafka_config *config, const char *name);
