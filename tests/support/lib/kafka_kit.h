/*
 * A Kafka for tests: that of CURT_TEST_KAFKA (HOST:PORT), which others may use at the same time. Each kit has
 * topics and a group of its own, and deletes those topics when it is released.
 */
#pragma once

#include "base/str.h"
#include "queue/settings.h"
#include "queue/wire.h"

struct kafka_kit {
	struct queue_settings settings; /* point into what follows */
	char url[128], group[64], prefix[72], options[128];
	char topics[WIRE_TOPICS][96];
	void *producer; /* of kafka_kit_produce; NULL: none yet */
};

/* Fine when there is no Kafka, too; then kafka_kit_need skips the test. */
void kafka_kit_init(struct kafka_kit *k, unsigned partitions);
void kafka_kit_need(const struct kafka_kit *k);
void kafka_kit_release(struct kafka_kit *k);

/* librdkafka's mock of a broker, in this process: for when it has to go away and come back. The kit's topics
 * are there. */
struct kafka_mock;
struct kafka_mock *kafka_mock_start(struct kafka_kit *k, unsigned partitions);
void kafka_mock_stop(struct kafka_mock *m);
void kafka_mock_set_away(struct kafka_mock *m, bool is_away);

/* Makes the topics, with a property of theirs ("name", "value"; NULL: none), and changes it later. */
void kafka_kit_make(struct kafka_kit *k, const char *property, const char *value);
void kafka_kit_alter(struct kafka_kit *k, const char *property, const char *value);

/* The topics are deleted, and made again. */
void kafka_kit_remake(struct kafka_kit *k);

/* All messages that are there go, as if they were past their time. */
void kafka_kit_trim(const struct kafka_kit *k);

/* As another team's producer would. */
void kafka_kit_produce(struct kafka_kit *k, enum wire_topic topic, const char *key, struct str value);

/* As another team's consumer would: all messages that are there now. Returns how many. */
size_t kafka_kit_each(const struct kafka_kit *k,
                      void (*seen)(void *ctx, enum wire_topic topic, int32_t partition, struct str key,
                                   struct str value),
                      void *ctx);
