/*
 * A stats query adds up cells that are inside the range, the rows of cells that an edge of the range cuts,
 * and buffered visits.
 *
 * Rows of a cut cell may have expired. Visits with a row count at their own time, the others at the start of
 * the cell. So if the start is inside the range, the cell's counts are added and the rows outside are
 * subtracted. Otherwise the rows inside are added.
 */
#include "base/grow.h"
#include "sink/day_sketches.h"
#include "sink/sqlite_sink.h"
#include "sink/tallies.h"

#include <stdlib.h>

struct stats_scan {
	struct sqlite_conn *c;
	struct stats_query *q;
	struct tallies tallies;
	int64_t link; /* of the cells being added: the query's, LINK_ALL or LINK_ORPHANS */
	int64_t from_ms, to_ms;
	int64_t first_visit; /* the oldest visit that has a row */
	uint64_t set_last;
	struct visitor {
		int64_t day;
		uint32_t hash;
	} * visitors; /* buffered */
	size_t visitor_count, visitor_cap;
};

/* --- counting --- */

static int learn(struct stats_scan *a, uint64_t id)
{
	struct dimension_set set;
	if (id > a->set_last)
		return SQLITE_CORRUPT;
	int rc = sqlite_set_get(a->c, id, a->q->arena, &set);
	return rc == SQLITE_OK ? db_code(tallies_learn(&a->tallies, id, &set)) : rc;
}

static inline int add(struct stats_scan *a, uint64_t id, uint64_t n, size_t step)
{
	int rc = LIKELY(tallies_know(&a->tallies, id)) ? SQLITE_OK : learn(a, id);
	if (rc == SQLITE_OK)
		tallies_add(&a->tallies, id, n, step);
	return rc;
}

static int add_counts(struct stats_scan *a, struct str blob, int64_t start_ms)
{
	struct counts_reader r = {.blob = blob_reader_of(blob)};
	struct count item;
	size_t step = tallies_step(&a->tallies, start_ms);
	int rc = SQLITE_OK;
	while (rc == SQLITE_OK && counts_next(&r, &item))
		rc = add(a, item.id, item.n, step);
	return r.blob.bad ? SQLITE_CORRUPT : rc;
}

/* --- cut cells --- */

struct cut {
	struct stats_scan *a;
	uint64_t first, end; /* of the run */
	bool start_inside;
	size_t start_step;
};

static int cut_visit(const struct cut *cut, const struct visit_key *key)
{
	struct stats_scan *a = cut->a;
	bool inside = key->time_ms >= a->from_ms && key->time_ms < a->to_ms;
	if (inside == cut->start_inside)
		return SQLITE_OK;
	return inside ? add(a, key->set, 1, tallies_step(&a->tallies, key->time_ms))
	              : add(a, key->set, -(uint64_t)1, cut->start_step);
}

static int cut_run(const struct cut *cut)
{
	CLEANUP(query_end) struct query q = QUERY(cut->a->c, SQL_VISIT_KEYS, cut->first, cut->end);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		uint64_t number = (uint64_t)sqlite3_column_int64(q.stmt, 0);
		uint64_t end = MIN(cut->end, number + (uint64_t)sqlite3_column_int64(q.stmt, 1));
		struct blob_reader r = blob_reader_of(column_blob(&q, 2));
		struct keys_state state = {0};
		int code = SQLITE_OK;
		for (; code == SQLITE_OK && number < end; number++) {
			struct visit_key key;
			visit_key_get(&r, &state, &key);
			if (r.bad)
				return SQLITE_CORRUPT;
			if (number >= cut->first)
				code = cut_visit(cut, &key);
		}
		if (code != SQLITE_OK)
			return code;
	}
	return db_done(rc);
}

/* Rows of a minute that is on the same side of the edge as the start change nothing. */
static bool run_matters(const struct cut *cut, const struct run *run, int64_t start_ms)
{
	int64_t minute_ms = start_ms + (int64_t)run->minute * MINUTE_MS, end_ms = minute_ms + MINUTE_MS;
	if (cut->start_inside)
		return minute_ms < cut->a->from_ms || end_ms > cut->a->to_ms;
	return minute_ms < cut->a->to_ms && end_ms > cut->a->from_ms;
}

/* --- cells --- */

static int add_cell(struct stats_scan *a, enum cell_level level, int64_t start_ms, const struct query *q,
                    int sets_column)
{
	int64_t end_ms = start_ms + cell_level_ms[level];
	if (end_ms <= a->from_ms || start_ms >= a->to_ms)
		return SQLITE_OK;
	if (start_ms >= a->from_ms && end_ms <= a->to_ms)
		return add_counts(a, column_blob(q, sets_column), start_ms);
	struct cut cut = {.a = a, .start_inside = start_ms >= a->from_ms};
	CLEANUP(runs_release) struct runs runs = {0};
	int rc = SQLITE_OK;
	if (cut.start_inside) {
		cut.start_step = tallies_step(&a->tallies, start_ms);
		rc = add_counts(a, column_blob(q, sets_column), start_ms);
	}
	if (rc == SQLITE_OK)
		rc = db_code(runs_add_blob(&runs, column_blob(q, sets_column + 1), 0));
	for (size_t i = 0; rc == SQLITE_OK && i < runs.count; i++) {
		cut.first = MAX(runs.items[i].first, (uint64_t)a->first_visit);
		cut.end = runs.items[i].first + runs.items[i].count;
		if (cut.first < cut.end && run_matters(&cut, &runs.items[i], start_ms))
			rc = cut_run(&cut);
	}
	return rc;
}

/* Cells that are not of a single link are contiguous. */
static int add_common(struct stats_scan *a, enum cell_level level)
{
	CLEANUP(query_end)
	struct query q = QUERY(a->c, SQL_CELL_RANGE, cell_level_key(level, a->link),
	                       a->from_ms - cell_level_ms[level] + 1, a->to_ms, a->link);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		int r = add_cell(a, level, sqlite3_column_int64(q.stmt, 0), &q, 1);
		if (r != SQLITE_OK)
			return r;
	}
	return db_done(rc);
}

static int add_one(struct stats_scan *a, const struct cell_spans *spans, enum cell_level level,
                   int64_t start_ms)
{
	if (!sqlite_cell_may_be(spans, level, start_ms) || start_ms + cell_level_ms[level] <= a->from_ms ||
	    start_ms >= a->to_ms)
		return SQLITE_OK;
	CLEANUP(query_end)
	struct query q = QUERY(a->c, SQL_CELL_GET, cell_level_key(level, a->link), start_ms, a->link);
	bool found;
	int rc = query_find(&q, &found);
	return rc == SQLITE_OK && found ? add_cell(a, level, start_ms, &q, 0) : rc;
}

static int visitor_compare(const void *a, const void *b)
{
	const struct visitor *x = a, *y = b;
	return x->day < y->day ? -1 : x->day > y->day;
}

/* Adds the day's buffered visitors, which are sorted by day, to its sketch. */
static void add_visitors(struct stats_scan *a, int64_t day, struct sketch *sketch, size_t *at)
{
	while (*at < a->visitor_count && a->visitors[*at].day < day)
		(*at)++;
	for (; *at < a->visitor_count && a->visitors[*at].day == day; (*at)++)
		sketch_add(sketch, a->visitors[*at].hash);
	a->q->visitors += sketch_estimate(sketch);
}

/* *ret_hours: bits of the hours with visits. *ret_sketch: the file's sketch of the visitors that the query
 * selects. */
static int day_get(struct stats_scan *a, int64_t day, uint32_t *ret_hours, struct sketch *ret_sketch)
{
	CLEANUP(query_end) struct query q = QUERY(a->c, SQL_DAY_LINK_GET, day, a->q->link);
	bool found;
	int rc = query_find(&q, &found);
	*ret_hours = 0;
	sketch_init(ret_sketch);
	if (rc != SQLITE_OK || !found)
		return rc;
	*ret_hours = (uint32_t)sqlite3_column_int64(q.stmt, 1);
	struct day_sketches sketches;
	rc = a->q->has_visitors ? sqlite_day_sketches_get(&q, &sketches) : SQLITE_OK;
	if (rc == SQLITE_OK && a->q->has_visitors)
		a->q->has_visitors = day_sketches_select(&sketches, a->q->bots, ret_sketch);
	return rc;
}

/* Without `spans`: only its visitors. */
static int add_day(struct stats_scan *a, const struct cell_spans *spans, int64_t day, size_t *visitor_at)
{
	uint32_t hours;
	struct sketch sketch;
	int rc = day_get(a, day, &hours, &sketch);
	if (rc != SQLITE_OK)
		return rc;
	if (a->q->has_visitors)
		add_visitors(a, day, &sketch, visitor_at);
	if (!spans || !hours)
		return SQLITE_OK;
	rc = add_one(a, spans, CELL_DAY, day * DAY_MS);
	for (int64_t hour = 0; rc == SQLITE_OK && hour < 24; hour++)
		if (hours >> hour & 1) {
			int64_t hour_ms = day * DAY_MS + hour * HOUR_MS;
			rc = add_one(a, spans, CELL_HOUR, hour_ms);
			for (int64_t ms = hour_ms; rc == SQLITE_OK && ms < hour_ms + HOUR_MS; ms += MINUTE_MS)
				rc = add_one(a, spans, CELL_MINUTE, ms);
		}
	return rc;
}

/* The first day from `day` on that has visits. A day may have buffered visits only. */
static int next_day(const struct stats_scan *a, int64_t day, size_t visitor_at, int64_t *ret)
{
	*ret = INT64_MAX;
	int rc = FIND(a->c, SQL_DAY_LINK_FROM, ret, 1, day);
	while (visitor_at < a->visitor_count && a->visitors[visitor_at].day < day)
		visitor_at++;
	if (visitor_at < a->visitor_count)
		*ret = MIN(*ret, a->visitors[visitor_at].day);
	return rc;
}

static int add_days(struct stats_scan *a, const struct cell_spans *spans)
{
	int64_t day = day_of(a->from_ms), last = day_of(a->to_ms - 1);
	size_t visitor_at = 0;
	bool is_sorted = true; /* nearly always */
	for (size_t i = 1; i < a->visitor_count; i++)
		is_sorted &= a->visitors[i].day >= a->visitors[i - 1].day;
	if (!is_sorted)
		qsort(a->visitors, a->visitor_count, sizeof(*a->visitors), visitor_compare);
	int rc = next_day(a, day, visitor_at, &day);
	while (rc == SQLITE_OK && day <= last)
		rc = add_day(a, spans, day, &visitor_at) ?: next_day(a, day + 1, visitor_at, &day);
	return rc;
}

static int add_all(struct stats_scan *a)
{
	int rc = a->q->has_visitors ? add_days(a, NULL) : SQLITE_OK;
	for (a->link = LINK_ORPHANS; rc == SQLITE_OK && a->link <= LINK_ALL; a->link++)
		for (int level = 0; rc == SQLITE_OK && level < CELL_LEVELS; level++)
			rc = add_common(a, level);
	return rc;
}

/* --- buffered visits --- */

static int add_buffered(void *arg, const struct buffered *v)
{
	struct stats_scan *a = arg;
	const struct visit_key *key = &v->key;
	if (a->q->link != 0 && key->link != a->q->link)
		return SQLITE_OK;
	int rc = LIKELY(tallies_know(&a->tallies, key->set)) ? SQLITE_OK : learn(a, key->set);
	if (rc == SQLITE_OK && key->time_ms >= a->from_ms && key->time_ms < a->to_ms)
		tallies_add(&a->tallies, key->set, 1, tallies_step(&a->tallies, key->time_ms));
	/* Visitors are counted by whole days, so also those outside the range. */
	if (rc != SQLITE_OK || !v->visitor || !a->q->has_visitors || !a->tallies.sets[key->set].wanted)
		return rc;
	if (!ARRAY_ROOM(a->visitors, a->visitor_cap, a->visitor_count + 1))
		return SQLITE_NOMEM;
	a->visitors[a->visitor_count++] = (struct visitor){.day = day_of(key->time_ms), .hash = v->visitor};
	return SQLITE_OK;
}

static int count_all(struct stats_scan *a)
{
	struct cell_spans spans;
	a->first_visit = INT64_MAX;
	return FIND(a->c, SQL_VISIT_FIRST, &a->first_visit, 1)
	       ?: db_last_id(a->c, SQL_SET_LAST, &a->set_last)
	       ?: buffer_each(a->c, add_buffered, a)
	       ?: (a->q->link == 0 ? add_all(a)
	                           : sqlite_spans_get(a->c, a->link, &spans) ?: add_days(a, &spans))
	       ?: db_code(tallies_finish(&a->tallies));
}

int sqlite_stats_get(struct sqlite_conn *c, struct stats_query *q)
{
	struct stats_scan a = {.c = c, .q = q, .link = (int64_t)q->link};
	int rc = db_code(tallies_begin(&a.tallies, q));
	a.from_ms = a.tallies.from_ms;
	a.to_ms = a.tallies.to_ms;
	if (rc == SQLITE_OK && a.from_ms < a.to_ms)
		rc = count_all(&a);
	tallies_release(&a.tallies);
	free(a.visitors);
	return rc;
}
