/*
 * A digest sorts all fresh visits by minute and link and writes each touched row once. Orphans have link 0
 * and so lie before the links of their minute: all of a minute's orphans, all its links together, and each
 * of its links are one run of visit numbers each.
 */
#include "sink/digest.h"
#include "sink/sketch.h"
#include "sink/sort.h"

#include <stdlib.h>

enum { BLOCK_BYTES_MAX = 3900 }; /* with the row's other columns it fits a page */

struct visit {
	int64_t time_ms;
	uint64_t link;
	uint32_t shape;
	uint32_t visitor;
	uint32_t details_at;
	uint8_t details_len;
	bool click;
};

/* Visits first .. end - 1, in sorted order, are of one link and one minute. */
struct group {
	int64_t minute_ms;
	uint64_t link;
	size_t first, end;
};

struct digest {
	struct sqlite_conn *c;
	struct visit *visits;
	size_t count, cap;
	struct buf details;
	struct sort_item *items, *room; /* visits in order */
	struct group *groups;
	size_t group_count;
	uint32_t *tallies; /* by shape; all 0 between uses */
	uint32_t *touched; /* shapes whose tally is not 0 */
	uint64_t shape_last;
	uint64_t number_first; /* the number of the first visit */
	struct counts shapes;
	struct runs runs;
	struct buf scratch;
};

static void digest_release(struct digest *d)
{
	free(d->visits);
	free(d->items);
	free(d->room);
	free(d->groups);
	free(d->tallies);
	free(d->touched);
	buf_release(&d->details);
	buf_release(&d->scratch);
	counts_release(&d->shapes);
	runs_release(&d->runs);
}

static const struct visit *nth(const struct digest *d, size_t i)
{
	return &d->visits[d->items[i].index];
}

/* --- reading --- */

static int visits_room(struct digest *d, size_t more)
{
	if (d->count + more <= d->cap)
		return SQLITE_OK;
	size_t cap = MAX(d->cap * 2, d->count + more);
	struct visit *larger = reallocarray(d->visits, cap, sizeof(*larger));
	if (!larger)
		return SQLITE_NOMEM;
	d->visits = larger;
	d->cap = cap;
	return SQLITE_OK;
}

static int read_row(struct digest *d, const struct query *q)
{
	size_t count = (size_t)sqlite3_column_int64(q->stmt, 0);
	struct str keys = column_blob(q, 1), visitors = column_blob(q, 2), details = column_blob(q, 3);
	struct blob_reader k = blob_reader_of(keys.ptr, keys.len);
	struct blob_reader more = blob_reader_of(details.ptr, details.len);
	struct keys_state state = {0};
	if (visitors.len != count * sizeof(uint32_t) || d->details.len + details.len > UINT32_MAX)
		return SQLITE_CORRUPT;
	int rc = visits_room(d, count);
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++) {
		struct visit_key key;
		const uint8_t *from = more.at;
		visit_key_get(&k, &state, &key);
		visit_details_skip(&more);
		struct visit *v = &d->visits[d->count++];
		*v = (struct visit){
		    .time_ms = key.time_ms,
		    .link = key.link,
		    .shape = key.shape,
		    .details_at = (uint32_t)(d->details.len + (size_t)((const char *)from - details.ptr)),
		    .details_len = (uint8_t)(more.at - from),
		    .click = key.click};
		memcpy(&v->visitor, visitors.ptr + i * sizeof(uint32_t), sizeof(uint32_t));
		if (key.shape > d->shape_last)
			return SQLITE_CORRUPT;
	}
	buf_str(&d->details, details);
	if (k.bad || more.bad)
		return SQLITE_CORRUPT;
	return d->details.failed ? SQLITE_NOMEM : rc;
}

static int read_fresh(struct digest *d)
{
	CLEANUP(query_end) struct query q = query_begin(d->c, SQL_FRESH_ALL);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		int r = read_row(d, &q);
		if (r != SQLITE_OK)
			return r;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* --- blocks --- */

struct block {
	struct buf keys, details;
	struct keys_state state;
	uint64_t first, count;
	int64_t newest_ms;
};

static void block_release(struct block *b)
{
	buf_release(&b->keys);
	buf_release(&b->details);
}

static int block_write(struct digest *d, struct block *b)
{
	if (b->keys.failed || b->details.failed)
		return SQLITE_NOMEM;
	CLEANUP(query_end) struct query q = query_begin(d->c, SQL_VISIT_INSERT);
	query_int(&q, (int64_t)b->first);
	query_int(&q, (int64_t)b->count);
	query_int(&q, b->newest_ms);
	query_blob(&q, b->keys.data, b->keys.len);
	query_blob(&q, b->details.data, b->details.len);
	int rc = query_run(&q);
	b->first += b->count;
	b->count = b->keys.len = b->details.len = 0;
	b->state = (struct keys_state){0};
	return rc;
}

static void block_add(const struct digest *d, struct block *b, const struct visit *v)
{
	uint8_t *key = (uint8_t *)buf_reserve(&b->keys, KEY_BYTES_MAX);
	if (!key)
		return;
	struct visit_key k = {.time_ms = v->time_ms, .link = v->link, .shape = v->shape, .click = v->click};
	b->keys.len += (size_t)(visit_key_put(key, &b->state, &k) - key);
	buf_append(&b->details, d->details.data + v->details_at, v->details_len);
	b->newest_ms = b->count == 0 ? v->time_ms : MAX(b->newest_ms, v->time_ms);
	b->count++;
}

static int write_blocks(struct digest *d)
{
	CLEANUP(block_release) struct block b = {.first = d->number_first};
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < d->count; i++) {
		block_add(d, &b, nth(d, i));
		if (b.keys.len + b.details.len > BLOCK_BYTES_MAX - KEY_BYTES_MAX - DETAILS_BYTES_MAX)
			rc = block_write(d, &b);
	}
	if (rc == SQLITE_OK && b.count > 0)
		rc = block_write(d, &b);
	return rc;
}

/* --- cells --- */

static int cell_read(struct sqlite_conn *c, int64_t level_key, int64_t start_ms, int64_t link,
                     struct counts *shapes, struct runs *runs)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CELL_GET);
	query_int(&q, level_key);
	query_int(&q, start_ms);
	query_int(&q, link);
	bool found;
	int rc = query_find(&q, &found);
	if (rc != SQLITE_OK || !found)
		return rc;
	struct str blob = column_blob(&q, 0);
	int r = counts_add_blob(shapes, blob.ptr, blob.len);
	if (r == 0) {
		blob = column_blob(&q, 1);
		r = runs_add_blob(runs, blob.ptr, blob.len, 0);
	}
	return layout_sql_code(r);
}

int digest_cell_add(struct sqlite_conn *c, int64_t level_key, int64_t start_ms, int64_t link,
                    struct counts *shapes, struct runs *runs, uint64_t first_visit, struct buf *scratch)
{
	size_t new_count = runs->count;
	int rc = cell_read(c, level_key, start_ms, link, shapes, runs);
	if (rc == SQLITE_OK && runs->count > new_count) /* what is new is later, as a rule */
		rc = layout_sql_code(runs_rotate(runs, new_count));
	if (rc != SQLITE_OK)
		return rc;
	scratch->len = 0;
	runs_settle(runs, first_visit);
	counts_write(shapes, scratch);
	size_t shapes_len = scratch->len;
	runs_write(runs, scratch);
	if (scratch->failed)
		return SQLITE_NOMEM;
	CLEANUP(query_end) struct query q = query_begin(c, SQL_CELL_PUT);
	query_int(&q, level_key);
	query_int(&q, start_ms);
	query_int(&q, link);
	query_int(&q, (int64_t)counts_sum(shapes));
	query_blob(&q, scratch->data, shapes_len);
	/* An empty list must not be taken for NULL. */
	query_blob(&q, scratch->data + shapes_len, scratch->len - shapes_len);
	return query_run(&q);
}

static int shape_compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

/* How many visits of each shape, into d->shapes. */
static int count_shapes(struct digest *d, size_t first, size_t end)
{
	size_t touched = 0;
	for (size_t i = first; i < end; i++) {
		uint32_t shape = nth(d, i)->shape;
		if (d->tallies[shape]++ == 0)
			d->touched[touched++] = shape;
	}
	if (touched > 1)
		qsort(d->touched, touched, sizeof(*d->touched), shape_compare);
	d->shapes.count = 0;
	int r = 0;
	for (size_t i = 0; i < touched; i++) {
		if (r == 0)
			r = counts_append(&d->shapes, d->touched[i], d->tallies[d->touched[i]]);
		d->tallies[d->touched[i]] = 0;
	}
	return layout_sql_code(r);
}

static int count_cell(struct digest *d, int64_t minute_ms, int64_t link, size_t first, size_t end)
{
	if (first == end)
		return SQLITE_OK;
	int rc = count_shapes(d, first, end);
	d->runs.count = 0;
	if (rc == SQLITE_OK)
		rc = layout_sql_code(runs_append(
		    &d->runs, (struct run){.first = d->number_first + first, .count = end - first}));
	if (rc == SQLITE_OK)
		rc = digest_cell_add(d->c, cell_level_key(CELL_MINUTE, link), minute_ms, link, &d->shapes,
		                     &d->runs, 0, &d->scratch);
	return rc;
}

/* Groups from .. to - 1 are of one minute. */
static int count_minute(struct digest *d, size_t from, size_t to)
{
	const struct group *g = d->groups;
	int64_t minute_ms = g[from].minute_ms;
	size_t links = g[from].link == 0 ? from + 1 : from;
	int rc = SQLITE_OK;
	if (links > from)
		rc = count_cell(d, minute_ms, LINK_ORPHANS, g[from].first, g[from].end);
	if (rc == SQLITE_OK && links < to)
		rc = count_cell(d, minute_ms, LINK_ALL, g[links].first, g[to - 1].end);
	for (size_t i = links; rc == SQLITE_OK && i < to; i++)
		rc = count_cell(d, minute_ms, (int64_t)g[i].link, g[i].first, g[i].end);
	return rc;
}

static int count_cells(struct digest *d)
{
	int rc = SQLITE_OK;
	for (size_t from = 0, to; rc == SQLITE_OK && from < d->group_count; from = to) {
		for (to = from + 1;
		     to < d->group_count && d->groups[to].minute_ms == d->groups[from].minute_ms;)
			to++;
		rc = count_minute(d, from, to);
	}
	return rc;
}

/* --- days and totals --- */

struct day {
	int64_t day;
	uint64_t link;
	uint64_t clicks, clicks_before;
	uint32_t hours;
	bool found, changed; /* in the file; the sketch */
	struct sketch visitors;
};

static int day_read(struct digest *d, struct day *day)
{
	CLEANUP(query_end) struct query q = query_begin(d->c, SQL_DAY_LINK_GET);
	query_int(&q, day->day);
	query_int(&q, (int64_t)day->link);
	int rc = query_find(&q, &day->found);
	sketch_init(&day->visitors);
	if (rc != SQLITE_OK || !day->found)
		return rc;
	struct str sketch = column_blob(&q, 2);
	day->clicks_before = (uint64_t)sqlite3_column_int64(q.stmt, 0);
	day->hours = (uint32_t)sqlite3_column_int64(q.stmt, 1);
	return sketch_read(&day->visitors, sketch.ptr, sketch.len) ? SQLITE_OK : SQLITE_CORRUPT;
}

static void day_count(const struct digest *d, struct day *day, const struct group *g)
{
	day->hours |= 1U << ((g->minute_ms - day->day * DAY_MS) / HOUR_MS);
	for (size_t i = g->first; i < g->end; i++) {
		const struct visit *v = nth(d, i);
		day->clicks += v->click;
		if (v->visitor && sketch_add(&day->visitors, v->visitor))
			day->changed = true;
	}
}

static int day_write(struct digest *d, const struct day *day)
{
	uint8_t sketch[SKETCH_BYTES_MAX];
	bool whole = !day->found || day->changed;
	CLEANUP(query_end) struct query q = query_begin(d->c, whole ? SQL_DAY_LINK_PUT : SQL_DAY_LINK_COUNT);
	query_int(&q, day->day);
	query_int(&q, (int64_t)day->link);
	query_int(&q, (int64_t)(day->clicks_before + day->clicks));
	query_int(&q, day->hours);
	if (whole)
		query_blob(&q, sketch, sketch_write(&day->visitors, sketch));
	return query_run(&q);
}

static int total_add(struct digest *d, uint64_t link, uint64_t clicks)
{
	CLEANUP(query_end) struct query q = query_begin(d->c, SQL_TOTAL_ADD);
	query_int(&q, (int64_t)link);
	query_int(&q, (int64_t)clicks);
	return query_run(&q);
}

/* Items from .. to - 1 are groups of one day and link. */
static int count_day(struct digest *d, const struct sort_item *items, size_t from, size_t to)
{
	struct day day = {.link = items[from].minor};
	day.day = day_of(d->groups[items[from].index].minute_ms);
	int rc = day_read(d, &day);
	if (rc != SQLITE_OK)
		return rc;
	for (size_t i = from; i < to; i++)
		day_count(d, &day, &d->groups[items[i].index]);
	rc = day_write(d, &day);
	if (rc == SQLITE_OK && day.clicks > 0)
		rc = total_add(d, day.link, day.clicks);
	return rc;
}

static int count_days(struct digest *d)
{
	struct sort_item *items = malloc(MAX(d->group_count, 1) * 2 * sizeof(*items));
	if (!items)
		return SQLITE_NOMEM;
	size_t count = d->group_count;
	for (size_t i = 0; i < count; i++) {
		const struct group *g = &d->groups[i];
		items[i] = (struct sort_item){.major = (uint64_t)day_of(g->minute_ms) ^ 1ULL << 63,
		                              .minor = g->link ? g->link : (uint64_t)LINK_ORPHANS,
		                              .index = (uint32_t)i};
	}
	sort_items(items, items + count, count);
	int rc = SQLITE_OK;
	for (size_t from = 0, to; rc == SQLITE_OK && from < count; from = to) {
		for (to = from + 1; to < count && items[to].major == items[from].major &&
		                    items[to].minor == items[from].minor;)
			to++;
		rc = count_day(d, items, from, to);
	}
	free(items);
	return rc;
}

/* --- all together --- */

static int sort_visits(struct digest *d)
{
	d->items = malloc(d->count * sizeof(*d->items));
	d->room = malloc(d->count * sizeof(*d->room));
	d->tallies = calloc((size_t)d->shape_last + 1, sizeof(*d->tallies));
	d->touched = malloc(((size_t)d->shape_last + 1) * sizeof(*d->touched));
	if (!d->items || !d->room || !d->tallies || !d->touched)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < d->count; i++) {
		int64_t minute_ms = time_floor(d->visits[i].time_ms, MINUTE_MS);
		d->items[i] = (struct sort_item){.major = (uint64_t)minute_ms ^ 1ULL << 63,
		                                 .minor = d->visits[i].link,
		                                 .index = (uint32_t)i};
	}
	sort_items(d->items, d->room, d->count);
	return SQLITE_OK;
}

static int find_groups(struct digest *d)
{
	size_t count = 0;
	for (size_t i = 0; i < d->count; i++)
		count += i == 0 || d->items[i].major != d->items[i - 1].major ||
		         d->items[i].minor != d->items[i - 1].minor;
	d->groups = malloc(count * sizeof(*d->groups));
	if (!d->groups)
		return SQLITE_NOMEM;
	for (size_t i = 0, end; i < d->count; i = end) {
		for (end = i + 1; end < d->count && d->items[i].major == d->items[end].major &&
		                  d->items[i].minor == d->items[end].minor;)
			end++;
		d->groups[d->group_count++] = (struct group){
		    .minute_ms = (int64_t)(d->items[i].major ^ 1ULL << 63),
		    .link = d->items[i].minor,
		    .first = i,
		    .end = end};
	}
	return SQLITE_OK;
}

static int number_visits(struct digest *d)
{
	struct book book;
	int rc = layout_book_get(d->c, &book);
	if (rc != SQLITE_OK)
		return rc;
	d->number_first = (uint64_t)book.next_visit;
	CLEANUP(query_end) struct query q = query_begin(d->c, SQL_BOOK_NEXT_VISIT);
	query_int(&q, book.next_visit + (int64_t)d->count);
	return query_run(&q);
}

int digest_run(struct sqlite_conn *c)
{
	CLEANUP(digest_release) struct digest d = {.c = c};
	int rc = layout_last_get(c, SQL_SHAPE_LAST, &d.shape_last);
	if (rc == SQLITE_OK)
		rc = read_fresh(&d);
	if (rc != SQLITE_OK || d.count == 0)
		return rc;
	rc = number_visits(&d);
	if (rc == SQLITE_OK)
		rc = sort_visits(&d);
	if (rc == SQLITE_OK)
		rc = find_groups(&d);
	if (rc == SQLITE_OK)
		rc = write_blocks(&d);
	if (rc == SQLITE_OK)
		rc = count_cells(&d);
	if (rc == SQLITE_OK)
		rc = count_days(&d);
	if (rc == SQLITE_OK)
		rc = sqlite_conn_run(c, SQL_FRESH_DELETE);
	return rc;
}

/* --- for questions --- */

static int each_of_row(const struct query *q,
                       int (*each)(void *arg, const struct visit_key *key, uint32_t visitor), void *arg)
{
	size_t count = (size_t)sqlite3_column_int64(q->stmt, 0);
	struct str keys = column_blob(q, 1), visitors = column_blob(q, 2);
	struct blob_reader k = blob_reader_of(keys.ptr, keys.len);
	struct keys_state state = {0};
	if (visitors.len != count * sizeof(uint32_t))
		return SQLITE_CORRUPT;
	for (size_t i = 0; i < count; i++) {
		struct visit_key key;
		uint32_t visitor;
		visit_key_get(&k, &state, &key);
		memcpy(&visitor, visitors.ptr + i * sizeof(visitor), sizeof(visitor));
		int rc = k.bad ? SQLITE_CORRUPT : each(arg, &key, visitor);
		if (rc != SQLITE_OK)
			return rc;
	}
	return SQLITE_OK;
}

int digest_fresh_each(struct sqlite_conn *c,
                      int (*each)(void *arg, const struct visit_key *key, uint32_t visitor), void *arg)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_FRESH_KEYS);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		int r = each_of_row(&q, each, arg);
		if (r != SQLITE_OK)
			return r;
	}
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}
