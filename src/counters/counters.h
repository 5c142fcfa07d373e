/*
 * The counters interface: recent click totals of links, for all servers. If servers share a queue, none of
 * them has the counts, and the link store is updated only now and then. Counters are a view of the sink,
 * never authoritative: they may lose everything, and know when they may have. Backend: Redis
 * (counters_redis.c).
 *
 * All clicks of a link are in one stream, which one worker at a time reads. After each batch it reports the
 * clicks of its links, and the range of the stream that they come from (`struct advance`). Clicks are added
 * only if the range starts where the last one ended. Otherwise clicks are missing, and all totals of the
 * stream are outdated. They are still shown, because they are not too high, but nothing is added until the
 * sink's total replaces them. Clicks that are read again are skipped.
 *
 * A total of the sink is valid only if the sink has nothing that the stream will bring again. A sink that
 * stores positions never has; others may, after a crash. So for those each batch is announced before it
 * goes to the sink, and no total is used until the announced range was read again.
 *
 * A total is marked as written to the store or not, so that a worker can continue for another.
 *
 * All but `get` and `trouble` are called by the one thread that reads the stream. Counters that are down
 * count nothing, and `add` does not fail: when they are back, the next range does not start where the last
 * one ended.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"

enum { COUNTERS_GET_MAX = 512 };

enum counters_fate {
	COUNTERS_AWAY,  /* no answer */
	COUNTERS_ADDED, /* added: it continued the last range */
	COUNTERS_AGAIN, /* skipped: it was added before */
	COUNTERS_ANEW,  /* all totals of the stream are outdated */
};

struct counter {
	uint64_t link;
	uint64_t clicks;
	bool is_missing; /* out: there is no valid total */
};

struct counters_step {
	uint64_t source;
	struct advance at;     /* a range of one stream */
	uint64_t reach;        /* add: how far the sink may be in the stream */
	struct counter *links; /* distinct */
	size_t count;
	enum counters_fate fate; /* out of `add` */
};

struct counters {
	const struct counters_ops *ops;
};

struct counters_ops {
	void (*free)(struct counters *);

	/* Announces batches that go to the sink next. */
	void (*announce)(struct counters *, uint64_t source, const struct advance *steps, size_t count);

	/* The sink has the batch; adds the clicks of its links. Links with is_missing need a total: see
	 * `put`. */
	void (*add)(struct counters *, struct counters_step *step);

	/* Sets totals from the sink after the batch, of links that `add` found missing, or others. Ignored
	 * if the stream is elsewhere, or the sink is ahead of it. */
	void (*put)(struct counters *, const struct counters_step *step);

	/* Reads the totals after the batch, and which are missing. */
	void (*read)(struct counters *, struct counters_step *step);

	/* The store has these totals now. */
	void (*updated)(struct counters *, const struct counters_step *step);

	/* Some links of the stream whose total the store does not have. *cursor starts at 0, advances, and
	 * is 0 at the end. A link may come twice. ERR_UNAVAILABLE. */
	int (*dirty_links)(struct counters *, uint64_t source, uint64_t stream, uint64_t *cursor,
	                   void (*take)(void *ctx, uint64_t link), void *ctx);

	/* The store has all totals of the stream: drops those of too many links. */
	void (*trim)(struct counters *, uint64_t source, uint64_t stream);

	/* The largest total of each of at most COUNTERS_GET_MAX links, including outdated ones. With
	 * ERR_UNAVAILABLE, those that could be read. Any thread that may block. */
	int (*get)(struct counters *, struct counter *links, size_t n);

	/* 0, or an error with a sentence for /readyz. Any thread. */
	int (*trouble)(struct counters *, struct err *e);
};
