/*
 * Compaction moves buffered visits into blocks, and adds them to cells, days and totals.
 *
 * A step sorts its visits by minute and link, and writes each affected row once. Orphans have link 0, so they
 * come before the links of their minute. Thus all orphans of a minute, all its other visits, and the visits
 * of each link have consecutive ids: each cell gets one run.
 *
 * A step takes the visits of some neighbouring links. So all steps together write hardly more pages than a
 * single one would.
 */
#include "base/grow.h"
#include "sink/day_sketches.h"
#include "sink/sort.h"
#include "sink/sqlite_sink.h"

#include <stdlib.h>

enum {
	BLOCK_BYTES_MAX = 3900, /* with the row's other columns it fits a page */
	SAMPLE_EVERY = 64,      /* every so many visits are sampled for the distribution of links */
};

struct visit {
	int64_t time_ms;
	uint64_t link;
	uint32_t set;
	uint32_t visitor;
	uint32_t details_at;
	uint8_t details_len;
	bool click;
};

/* The sorted visits first .. end - 1 are of one link and one minute. */
struct group {
	int64_t minute_ms;
	uint64_t link;
	size_t first, end;
};

enum set_is { SET_IS_UNKNOWN, SET_IS_PEOPLE, SET_IS_BOTS };

struct compaction {
	struct sqlite_conn *c;
	struct visit *visits;
	size_t count, cap;
	struct buf details;
	struct sort_item *items, *room; /* the sorted visits, and scratch */
	struct group *groups;
	size_t group_count;
	uint32_t *tallies;         /* by id of the dimension set; all 0 between uses */
	uint32_t *touched;         /* ids whose tally is not 0 */
	struct bot_sets *bot_sets; /* enum set_is, by id of the dimension set */
	uint64_t set_last;
	struct compaction_progress before; /* this step */
	uint64_t id_first;                 /* of the first visit */
	struct counts sets;
	struct runs runs;
	struct buf scratch;
	struct day_sketches visitors; /* of the day at hand */
};

static void compaction_release(struct compaction *d)
{
	free(d->visits);
	free(d->items);
	free(d->room);
	free(d->groups);
	free(d->tallies);
	free(d->touched);
	buf_release(&d->details);
	buf_release(&d->scratch);
	counts_release(&d->sets);
	runs_release(&d->runs);
}

static const struct visit *nth(const struct compaction *d, size_t i)
{
	return &d->visits[d->items[i].index];
}

/* --- reading --- */

static int read_row(struct compaction *d, const struct query *q)
{
	size_t count = (size_t)sqlite3_column_int64(q->stmt, 0);
	struct str visitors = column_blob(q, 2), details = column_blob(q, 3);
	struct blob_reader k = blob_reader_of(column_blob(q, 1)), more = blob_reader_of(details);
	struct keys_state state = {0};
	if (visitors.len != count * sizeof(uint32_t) || d->details.len + details.len > UINT32_MAX)
		return SQLITE_CORRUPT;
	if (!ARRAY_ROOM(d->visits, d->cap, d->count + count + 1))
		return SQLITE_NOMEM;
	for (size_t i = 0; i < count; i++) {
		struct visit_key key;
		const uint8_t *from = more.at;
		visit_key_get(&k, &state, &key);
		visit_details_skip(&more);
		if (key.link < (uint64_t)d->before.link)
			continue;
		struct visit *v = &d->visits[d->count++];
		*v = (struct visit){
		    .time_ms = key.time_ms,
		    .link = key.link,
		    .set = key.set,
		    .details_at = (uint32_t)(d->details.len + (size_t)((const char *)from - details.ptr)),
		    .details_len = (uint8_t)(more.at - from),
		    .click = key.click};
		memcpy(&v->visitor, visitors.ptr + i * sizeof(uint32_t), sizeof(uint32_t));
		if (key.set > d->set_last)
			return SQLITE_CORRUPT;
	}
	buf_str(&d->details, details);
	if (k.bad || more.bad)
		return SQLITE_CORRUPT;
	return d->details.failed ? SQLITE_NOMEM : SQLITE_OK;
}

static int read_buffered(struct compaction *d)
{
	CLEANUP(query_end) struct query q = query_begin(d->c, SQL_BUFFER_ALL);
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		if (sqlite3_column_int64(q.stmt, 4) > d->before.row)
			return SQLITE_OK;
		int r = read_row(d, &q);
		if (r != SQLITE_OK)
			return r;
	}
	return db_done(rc);
}

/* --- the visits of this step --- */

static int link_compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

/* Keeps the visits of this step. *ret_link is the first link of the next step; 0: there is none. */
static int select_visits(struct compaction *d, size_t visits_max, uint64_t *ret_link)
{
	*ret_link = 0;
	if (d->count <= visits_max + visits_max / 2)
		return SQLITE_OK;
	/* `end`: about `visits_max` visits are of smaller links, and at least one is. */
	size_t count = d->count / SAMPLE_EVERY;
	uint64_t smallest = UINT64_MAX;
	uint64_t *links = malloc(MAX(count, 1) * sizeof(*links));
	if (!links)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < count; i++)
		links[i] = d->visits[i * SAMPLE_EVERY].link;
	for (size_t i = 0; i < d->count; i++)
		smallest = MIN(smallest, d->visits[i].link);
	qsort(links, count, sizeof(*links), link_compare);
	size_t at = visits_max / SAMPLE_EVERY;
	uint64_t end = MAX(at < count ? links[at] : 0, smallest + 1);
	free(links);
	size_t kept = 0;
	for (size_t i = 0; i < d->count; i++)
		if (d->visits[i].link < end)
			d->visits[kept++] = d->visits[i];
	*ret_link = kept < d->count ? end : 0;
	d->count = kept;
	return SQLITE_OK;
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

static int block_write(struct compaction *d, struct block *b)
{
	if (b->keys.failed || b->details.failed)
		return SQLITE_NOMEM;
	CLEANUP(query_end) struct query q = QUERY(d->c, SQL_VISIT_INSERT, b->first, b->count, b->newest_ms);
	query_blob(&q, b->keys.data, b->keys.len);
	query_blob(&q, b->details.data, b->details.len);
	int rc = query_run(&q);
	b->first += b->count;
	b->count = b->keys.len = b->details.len = 0;
	b->state = (struct keys_state){0};
	return rc;
}

static void block_add(const struct compaction *d, struct block *b, const struct visit *v)
{
	uint8_t *key = (uint8_t *)buf_reserve(&b->keys, KEY_BYTES_MAX);
	if (!key)
		return;
	struct visit_key k = {.time_ms = v->time_ms, .link = v->link, .set = v->set, .click = v->click};
	b->keys.len += (size_t)(visit_key_put(key, &b->state, &k) - key);
	buf_append(&b->details, d->details.data + v->details_at, v->details_len);
	b->newest_ms = b->count == 0 ? v->time_ms : MAX(b->newest_ms, v->time_ms);
	b->count++;
}

static int write_blocks(struct compaction *d)
{
	CLEANUP(block_release) struct block b = {.first = d->id_first};
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
                     struct counts *sets, struct runs *runs)
{
	CLEANUP(query_end) struct query q = QUERY(c, SQL_CELL_GET, level_key, start_ms, link);
	bool found;
	int rc = query_find(&q, &found);
	if (rc != SQLITE_OK || !found)
		return rc;
	return db_code(counts_add_blob(sets, column_blob(&q, 0))
	                   ?: runs_add_blob(runs, column_blob(&q, 1), 0));
}

int compaction_cell_add(struct sqlite_conn *c, int64_t level_key, int64_t start_ms, int64_t link,
                        struct counts *sets, struct runs *runs, uint64_t first_visit, struct buf *scratch)
{
	size_t new_count = runs->count;
	int rc = cell_read(c, level_key, start_ms, link, sets, runs);
	if (rc == SQLITE_OK && runs->count > new_count) /* new runs are usually later than old ones */
		rc = db_code(runs_rotate(runs, new_count));
	if (rc != SQLITE_OK)
		return rc;
	scratch->len = 0;
	runs_normalize(runs, first_visit);
	counts_write(sets, scratch);
	size_t sets_len = scratch->len;
	runs_write(runs, scratch);
	if (scratch->failed)
		return SQLITE_NOMEM;
	CLEANUP(query_end)
	struct query q = QUERY(c, SQL_CELL_PUT, level_key, start_ms, link, counts_sum(sets));
	query_blob(&q, scratch->data, sets_len);
	/* Not NULL, even if there are no runs. */
	query_blob(&q, scratch->data + sets_len, scratch->len - sets_len);
	return query_run(&q);
}

static int set_compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

static int count_cell(struct compaction *d, int64_t minute_ms, int64_t link, size_t first, size_t end)
{
	if (first == end)
		return SQLITE_OK;
	/* Counts the visits of each dimension set into d->sets. */
	size_t touched = 0;
	for (size_t i = first; i < end; i++) {
		uint32_t set = nth(d, i)->set;
		if (d->tallies[set]++ == 0)
			d->touched[touched++] = set;
	}
	if (touched > 1)
		qsort(d->touched, touched, sizeof(*d->touched), set_compare);
	d->sets.count = 0;
	int r = 0;
	for (size_t i = 0; i < touched; i++) {
		if (r == 0)
			r = counts_append(&d->sets, d->touched[i], d->tallies[d->touched[i]]);
		d->tallies[d->touched[i]] = 0;
	}
	int rc = db_code(r);
	d->runs.count = 0;
	if (rc == SQLITE_OK)
		rc = db_code(
		    runs_append(&d->runs, (struct run){.first = d->id_first + first, .count = end - first}));
	if (rc == SQLITE_OK)
		rc = compaction_cell_add(d->c, cell_level_key(CELL_MINUTE, link), minute_ms, link, &d->sets,
		                         &d->runs, 0, &d->scratch);
	return rc;
}

static int count_cells(struct compaction *d)
{
	int rc = SQLITE_OK;
	for (size_t from = 0, to; rc == SQLITE_OK && from < d->group_count; from = to) {
		for (to = from + 1;
		     to < d->group_count && d->groups[to].minute_ms == d->groups[from].minute_ms;)
			to++;
		/* Groups from .. to - 1 are of one minute. */
		const struct group *g = d->groups;
		int64_t minute_ms = g[from].minute_ms;
		size_t links = g[from].link == 0 ? from + 1 : from;
		if (links > from)
			rc = count_cell(d, minute_ms, LINK_ORPHANS, g[from].first, g[from].end);
		if (rc == SQLITE_OK && links < to)
			rc = count_cell(d, minute_ms, LINK_ALL, g[links].first, g[to - 1].end);
		for (size_t i = links; rc == SQLITE_OK && i < to; i++)
			rc = count_cell(d, minute_ms, (int64_t)g[i].link, g[i].first, g[i].end);
	}
	return rc;
}

/* --- days and totals --- */

struct day {
	int64_t day;
	uint64_t link;
	uint64_t clicks, clicks_before;
	uint32_t hours;
	bool found;   /* in the file */
	bool changed; /* the sketches */
	struct day_sketches *visitors;
};

static int day_read(struct compaction *d, struct day *day)
{
	CLEANUP(query_end) struct query q = QUERY(d->c, SQL_DAY_LINK_GET, day->day, day->link);
	int rc = query_find(&q, &day->found);
	day_sketches_init(day->visitors);
	if (rc != SQLITE_OK || !day->found)
		return rc;
	day->clicks_before = (uint64_t)sqlite3_column_int64(q.stmt, 0);
	day->hours = (uint32_t)sqlite3_column_int64(q.stmt, 1);
	return sqlite_day_sketches_get(&q, day->visitors);
}

static int learn_bots(struct compaction *d)
{
	struct bot_sets *known = d->bot_sets;
	size_t before = known->cap;
	if (!ARRAY_ROOM(known->items, known->cap, (size_t)d->set_last + 1))
		return SQLITE_NOMEM;
	memset(known->items + before, SET_IS_UNKNOWN, known->cap - before);
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < d->count; i++) {
		const struct visit *v = &d->visits[i];
		int64_t is_bot = 0;
		if (!v->visitor || known->items[v->set] != SET_IS_UNKNOWN)
			continue;
		rc = FIND(d->c, SQL_SET_IS_BOT, &is_bot, 1, v->set);
		if (rc == SQLITE_OK)
			known->items[v->set] = is_bot ? SET_IS_BOTS : SET_IS_PEOPLE;
	}
	return rc;
}

static void day_count(const struct compaction *d, struct day *day, const struct group *g)
{
	day->hours |= 1U << ((g->minute_ms - day->day * DAY_MS) / HOUR_MS);
	for (size_t i = g->first; i < g->end; i++) {
		const struct visit *v = nth(d, i);
		day->clicks += v->click;
		if (v->visitor &&
		    day_sketches_add(day->visitors, v->visitor, d->bot_sets->items[v->set] == SET_IS_BOTS))
			day->changed = true;
	}
}

static int day_write(struct compaction *d, const struct day *day)
{
	uint8_t people[SKETCH_BYTES_MAX], bots[SKETCH_BYTES_MAX];
	bool has_sketches = !day->found || day->changed;
	CLEANUP(query_end)
	struct query q = QUERY(d->c, has_sketches ? SQL_DAY_LINK_PUT : SQL_DAY_LINK_COUNT, day->day,
	                       day->link, day->clicks_before + day->clicks, day->hours);
	if (has_sketches) {
		const struct day_sketches *v = day->visitors;
		query_blob(&q, people, sketch_write(&v->people, people));
		query_blob(&q, v->is_mixed ? NULL : bots, sketch_write(&v->bots, bots));
	}
	return query_run(&q);
}

static int count_days(struct compaction *d)
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
		/* Items from .. to - 1 are groups of one day and link. */
		struct day day = {.link = items[from].minor, .visitors = &d->visitors};
		day.day = day_of(d->groups[items[from].index].minute_ms);
		rc = day_read(d, &day);
		if (rc != SQLITE_OK)
			break;
		for (size_t i = from; i < to; i++)
			day_count(d, &day, &d->groups[items[i].index]);
		rc = day_write(d, &day);
		if (rc == SQLITE_OK && day.clicks > 0)
			rc = RUN(d->c, SQL_TOTAL_ADD, day.link, day.clicks);
	}
	free(items);
	return rc;
}

/* The groups are sorted by minute. */
static int count_all_visitors(struct compaction *d)
{
	int rc = SQLITE_OK;
	for (size_t from = 0, to; rc == SQLITE_OK && from < d->group_count; from = to) {
		int64_t day = day_of(d->groups[from].minute_ms);
		for (to = from + 1; to < d->group_count && day_of(d->groups[to].minute_ms) == day;)
			to++;
		/* Groups from .. to - 1 are of one day: only its visitors are kept for all links together. */
		struct day all = {.day = day, .link = LINK_ALL, .visitors = &d->visitors};
		rc = day_read(d, &all);
		if (rc != SQLITE_OK)
			return rc;
		for (size_t i = from; i < to; i++)
			day_count(d, &all, &d->groups[i]);
		all.clicks = 0;
		rc = all.changed ? day_write(d, &all) : SQLITE_OK;
	}
	return rc;
}

/* --- a step --- */

/* Sorts the visits by minute and link, and groups them. */
static int group_visits(struct compaction *d)
{
	d->items = malloc(d->count * sizeof(*d->items));
	d->room = malloc(d->count * sizeof(*d->room));
	d->groups = malloc(d->count * sizeof(*d->groups)); /* at most one per visit */
	d->tallies = calloc((size_t)d->set_last + 1, sizeof(*d->tallies));
	d->touched = malloc(((size_t)d->set_last + 1) * sizeof(*d->touched));
	if (!d->items || !d->room || !d->groups || !d->tallies || !d->touched)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < d->count; i++) {
		int64_t minute_ms = time_floor(d->visits[i].time_ms, MINUTE_MS);
		d->items[i] = (struct sort_item){.major = (uint64_t)minute_ms ^ 1ULL << 63,
		                                 .minor = d->visits[i].link,
		                                 .index = (uint32_t)i};
	}
	sort_items(d->items, d->room, d->count);
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

static int step_begin(struct compaction *d)
{
	struct book_row book;
	uint64_t row = 0;
	int rc = book_get(d->c, &book) ?: db_last_id(d->c, SQL_SET_LAST, &d->set_last);
	if (rc == SQLITE_OK && book.compaction.row == 0)
		rc = db_last_id(d->c, SQL_BUFFER_LAST, &row);
	if (rc != SQLITE_OK)
		return rc;
	d->id_first = (uint64_t)book.next_visit;
	d->before = book.compaction;
	if (d->before.row == 0)
		d->before.row = (int64_t)row;
	return SQLITE_OK;
}

/* `next_link` is the first link of the next step; 0: this was the last one. */
static int step_end(struct compaction *d, uint64_t next_link)
{
	struct compaction_progress after = {0};
	if (next_link > 0) {
		after = d->before;
		after.link = (int64_t)next_link;
		after.visits += d->count;
		for (size_t i = 0; i < d->count; i++)
			after.orphans += d->visits[i].link == 0;
	}
	int rc = RUN(d->c, SQL_BOOK_COMPACTED, d->id_first + d->count, after.row, after.link, after.visits,
	             after.orphans);
	return rc == SQLITE_OK && next_link == 0 ? RUN(d->c, SQL_BUFFER_DELETE, d->before.row) : rc;
}

int compaction_step(struct sqlite_conn *c, struct bot_sets *known, size_t visits_max)
{
	CLEANUP(compaction_release) struct compaction d = {.c = c, .bot_sets = known};
	uint64_t next_link = 0;
	int rc = step_begin(&d) ?: read_buffered(&d) ?: select_visits(&d, visits_max, &next_link);
	if (rc != SQLITE_OK || d.count == 0)
		return rc;
	return group_visits(&d)
	       ?: write_blocks(&d)
	       ?: count_cells(&d)
	       ?: learn_bots(&d)
	       ?: count_days(&d)
	       ?: count_all_visitors(&d)
	       ?: step_end(&d, next_link);
}
