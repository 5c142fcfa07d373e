/*
 * The role `seen`: a fast filter for impressions that were counted within the last hours, for sinks that are
 * slow to query. The sink has the truth: the filter is updated after a commit, may lose its contents at any
 * time, and knows when it may have. Backend: Redis (seen_redis.c).
 *
 * Impressions come in partitions: all with the same fingerprint are in one, in an order that never changes. A
 * batch says how far its partitions were read (`struct advance`, in impressions or offsets). So the filter
 * notices when updates are missing, whichever process failed to send them.
 *
 * One thread calls `check` and `record`. An unavailable filter answers SEEN_UNKNOWN, which is not an error.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"

enum { SEEN_FINGERPRINT_BYTES = 12 };

enum seen_verdict {
	SEEN_UNKNOWN,   /* only the sink knows */
	SEEN_NEVER,     /* no impression with this fingerprint was counted within the window around it */
	SEEN_REPLAY,    /* this very event was counted, and is read again */
	SEEN_DUPLICATE, /* another event with this fingerprint was counted within the window */
};

struct seen_item {
	uint8_t fingerprint[SEEN_FINGERPRINT_BYTES];
	struct event_id event;
	int64_t received_ms;
	uint64_t partition;
	enum seen_verdict verdict; /* set by `check` */
};

struct seen_batch {
	struct seen_item *items; /* for `record`: of equal fingerprints, all but one are duplicates */
	size_t count;
	uint64_t source;                  /* of the partitions: */
	const struct advance *partitions; /* of all items; there may be more */
	size_t partition_count;
	int64_t now_ms;
};

struct seen {
	const struct seen_ops *ops;
};

struct seen_ops {
	void (*free)(struct seen *);

	/* Sets the verdicts. */
	void (*check)(struct seen *, struct seen_batch *batch);

	/* Records all items of the last checked batch, except duplicates: the sink has committed them. */
	void (*record)(struct seen *, const struct seen_batch *batch);

	/* 0, or why the sink must be queried instead: a message for /readyz. Any thread. */
	int (*trouble)(struct seen *, struct err *e);
};
