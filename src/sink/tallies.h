/*
 * The counts of a stats query while it runs: visits per dimension set, by its id in the sink, and the series.
 * Backends find the counts; this module filters them and builds the result. Every count passes through
 * tallies_add, which knows for each set whether the query selects it.
 */
#pragma once

#include "sink/calendar.h"
#include "sink/sink.h"

struct set_tally {
	bool known, wanted, click, bot;
	uint64_t count;
	struct dimension_set *set; /* in the query's arena */
};

struct tallies {
	struct stats_query *q;
	int64_t from_ms, to_ms; /* the query's range, clamped; from >= to: empty */
	int64_t first_step;
	struct set_tally *sets; /* by id */
	size_t cap;
};

/* Validates the query before anything is read, and sets its series_count. 0, ERR_LIMIT, ERR_INVALID. */
int tallies_check(struct stats_query *q);

/* Clears the query's results. 0 or ERR_NOMEM; release in either case. */
int tallies_begin(struct tallies *t, struct stats_query *q);
void tallies_release(struct tallies *t);

static inline bool tallies_know(const struct tallies *t, uint64_t id)
{
	return id < t->cap && t->sets[id].known;
}

/* Registers the set of an id; its strings are in the query's arena. 0 or ERR_NOMEM. */
int tallies_learn(struct tallies *t, uint64_t id, const struct dimension_set *set);

/* The index in the series of a time within the range; 0 without a series. */
static inline size_t tallies_step(const struct tallies *t, int64_t ms)
{
	return t->q->series ? (size_t)(step_of(t->q->step, ms) - t->first_step) : 0;
}

/* Adds n visits of a known set. -n, as a large number, takes away what was added. */
static inline void tallies_add(struct tallies *t, uint64_t id, uint64_t n, size_t step)
{
	struct set_tally *v = &t->sets[id];
	if (!v->wanted)
		return;
	v->count += n;
	if (v->click && t->q->series)
		t->q->series[step].clicks += n;
}

/* Sets all results but the visitors; 0 or ERR_NOMEM. */
int tallies_finish(const struct tallies *t);
