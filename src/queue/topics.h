/* The Kafka cluster and topics of the settings, for the forwarder and the queue. */
#pragma once

#include "client/kafka.h"
#include "queue/settings.h"
#include "queue/wire.h"

struct topics {
	struct kafka_config kafka; /* points into what follows, and into the settings */
	char names[WIRE_TOPICS][256];
};

/* `t` must not move. Without queue.url it has no brokers. ERR_INVALID. */
int topics_init(struct topics *t, const struct queue_settings *settings, struct err *e);
