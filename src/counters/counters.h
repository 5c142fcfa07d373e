/*
 * The role `counters`: the clicks of links as of a moment ago, for all servers. Where servers share a queue,
 * none of them has the counts at hand, and the link store is told only now and then. A view of what the sink
 * knows, never the truth: it may forget everything at any time, and it knows when it may have. Backend: Redis
 * (counters_redis.c).
 *
 * All clicks of a link come in one stream, and one worker at a time reads that. After each batch it says how
 * many clicks its links had, and from where to where that was (`struct advance`). Clicks are added only if
 * they begin where the last ones ended. Otherwise some are missing, and all totals of the stream are old:
 * they are still shown, for they are not too high, but not added to until the sink's total was put in their
 * place. Clicks that are read again are passed over.
 *
 * A total from the sink is good only if the sink has nothing that the stream will still bring. One that keeps
 * positions never has; others may, after a crash. So with those each batch is announced before it is given to
 * the sink, and no total is asked for until what was announced has been read again.
 *
 * A total is also marked as told to the store or not, so that a worker can go on with what another one left.
 *
 * All but `get` and `trouble` come from the one thread that reads the stream. Counters that are away count
 * nothing, and that is no error for whoever adds: when they are back, the next clicks do not begin where
 * the last ones ended.
 */
#pragma once

#include "base/err.h"
#include "base/position.h"

enum { COUNTERS_GET_MAX = 512 };

enum counters_fate {
	COUNTERS_AWAY,  /* nobody knows: they do not answer */
	COUNTERS_ADDED, /* it went on where the last one ended */
	COUNTERS_AGAIN, /* it was added before */
	COUNTERS_ANEW,  /* all totals of the stream were old, for whatever reason */
};

struct counter {
	uint64_t link;
	uint64_t clicks;
	bool is_missing; /* out: there is no total to be relied on */
};

struct counters_step {
	uint64_t source;
	struct advance at;     /* of one stream of the source */
	uint64_t reach;        /* add: how far in it the sink may be, as far as we know */
	struct counter *links; /* no two the same */
	size_t count;
	enum counters_fate fate; /* out of `add` */
};

struct counters {
	const struct counters_ops *ops;
};

struct counters_ops {
	void (*free)(struct counters *);

	/* The sink will be given these steps. */
	void (*announce)(struct counters *, uint64_t source, const struct advance *steps, size_t count);

	/* The sink has the step, and its links had so many clicks in it. Those that are missing want their
	 * total: see `put`. */
	void (*add)(struct counters *, struct counters_step *step);

	/* Totals as the sink has them after the step: of those that `add` found missing, or others. Not taken
	 * if the stream is elsewhere, or the sink ahead of it. */
	void (*put)(struct counters *, const struct counters_step *step);

	/* Fills in the totals after that step, and says which are missing. */
	void (*read)(struct counters *, struct counters_step *step);

	/* The store has been told these totals. */
	void (*updated)(struct counters *, const struct counters_step *step);

	/* Gives some of the stream's links whose total was not told, beginning with *cursor 0, which moves
	 * on, to 0 at the end. A link may come twice. ERR_UNAVAILABLE. */
	int (*dirty_links)(struct counters *, uint64_t source, uint64_t stream, uint64_t *cursor,
	                   void (*take)(void *ctx, uint64_t link), void *ctx);

	/* All totals of the stream were told: those of too many links are forgotten. */
	void (*trim)(struct counters *, uint64_t source, uint64_t stream);

	/* The largest total of each of at most COUNTERS_GET_MAX links, old ones too. What could be had when
	 * it is ERR_UNAVAILABLE. Any thread that may block. */
	int (*get)(struct counters *, struct counter *links, size_t n);

	/* 0, or why clicks are not counted: a sentence for /readyz. Any thread. */
	int (*trouble)(struct counters *, struct err *e);
};
