/*
 * A link's statistics while they are counted: how often each shape came, by its number in the sink, and the
 * series. Every count passes through tallies_add, which knows for each shape whether the query wants it.
 * Backends find the counts; what the answer looks like is decided here.
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
	int64_t from_ms, to_ms; /* of the query, where times can be; from >= to: nothing is asked for */
	int64_t first_step;
	struct set_tally *sets; /* by number */
	size_t cap;
};

/* 0, ERR_LIMIT or ERR_INVALID: before anything is read. Sets the series' count. */
int tallies_check(struct stats_query *q);

/* Empties the answer; 0 or ERR_NOMEM. To be released in any case. */
int tallies_begin(struct tallies *t, struct stats_query *q);
void tallies_release(struct tallies *t);

static inline bool tallies_know(const struct tallies *t, uint64_t id)
{
	return id < t->cap && t->sets[id].known;
}

/* What the number means; its strings are in the query's arena. 0 or ERR_NOMEM. */
int tallies_learn(struct tallies *t, uint64_t id, const struct dimension_set *set);

/* Where in the series that time lies, which is within the range; 0 without a series. */
static inline size_t tallies_step(const struct tallies *t, int64_t ms)
{
	return t->q->series ? (size_t)(step_of(t->q->step, ms) - t->first_step) : 0;
}

/* Of a number that is known. `n` may be negative, as a large number: it takes away what was added. */
static inline void tallies_add(struct tallies *t, uint64_t id, uint64_t n, size_t step)
{
	struct set_tally *v = &t->sets[id];
	if (!v->wanted)
		return;
	v->count += n;
	if (v->click && t->q->series)
		t->q->series[step].clicks += n;
}

/* Fills in all but the visitors; 0 or ERR_NOMEM. */
int tallies_answer(const struct tallies *t);
