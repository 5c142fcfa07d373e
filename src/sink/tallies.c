#include "sink/tallies.h"

#include "base/grow.h"
#include <stdlib.h>

static const int64_t time_limit_ms = 1LL << 50;

static int64_t clamp_ms(int64_t ms)
{
	return MAX(MIN(ms, time_limit_ms), -time_limit_ms);
}

int tallies_check(struct stats_query *q)
{
	q->series_count = 0;
	if (q->link > INT64_MAX)
		return ERR_INVALID;
	int64_t from_ms = clamp_ms(q->from_ms), to_ms = clamp_ms(q->to_ms);
	if (!q->series_wanted || from_ms >= to_ms)
		return 0;
	/* Counting the months of an unbounded range would take long. */
	if ((to_ms - from_ms) / step_unit_ms(q->step) / 31 > SINK_SERIES_MAX)
		return ERR_LIMIT;
	int64_t count = step_of(q->step, to_ms - 1) - step_of(q->step, from_ms) + 1;
	if (count > SINK_SERIES_MAX)
		return ERR_LIMIT;
	q->series_count = (size_t)count;
	return 0;
}

static int prepare(struct stats_query *q, int64_t from_ms)
{
	q->clicks = q->bot_clicks = q->heads = q->prefetches = q->unknowns = q->roots = q->visitors = 0;
	q->has_visitors = !q->filtered;
	q->series = NULL;
	for (int i = 0; i < DIM_COUNT; i++) {
		q->shares[i] = NULL;
		q->share_count[i] = 0;
	}
	if (q->series_count == 0)
		return 0;
	q->series = arena_alloc(q->arena, q->series_count * sizeof(*q->series));
	if (!q->series)
		return ERR_NOMEM;
	int64_t first = step_of(q->step, from_ms);
	for (size_t i = 0; i < q->series_count; i++)
		q->series[i] = (struct stats_point){.time_ms = step_start_ms(q->step, first + (int64_t)i)};
	return 0;
}

int tallies_begin(struct tallies *t, struct stats_query *q)
{
	*t = (struct tallies){.q = q, .from_ms = clamp_ms(q->from_ms), .to_ms = clamp_ms(q->to_ms)};
	int r = prepare(q, t->from_ms);
	if (r == 0 && q->series)
		t->first_step = step_of(q->step, t->from_ms);
	return r;
}

void tallies_release(struct tallies *t)
{
	free(t->sets);
}

/* --- dimension sets --- */

static bool dim_is(struct str value, struct str wanted)
{
	if (!value.ptr || !wanted.ptr)
		return !value.ptr && !wanted.ptr;
	return str_eq(value, wanted);
}

int tallies_learn(struct tallies *t, uint64_t id, const struct dimension_set *set)
{
	struct dimension_set *copy = arena_alloc(t->q->arena, sizeof(*copy));
	size_t before = t->cap;
	if (!copy || !ARRAY_ROOM(t->sets, t->cap, id + 1))
		return ERR_NOMEM;
	memset(t->sets + before, 0, (t->cap - before) * sizeof(*t->sets));
	*copy = *set;
	t->sets[id].set = copy;
	struct set_tally *v = &t->sets[id];
	v->known = true;
	v->click = v->set->kind == VISIT_CLICK;
	v->bot = v->set->dims[DIM_BOT].ptr != NULL;
	v->wanted = t->q->bots == BOTS_INCLUDED || v->bot == (t->q->bots == BOTS_ONLY);
	for (int i = 0; i < DIM_COUNT; i++)
		if (t->q->filtered >> i & 1 && !dim_is(v->set->dims[i], t->q->filter[i]))
			v->wanted = false;
	return 0;
}

/* --- results --- */

/* Unknown comes first. */
static int value_compare(const void *a, const void *b)
{
	const struct stats_share *x = a, *y = b;
	if (!x->value.ptr || !y->value.ptr)
		return (x->value.ptr != NULL) - (y->value.ptr != NULL);
	int order = memcmp(x->value.ptr, y->value.ptr, MIN(x->value.len, y->value.len));
	return order ? order : (x->value.len > y->value.len) - (x->value.len < y->value.len);
}

static int share_compare(const void *a, const void *b)
{
	const struct stats_share *x = a, *y = b;
	if (x->clicks != y->clicks)
		return x->clicks > y->clicks ? -1 : 1;
	return value_compare(a, b);
}

static int shares_fill(const struct tallies *t, int dim, struct stats_share *room)
{
	struct stats_query *q = t->q;
	size_t count = 0;
	for (size_t i = 0; i < t->cap; i++) {
		const struct set_tally *v = &t->sets[i];
		if (v->known && v->click && v->count > 0)
			room[count++] = (struct stats_share){.value = v->set->dims[dim], .clicks = v->count};
	}
	qsort(room, count, sizeof(*room), value_compare);
	size_t kept = 0;
	for (size_t i = 0; i < count; i++) {
		if (kept > 0 && value_compare(&room[kept - 1], &room[i]) == 0)
			room[kept - 1].clicks += room[i].clicks;
		else
			room[kept++] = room[i];
	}
	count = kept;
	qsort(room, count, sizeof(*room), share_compare);
	count = MIN(count, q->shares_max);
	q->shares[dim] = arena_alloc(q->arena, MAX(count, 1) * sizeof(*room));
	if (!q->shares[dim])
		return ERR_NOMEM;
	memcpy(q->shares[dim], room, count * sizeof(*room));
	q->share_count[dim] = count;
	return 0;
}

int tallies_finish(const struct tallies *t)
{
	struct stats_query *q = t->q;
	for (size_t i = 0; i < t->cap; i++) {
		const struct set_tally *v = &t->sets[i];
		if (!v->known || v->count == 0)
			continue;
		switch (v->set->kind) {
		case VISIT_CLICK:
			q->clicks += v->count;
			q->bot_clicks += v->bot ? v->count : 0;
			break;
		case VISIT_HEAD: q->heads += v->count; break;
		case VISIT_PREFETCH: q->prefetches += v->count; break;
		case VISIT_UNKNOWN: q->unknowns += v->count; break;
		case VISIT_ROOT: q->roots += v->count; break;
		case VISIT_KINDS: break;
		}
	}
	if (!t->q->dims_wanted)
		return 0;
	struct stats_share *shares = malloc(MAX(t->cap, 1) * sizeof(*shares));
	int r = shares ? 0 : ERR_NOMEM;
	for (int dim = 0; r == 0 && dim < DIM_COUNT; dim++)
		if (t->q->dims_wanted >> dim & 1)
			r = shares_fill(t, dim, shares);
	free(shares);
	return r;
}
