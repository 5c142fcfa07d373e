/*
 * A thread pool for work that may block. Waiting jobs are handed over in batches, so that one query or one
 * commit serves many: the more load, the larger the batches. A job whose `share` equals that of one under way
 * does not run: it gets that one's outcome.
 */
#pragma once

#include "base/list.h"
#include "base/str.h"
#include "loop/loop.h"

struct offload;

/* Embedded in the submitter's object, which lives until `done`. */
struct offload_job {
	struct loop *origin; /* whose thread runs `done`; NULL: the pool's own */
	void (*done)(struct offload_job *);
	struct str share; /* STR_NULL: never shared */

	/* private to the pool */
	uint64_t share_hash;
	struct list link;      /* in the queue, or in its leader's followers */
	struct list flight;    /* in the table of flights */
	struct list followers; /* jobs that wait for this one's outcome */
	struct mail mail;
};

struct offload_ops {
	/* Does `n` jobs, 1 to batch_max of them; on a pool thread. */
	void (*run)(void *ctx, struct offload_job **jobs, size_t n);

	/* Copies the outcome of `leader` into `follower`, which had the same `share`. NULL when nothing is
	 * shared. */
	void (*adopt)(void *ctx, struct offload_job *follower, const struct offload_job *leader);
};

struct offload_config {
	const char *name; /* of the threads */
	unsigned threads;
	size_t batch_max; /* at most OFFLOAD_BATCH_MAX */
	size_t queue_max;
	const struct offload_ops *ops;
	void *ctx;
};

enum { OFFLOAD_BATCH_MAX = 1024 };

int offload_new(const struct offload_config *config, struct offload **ret, struct err *e);

/* Finishes what was submitted (its mail is posted), then ends the threads. */
void offload_free(struct offload *o);

/* How many jobs wait or run; any thread. */
size_t offload_backlog(const struct offload *o);

/* Any loop's thread. ERR_LIMIT when the queue is full: the caller answers 503. */
int offload_submit(struct offload *o, struct offload_job *job) MUST_CHECK;
