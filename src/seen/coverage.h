/*
 * What a server of the filter was told. What it does not know was never counted only if it was told
 * everything since long enough. So it keeps, for every partition, how far it was told, since when without a gap,
 * when that was, and in which state it was itself: its life (`run_id`: one that was started again, or has
 * taken over from another, may have lost the last of it) and how many keys it has evicted. A partition that is to
 * be read from beyond where the server was told has a gap; one that is read from before that is only read
 * again. A record from the future is of a worker whose clock is ahead, and whose marks are not looked for.
 *
 * A server that is flushed between asking and telling has forgotten what the records would vouch for. So it
 * also keeps a number that was drawn when there was none: records are written only beside the number that
 * was there at the asking.
 *
 * A partition without a record begins now. But in a new installation, whose sink has nothing, there is nothing to
 * be told; this is noted, for a window, for partitions that get their first impressions when others had theirs,
 * and forgotten when a gap is found.
 */
#pragma once

#include "client/redis.h"
#include "seen/seen.h"

enum {
	COVERAGE_SLACK_MS = 5 * 60 * 1000, /* clocks of servers and workers may differ so much */
	COVERAGE_DRAW_BYTES = 24,
};

struct coverage_config {
	const char *key; /* of the hash with the records */
	uint64_t window_ms;
	/* 1: the sink could not recall any impression, whichever; 0: it could; or it cannot be asked. */
	int (*sink_is_empty)(void *ctx);
	void *ctx;
};

/* A partition of the batch that was asked about last. */
struct coverage_partition {
	uint64_t number;
	bool is_whole;    /* there is no gap, as far as we know */
	int64_t since_ms; /* the first moment from which on the server was told everything */
};

struct coverage {
	char run_id[48]; /* at the last asking; likewise: */
	uint64_t evicted;
	char draw[COVERAGE_DRAW_BYTES];
	bool has_gap;
	struct coverage_partition *partitions; /* by number */
	size_t count, cap;
};

void coverage_release(struct coverage *t);

/* Finds out about the partitions of a batch. ERR_UNAVAILABLE, and why; ERR_NOMEM. */
int coverage_ask(struct coverage *t, const struct coverage_config *config, const struct seen_batch *b,
                 struct redis_conn *c, struct err *why);

/* NULL: it is none of the batch's. */
const struct coverage_partition *coverage_partition_find(const struct coverage *t, uint64_t number);

/* All of the batch that was asked about last is marked. */
int coverage_write(const struct coverage *t, const struct coverage_config *config, const struct seen_batch *b,
                   struct redis_conn *c, struct err *why);

/* Reads a reply of that type. ERR_UNAVAILABLE, and why. */
int coverage_reply(struct redis_conn *c, enum redis_type type, struct redis_reply *ret, struct err *why);
