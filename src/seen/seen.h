/*
 * The role `seen`: a quick guess at which impressions were counted within the last hours, for sinks that are
 * slow to tell. A filter, never the truth: it is told after the sink has kept an impression, it may forget
 * everything at any time, and it knows when it may have. Backend: Redis (seen_redis.c).
 *
 * Impressions come in partitions: all with the same fingerprint in the same one, in an order that never changes.
 * With each batch goes how far its partitions were read (`struct advance`, which counts impressions or offsets):
 * so the filter notices when marks are missing that it should have got, whoever failed to give them.
 *
 * One thread asks and marks. A filter that is away knows nothing; that is no error for whoever asks.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"

enum { SEEN_FINGERPRINT_BYTES = 12 };

enum seen_verdict {
	SEEN_UNKNOWN,   /* only the sink can tell */
	SEEN_NEVER,     /* nothing with this fingerprint was counted within the window around it */
	SEEN_ITSELF,    /* this very event was counted: it is read again */
	SEEN_DUPLICATE, /* another event with this fingerprint was counted within the window */
};

struct seen_item {
	uint8_t fingerprint[SEEN_FINGERPRINT_BYTES];
	struct event_id event;
	int64_t received_ms;
	uint64_t partition;
	enum seen_verdict verdict; /* out of `ask` */
};

struct seen_batch {
	struct seen_item
	    *items; /* of those with the same fingerprint, all but one are duplicates when they are marked */
	size_t count;
	uint64_t source;             /* whose partitions these are: */
	const struct advance *partitions; /* of all items, and perhaps more */
	size_t partition_count;
	int64_t now_ms;
};

struct seen {
	const struct seen_ops *ops;
};

struct seen_ops {
	void (*free)(struct seen *);

	/* Fills in the verdicts. */
	void (*ask)(struct seen *, struct seen_batch *batch);

	/* The batch that was asked about last is in the sink: all of its items that are no duplicates. */
	void (*mark)(struct seen *, const struct seen_batch *batch);

	/* 0, or why the sink is asked instead: a sentence for /readyz. Any thread. */
	int (*trouble)(struct seen *, struct err *e);
};
