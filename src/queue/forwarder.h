/*
 * The forwarder: a pump that sends the events of a queue, which is the event log, to Kafka (docs/kafka.md).
 * The log's checkpoint moves only when all events of a batch have their receipts, so a broker that is away
 * makes the log grow and nothing else; after a crash the events since then are sent again, with the same ids.
 *
 * Readers recognise those by how far a writer's events have come (marks.h), so the queue must give a writer's
 * events in the order of their ids (queue_log's `boots_in_order`), and all of a batch is delivered before the
 * next one is begun.
 */
#pragma once

#include "queue/pump.h"
#include "queue/settings.h"

/* For whoever wants to see what passes, on the forwarder's thread. */
struct forwarder_watch {
	void (*begin)(void *ctx);                               /* a batch; one that was begun is no more */
	void (*event)(void *ctx, const struct queue_event *ev); /* with its texts */
	void (*delivered)(void *ctx);                           /* all events since `begin` */
	void *ctx;
};

struct forwarder_config {
	const struct queue_settings *settings; /* these outlive the forwarder */
	struct queue *queue;
	const struct forwarder_watch *watch; /* likewise; NULL: nobody */
};

struct forwarder;

/* Kafka need not be there. ERR_INVALID when the settings are wrong. */
int forwarder_start(const struct forwarder_config *config, struct forwarder **ret, struct err *e);

/* Sends what is left, for a moment at most: the rest is in the log. NULL is fine. */
void forwarder_stop(struct forwarder *f);

/* Its thread, for whoever waits for it or asks how it is. */
struct pump *forwarder_pump(struct forwarder *f);
