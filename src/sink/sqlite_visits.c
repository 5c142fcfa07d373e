/*
 * Lists single visits of a link: newest minute first, and within a minute the last recorded first. Runs of
 * cells, which keep their minutes when cells are folded, and the buffer say which visits a minute has. Visits
 * of a minute are ranked in the order of recording. Folding and compaction do not change a rank, and new
 * visits get higher ones. So a cursor is a minute and a rank, and a walk over the pages meets each visit
 * once.
 *
 * A page's visits are picked first and filled in afterwards, so that texts are read only for picked ones.
 */
#include "base/grow.h"
#include "sink/sqlite_sink.h"

#include <stdlib.h>

enum {
	BLOCK_VISITS_MAX = 512, /* more than a block can hold */
};

struct buffered_visit {
	int64_t time_ms;
	uint64_t ordinal; /* in the buffer */
};

struct pick {
	bool is_buffered;
	uint64_t number; /* the visit's id, or its ordinal in the buffer */
	int64_t minute_ms;
	uint64_t rank;
	struct visit_key key;
	struct visit_details details;
};

struct listing {
	struct sqlite_conn *c;
	const struct visits_query *q;
	int64_t link; /* of its cells */
	struct page_cursor from;
	struct cell_spans spans;
	int64_t first_visit; /* the oldest visit that has a row */

	struct buffered_visit *buffer; /* of this link, by minute and ordinal */
	size_t buffer_count, buffer_cap;

	struct runs day;  /* of the day's cell */
	struct runs hour; /* of all cells of the current hour */

	struct pick *picks;
	size_t pick_count, pick_cap;

	/* The block read last. */
	uint64_t block_first;
	size_t block_count;
	struct visit_key keys[BLOCK_VISITS_MAX];
	struct visit_details details[BLOCK_VISITS_MAX];
};

/* --- buffered visits --- */

static int buffer_collect(void *arg, const struct buffered *v)
{
	struct listing *l = arg;
	const struct visit_key *key = &v->key;
	if (key->link != l->q->link || key->time_ms >= l->q->to_ms ||
	    time_floor(key->time_ms, MINUTE_MS) + MINUTE_MS <= l->q->from_ms)
		return SQLITE_OK; /* a minute that the start of the range cuts is kept whole, for the ranks */
	if (!ARRAY_ROOM(l->buffer, l->buffer_cap, l->buffer_count + 1))
		return SQLITE_NOMEM;
	l->buffer[l->buffer_count++] = (struct buffered_visit){.time_ms = key->time_ms,
	                                                       .ordinal = v->ordinal};
	return SQLITE_OK;
}

static int buffer_compare(const void *a, const void *b)
{
	const struct buffered_visit *x = a, *y = b;
	int64_t m = time_floor(x->time_ms, MINUTE_MS), n = time_floor(y->time_ms, MINUTE_MS);
	if (m != n)
		return m < n ? -1 : 1;
	return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

/* How many are before `ms`, the start of a minute. */
static size_t buffer_before(const struct listing *l, int64_t ms)
{
	size_t low = 0, high = l->buffer_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (l->buffer[middle].time_ms < ms)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* --- blocks --- */

static int block_decode(struct listing *l, const struct query *q)
{
	struct blob_reader k = blob_reader_of(column_blob(q, 2)), d = blob_reader_of(column_blob(q, 3));
	struct keys_state state = {0};
	int64_t count = sqlite3_column_int64(q->stmt, 1);
	if (count <= 0 || count > BLOCK_VISITS_MAX)
		return SQLITE_CORRUPT;
	for (int64_t i = 0; i < count; i++) {
		visit_key_get(&k, &state, &l->keys[i]);
		visit_details_get(&d, &l->details[i]);
	}
	if (k.bad || d.bad)
		return SQLITE_CORRUPT;
	l->block_first = (uint64_t)sqlite3_column_int64(q->stmt, 0);
	l->block_count = (size_t)count;
	return SQLITE_OK;
}

static int block_with(struct listing *l, uint64_t number)
{
	if (number >= l->block_first && number - l->block_first < l->block_count)
		return SQLITE_OK;
	l->block_count = 0;
	CLEANUP(query_end) struct query q = QUERY(l->c, SQL_VISIT_AT, number);
	bool found;
	int rc = query_find(&q, &found) ?: (found ? block_decode(l, &q) : SQLITE_CORRUPT);
	if (rc == SQLITE_OK && number - l->block_first >= l->block_count)
		rc = SQLITE_CORRUPT;
	return rc;
}

/* --- picking --- */

/* One more than the page holds: so there is another page. */
static bool is_full(const struct listing *l)
{
	return l->pick_count > l->q->limit;
}

static bool is_inside(const struct listing *l, int64_t time_ms)
{
	return time_ms >= l->q->from_ms && time_ms < l->q->to_ms;
}

static int pick_add(struct listing *l, struct pick pick)
{
	if (!ARRAY_ROOM(l->picks, l->pick_cap, l->pick_count + 1))
		return SQLITE_NOMEM;
	l->picks[l->pick_count++] = pick;
	return SQLITE_OK;
}

static int pick_row(struct listing *l, uint64_t number, int64_t minute_ms, uint64_t rank)
{
	int rc = block_with(l, number);
	if (rc != SQLITE_OK)
		return rc;
	size_t at = number - l->block_first;
	if (!is_inside(l, l->keys[at].time_ms))
		return SQLITE_OK;
	return pick_add(l, (struct pick){.number = number,
	                                 .minute_ms = minute_ms,
	                                 .rank = rank,
	                                 .key = l->keys[at],
	                                 .details = l->details[at]});
}

/* The minute's runs are first .. end - 1 of l->hour. Picks newest first, below the cursor's rank. */
static int pick_minute(struct listing *l, int64_t minute_ms, size_t first, size_t end)
{
	if (minute_ms > l->from.minute_ms)
		return SQLITE_OK;
	uint64_t below = minute_ms == l->from.minute_ms ? l->from.rank : UINT64_MAX, rank = 0;
	for (size_t i = first; i < end; i++)
		rank += l->hour.items[i].count;
	size_t buffer_first = buffer_before(l, minute_ms),
	       buffer_end = buffer_before(l, minute_ms + MINUTE_MS);
	rank += buffer_end - buffer_first;
	int rc = SQLITE_OK;
	for (size_t i = buffer_end; rc == SQLITE_OK && i > buffer_first && !is_full(l); i--)
		if (--rank < below && is_inside(l, l->buffer[i - 1].time_ms))
			rc = pick_add(l, (struct pick){.is_buffered = true,
			                               .number = l->buffer[i - 1].ordinal,
			                               .minute_ms = minute_ms,
			                               .rank = rank});
	for (size_t i = end; rc == SQLITE_OK && i > first && !is_full(l); i--) {
		const struct run *run = &l->hour.items[i - 1];
		uint64_t run_end = run->first + run->count, rest = rank - run->count;
		uint64_t kept = MAX(run->first, (uint64_t)l->first_visit); /* earlier rows have expired */
		for (uint64_t n = run_end; rc == SQLITE_OK && n > kept && !is_full(l); n--)
			if (--rank < below)
				rc = pick_row(l, n - 1, minute_ms, rank);
		rank = rest;
	}
	return rc;
}

static int runs_of_cell(struct listing *l, enum cell_level level, int64_t start_ms, uint64_t minutes,
                        struct runs *ret)
{
	if (!sqlite_cell_may_be(&l->spans, level, start_ms))
		return SQLITE_OK;
	CLEANUP(query_end)
	struct query q = QUERY(l->c, SQL_CELL_GET, cell_level_key(level, l->link), start_ms, l->link);
	bool found;
	int rc = query_find(&q, &found);
	if (rc != SQLITE_OK || !found)
		return rc;
	return db_code(runs_add_blob(ret, column_blob(&q, 1), minutes));
}

/* Collects the runs of the hour from cells of all levels, with minutes counted from its start. */
static int runs_of_hour(struct listing *l, int hour, int64_t hour_ms)
{
	l->hour.count = 0;
	int r = 0;
	for (size_t i = 0; r == 0 && i < l->day.count; i++) {
		struct run run = l->day.items[i];
		if (run.minute / 60 != (uint64_t)hour)
			continue;
		run.minute %= 60;
		r = runs_append(&l->hour, run);
	}
	int rc = db_code(r) ?: runs_of_cell(l, CELL_HOUR, hour_ms, 0, &l->hour);
	for (uint64_t m = 0; rc == SQLITE_OK && m < 60; m++)
		rc = runs_of_cell(l, CELL_MINUTE, hour_ms + (int64_t)m * MINUTE_MS, m, &l->hour);
	runs_normalize(&l->hour, 0);
	return rc;
}

static int pick_day(struct listing *l, int64_t day)
{
	int64_t numbers[2] = {0}; /* clicks, hours */
	int64_t day_ms = day * DAY_MS;
	l->day.count = 0;
	int rc = FIND(l->c, SQL_DAY_LINK_GET, numbers, 2, day, l->link);
	uint32_t hours = (uint32_t)numbers[1];
	if (rc == SQLITE_OK && hours)
		rc = runs_of_cell(l, CELL_DAY, day_ms, 0, &l->day);
	for (int hour = 23; rc == SQLITE_OK && hour >= 0 && !is_full(l); hour--) {
		int64_t hour_ms = day_ms + hour * HOUR_MS;
		bool buffer = buffer_before(l, hour_ms) < buffer_before(l, hour_ms + HOUR_MS);
		if (hour_ms > l->from.minute_ms || hour_ms >= l->q->to_ms ||
		    hour_ms + HOUR_MS <= l->q->from_ms || !(buffer || hours >> hour & 1))
			continue;
		l->hour.count = 0;
		if (hours >> hour & 1)
			rc = runs_of_hour(l, hour, hour_ms);
		size_t end = l->hour.count;
		for (int64_t m = 59; rc == SQLITE_OK && m >= 0 && !is_full(l); m--) {
			size_t first = end;
			while (first > 0 && l->hour.items[first - 1].minute == (uint64_t)m)
				first--;
			rc = pick_minute(l, hour_ms + m * MINUTE_MS, first, end);
			end = first;
		}
	}
	return rc;
}

/* The last day up to `day` that has visits. */
static int day_before(const struct listing *l, int64_t day, int64_t *ret)
{
	*ret = INT64_MIN;
	int rc = FIND(l->c, SQL_DAY_LINK_UP_TO, ret, 1, day);
	size_t buffer = buffer_before(l, (day + 1) * DAY_MS);
	if (buffer > 0)
		*ret = MAX(*ret, day_of(l->buffer[buffer - 1].time_ms));
	return rc;
}

static int pick_all(struct listing *l)
{
	const int64_t limit_ms = 1LL << 52;
	if (l->q->from_ms >= l->q->to_ms)
		return SQLITE_OK;
	int64_t first = day_of(MAX(l->q->from_ms, -limit_ms));
	int64_t day = day_of(MIN(MIN(l->from.minute_ms, l->q->to_ms - 1), limit_ms));
	int rc = day_before(l, day, &day);
	while (rc == SQLITE_OK && day >= first && !is_full(l))
		rc = pick_day(l, day) ?: day_before(l, day - 1, &day);
	return rc;
}

/* --- filling in --- */

static int pick_compare(const void *a, const void *b)
{
	const struct pick *const *x = a, *const *y = b;
	return (*x)->number < (*y)->number ? -1 : (*x)->number > (*y)->number;
}

/* Fills the picks that are in a row of the buffer, whose first visit is `ordinal`; `at` is the next pick. */
static int fill_from_row(const struct query *q, struct pick **picks, size_t count, size_t *at,
                         uint64_t ordinal)
{
	uint64_t end = ordinal + (uint64_t)sqlite3_column_int64(q->stmt, 0);
	if (*at == count || picks[*at]->number >= end)
		return SQLITE_OK;
	struct blob_reader k = blob_reader_of(column_blob(q, 1)), d = blob_reader_of(column_blob(q, 3));
	struct keys_state state = {0};
	for (; ordinal < end && *at < count; ordinal++) {
		struct visit_key key;
		struct visit_details more;
		visit_key_get(&k, &state, &key);
		visit_details_get(&d, &more);
		if (picks[*at]->number == ordinal) {
			picks[*at]->key = key;
			picks[*at]->details = more;
			(*at)++;
		}
	}
	return k.bad || d.bad ? SQLITE_CORRUPT : SQLITE_OK;
}

static int fill_sorted(struct listing *l, struct pick **picks, size_t count)
{
	CLEANUP(query_end) struct query q = query_begin(l->c, SQL_BUFFER_ALL);
	uint64_t ordinal = 0;
	size_t at = 0;
	int rc = SQLITE_OK;
	while (at < count && (rc = query_step(&q)) == SQLITE_ROW) {
		rc = fill_from_row(&q, picks, count, &at, ordinal);
		if (rc != SQLITE_OK)
			return rc;
		ordinal += (uint64_t)sqlite3_column_int64(q.stmt, 0);
	}
	return rc == SQLITE_DONE || at == count ? SQLITE_OK : rc;
}

static int fill_buffered(struct listing *l)
{
	size_t count = 0;
	struct pick **picks = malloc(MAX(l->pick_count, 1) * sizeof(struct pick *));
	if (!picks)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < l->pick_count; i++)
		if (l->picks[i].is_buffered)
			picks[count++] = &l->picks[i];
	int rc = SQLITE_OK;
	if (count > 0) {
		qsort(picks, count, sizeof(struct pick *), pick_compare);
		rc = fill_sorted(l, picks, count);
	}
	free(picks);
	return rc;
}

/* A text that was swept reads as absent. */
static int text_get(struct listing *l, uint64_t id, struct str *ret)
{
	*ret = STR_NULL;
	if (id == 0)
		return SQLITE_OK;
	CLEANUP(query_end) struct query q = QUERY(l->c, SQL_TEXT_BY_ID, id);
	bool found;
	int rc = query_find(&q, &found);
	if (rc == SQLITE_OK && found && !db_column_str(&q, 0, l->q->arena, ret))
		rc = SQLITE_NOMEM;
	return rc;
}

static int visit_fill(struct listing *l, const struct pick *p, struct stats_visit *ret)
{
	struct str place;
	*ret = (struct stats_visit){.time_ms = p->key.time_ms, .link = p->key.link};
	int rc = sqlite_set_get(l->c, p->key.set, l->q->arena, &ret->set)
	         ?: text_get(l, p->details.agent, &ret->agent)
	         ?: text_get(l, p->details.referrer, &ret->referrer)
	         ?: text_get(l, p->details.path, &ret->path)
	         ?: text_get(l, p->details.place, &place);
	if (rc != SQLITE_OK)
		return rc;
	page_place(place, ret);
	ret->address = page_address(l->q->arena, p->details.address, p->details.address_len);
	return p->details.address_len > 0 && !ret->address.ptr ? SQLITE_NOMEM : SQLITE_OK;
}

static int page_fill(struct listing *l, struct visits_query *q, const uint8_t *key)
{
	size_t count = MIN(l->pick_count, q->limit);
	struct str next = STR_NULL;
	struct stats_visit *visits = arena_alloc(q->arena, MAX(count, 1) * sizeof(*visits));
	int rc = visits ? SQLITE_OK : SQLITE_NOMEM;
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++)
		rc = visit_fill(l, &l->picks[i], &visits[i]);
	if (rc == SQLITE_OK && l->pick_count > count) {
		const struct pick *last = &l->picks[count - 1];
		next = page_cursor_text(
		    q->arena, key, q->link,
		    (struct page_cursor){.minute_ms = last->minute_ms, .rank = last->rank});
		rc = next.ptr ? SQLITE_OK : SQLITE_NOMEM;
	}
	if (rc != SQLITE_OK)
		return rc;
	q->visits = visits;
	q->count = count;
	q->next = next;
	return SQLITE_OK;
}

int sqlite_visits_get(struct sqlite_conn *c, struct visits_query *q, const uint8_t *key,
                      const struct page_cursor *from)
{
	struct listing *l = calloc(1, sizeof(*l));
	if (!l)
		return SQLITE_NOMEM;
	l->c = c;
	l->q = q;
	l->link = q->link ? (int64_t)q->link : LINK_ORPHANS;
	l->from = *from;
	l->first_visit = INT64_MAX;
	int rc = sqlite_spans_get(c, l->link, &l->spans)
	         ?: FIND(c, SQL_VISIT_FIRST, &l->first_visit, 1)
	         ?: buffer_each(c, buffer_collect, l);
	if (rc == SQLITE_OK) {
		if (l->buffer_count > 0)
			qsort(l->buffer, l->buffer_count, sizeof(*l->buffer), buffer_compare);
		rc = pick_all(l);
	}
	if (rc == SQLITE_OK)
		rc = fill_buffered(l);
	if (rc == SQLITE_OK)
		rc = page_fill(l, q, key);
	runs_release(&l->day);
	runs_release(&l->hour);
	free(l->buffer);
	free(l->picks);
	free(l);
	return rc;
}
