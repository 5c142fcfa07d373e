/*
 * Coverage: which updates a server of the filter has received. A miss is proof only if the server has
 * received every update for a full window. So the server keeps a record for every partition:
 *
 *	offset      up to where it has received updates
 *	since       since when without a gap
 *	covered     when the record was written
 *	evicted     how many keys it had evicted
 *	run_id      of the server process: one that was restarted, or has replaced another, may have lost
 *	            updates
 *
 * A partition that is read from after `offset` has a gap; one that is read from before it is only read again.
 * A record from the future was written by a worker whose clock is ahead, and is not used.
 *
 * A server that is flushed between a check and its update has lost what the records vouch for. So it also
 * keeps a random number (`draw`), created when there is none. Records are written only if the number is the
 * one that was there at the check.
 *
 * A partition without a record begins now. But in a new installation, whose sink is empty, no update can be
 * missing. This is noted (`beginning`) for one window, for partitions that get their first impressions later
 * than others, and deleted when a gap is found.
 */
#pragma once

#include "client/redis.h"
#include "seen/seen.h"

enum {
	COVERAGE_SLACK_MS = 5 * 60 * 1000, /* clocks of servers and workers may differ by this */
	COVERAGE_DRAW_BYTES = 24,
};

struct coverage_config {
	const char *key; /* of the hash with the records */
	uint64_t window_ms;
	/* 1: the sink has no fingerprint; 0: it has some; or an error. */
	int (*sink_is_empty)(void *ctx);
	void *ctx;
};

/* A partition of the last checked batch. */
struct coverage_partition {
	uint64_t number;
	bool is_complete; /* no gap is known */
	int64_t since_ms; /* the server has received all updates since */
};

struct coverage {
	char run_id[48]; /* at the last check; so are the following */
	uint64_t evicted;
	char draw[COVERAGE_DRAW_BYTES];
	bool has_gap;
	struct coverage_partition *partitions; /* by number */
	size_t count, cap;
};

void coverage_release(struct coverage *t);

/* Reads the coverage of a batch's partitions. ERR_UNAVAILABLE, ERR_NOMEM, with a message. */
int coverage_read(struct coverage *t, const struct coverage_config *config, const struct seen_batch *b,
                  struct redis_conn *c, struct err *why);

/* NULL: not in the batch. */
const struct coverage_partition *coverage_partition_find(const struct coverage *t, uint64_t number);

/* Records that the server has all updates of the last checked batch. */
int coverage_write(const struct coverage *t, const struct coverage_config *config, const struct seen_batch *b,
                   struct redis_conn *c, struct err *why);

/* Reads a reply of that type. ERR_UNAVAILABLE with a message. */
int coverage_reply(struct redis_conn *c, enum redis_type type, struct redis_reply *ret, struct err *why);
