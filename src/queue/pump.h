/*
 * A task that takes events from a queue and hands them to a consumer, batch by batch. A batch is committed
 * by the consumer first, then by the queue; a consumer that fails holds it up: the same batch is offered
 * again until it is taken, and meanwhile the queue grows.
 */
#pragma once

#include "queue/queue.h"

/* All on the pump's lane. */
struct pump_consumer {
	void (*begin)(void *ctx); /* a new batch */
	bool (*is_full)(void *ctx);
	/* 0; or it was not taken: ERR_LIMIT when the batch must be committed first, and says that it is full;
	 * ERR_NOMEM. */
	int (*add)(void *ctx, struct queue *queue, const struct queue_event *ev);
	/* Takes the whole batch or nothing of it, and what was read with it. ERR_UNCERTAIN: the queue's
	 * reader is not where it should be; all is read again from where the queue stands. Others: tried
	 * again. */
	int (*commit)(void *ctx, const struct advance *advances, size_t count);
	/* Between two batches. */
	void (*chores)(void *ctx, bool caught_up);
	/* The last call, when all has been read that will be. */
	void (*finish)(void *ctx);
};

struct pump_config {
	const char *name;    /* of the task */
	const char *refuses; /* the sentence for when the consumer does not take a batch */
	struct queue *queue; /* outlives the pump */
	const struct pump_consumer *consumer;
	void *ctx;
	uint64_t interval_ms; /* how long events wait for others */
	uint64_t idle_ms;     /* after so long without a commit there is an empty one; 0: none */
};

struct pump;

int pump_start(const struct pump_config *config, struct pump **ret, struct err *e);

/* Asks it to end, without waiting: it reads what is left (for a moment at most: the rest is there at the next
 * start). A consumer that hangs holds that up; pump_wait_end says whether it has ended within the time. */
void pump_ask_end(struct pump *p);
bool pump_wait_end(struct pump *p, uint64_t timeout_ms) MUST_CHECK;

/* Asks for the end, and waits for it. NULL is fine. */
void pump_stop(struct pump *p);

/*
 * Returns 0 when everything that was in the queue before the call is committed, or was found to be
 * unreadable; ERR_UNAVAILABLE when that was not reached in time, or the pump ends meanwhile. It is woken for
 * it, so this takes as long as reading what is left and a commit do (and a chore, if it is at one). What
 * comes during the call is not waited for. Any thread that may block, several at once; none may begin once
 * pump_stop was called.
 */
int pump_catch_up(struct pump *p, uint64_t timeout_ms) MUST_CHECK;

/* From now on nobody waits: those who do are told so. Before the threads that may wait are ended. */
void pump_let_go(struct pump *p);

/* 0, or why events do not go on at present, also when a batch has been under way for long: a sentence for
 * /readyz. Any thread. */
int pump_trouble(struct pump *p, struct err *e);
