/*
 * The forwarder: a queue consumer that sends the events of the event log to Kafka (docs/kafka.md). The log's
 * checkpoint moves only when all events of a batch have their receipts. So an unavailable broker only makes
 * the log grow. After a crash, the events since the checkpoint are sent again with the same ids.
 *
 * Readers recognise repetitions by watermarks (watermarks.h). So the queue must deliver a writer's events in
 * the order of their ids (queue_log's `boots_in_order`), and a batch is delivered completely before the next
 * one is begun.
 */
#pragma once

#include "queue/consumer.h"
#include "queue/settings.h"

/* Observes forwarded events, on the forwarder's thread. */
struct forwarder_watch {
	void (*begin)(void *ctx);                               /* a batch; discards an unfinished one */
	void (*event)(void *ctx, const struct queue_event *ev); /* with its texts */
	void (*delivered)(void *ctx);                           /* all events since `begin` */
	void *ctx;
};

struct forwarder_config {
	const struct queue_settings *settings; /* these outlive the forwarder */
	struct queue *queue;
	const struct forwarder_watch *watch; /* likewise; NULL: none */
};

struct forwarder;

/* Kafka need not be available. ERR_INVALID when the settings are wrong. */
int forwarder_start(const struct forwarder_config *config, struct forwarder **ret, struct err *e);

/* Sends the rest for some seconds at most; what is left stays in the log. NULL is fine. */
void forwarder_stop(struct forwarder *f);

struct queue_consumer *forwarder_consumer(struct forwarder *f);
