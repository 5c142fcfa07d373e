/*
 * A task that reads a queue and hands batches of events to a handler. A batch is committed by the handler
 * first, then by the queue. If the handler fails, the same batch is retried until it succeeds, and the queue
 * grows meanwhile.
 */
#pragma once

#include "queue/queue.h"

/* All calls are on the consumer's thread. */
struct batch_handler {
	void (*begin)(void *ctx); /* a new batch */
	bool (*is_full)(void *ctx);
	/* 0; or the event was not added: ERR_NOMEM; ERR_LIMIT: the batch must be committed first, and is
	 * full. */
	int (*add)(void *ctx, struct queue *queue, const struct queue_event *ev);
	/* Commits the whole batch and the positions read, or nothing. ERR_UNCERTAIN: the positions do not
	 * match; the queue is read again from its last commit. Other errors are retried. */
	int (*commit)(void *ctx, const struct advance *advances, size_t count);
	/* Between two batches; NULL: none. */
	void (*maintain)(void *ctx, bool caught_up);
	/* The last call. */
	void (*finish)(void *ctx);
};

struct queue_consumer_config {
	const char *name;    /* of the task */
	const char *refuses; /* message for when the handler does not accept a batch */
	struct queue *queue; /* outlives the consumer */
	const struct batch_handler *handler;
	void *ctx;
	uint64_t interval_ms; /* how long events wait for others */
	uint64_t idle_ms;     /* after this long without a commit there is an empty one; 0: never */
};

struct queue_consumer;

int queue_consumer_start(const struct queue_consumer_config *config, struct queue_consumer **ret,
                         struct err *e);

/* Requests the end without waiting: the consumer reads for two seconds at most, and the rest of the queue
 * stays for the next start. A blocked handler delays the end; `wait_stop` says whether it came within the
 * timeout. */
void queue_consumer_ask_stop(struct queue_consumer *p);
bool queue_consumer_wait_stop(struct queue_consumer *p, uint64_t timeout_ms) MUST_CHECK;

/* Requests the end, and waits for it. NULL is fine. */
void queue_consumer_stop(struct queue_consumer *p);

/*
 * Waits until everything that was in the queue before the call is committed, or found to be unreadable. 0;
 * ERR_UNAVAILABLE on timeout, or when the consumer ends. It wakes the consumer, so it takes as long as
 * reading the rest and a commit, and a maintenance step that is under way. Any thread that may block, several
 * at once; not after queue_consumer_stop.
 */
int queue_consumer_catch_up(struct queue_consumer *p, uint64_t timeout_ms) MUST_CHECK;

/* From now on, calls of queue_consumer_catch_up return at once. Call it before the waiting threads are
 * ended. */
void queue_consumer_cancel_waits(struct queue_consumer *p);

/* 0, or why events are not processed at present, also if a commit takes long: a message for /readyz. Any
 * thread. */
int queue_consumer_trouble(struct queue_consumer *p, struct err *e);
