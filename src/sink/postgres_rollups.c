/*
 * Counters. A batch's visits are counted in memory first, so that each row is written once per batch.
 *
 * Rows that all workers write (all links together, tallies) come last, and sketches of visitors are read when
 * their rows are locked: other workers wait from there until the COMMIT.
 */
#include "sink/ads.h"
#include "sink/day_sketches.h"
#include "sink/dimension_set.h"
#include "sink/postgres_sink.h"

#include <stdlib.h>

/* --- counting in memory --- */

/* A counter with a key of three columns. */
struct tally {
	int64_t a, b, c;
	int64_t count;
};

struct tally_list {
	struct tally *items;
	size_t count;
};

static int tally_compare(const void *x, const void *y)
{
	const struct tally *p = x, *q = y;
	if (p->a != q->a)
		return p->a < q->a ? -1 : 1;
	if (p->b != q->b)
		return p->b < q->b ? -1 : 1;
	return p->c < q->c ? -1 : p->c > q->c;
}

/* Sorts, and adds up equal keys. */
static void tallies_join(struct tally_list *l)
{
	size_t kept = 0;
	if (l->count > 0)
		qsort(l->items, l->count, sizeof(*l->items), tally_compare);
	for (size_t i = 0; i < l->count; i++) {
		if (kept > 0 && tally_compare(&l->items[kept - 1], &l->items[i]) == 0)
			l->items[kept - 1].count += l->items[i].count;
		else
			l->items[kept++] = l->items[i];
	}
	l->count = kept;
}

static void tallies_send(struct pg_conn *c, const struct pg_statement *statement, const struct tally_list *l)
{
	if (l->count == 0)
		return;
	struct pg_query q = pg_query(c, statement);
	PG_FIELDS(&q, pg_ints, l->items, l->count, a);
	PG_FIELDS(&q, pg_ints, l->items, l->count, b);
	PG_FIELDS(&q, pg_ints, l->items, l->count, c);
	PG_FIELDS(&q, pg_ints, l->items, l->count, count);
	pg_send(&q);
}

/* --- cells --- */

static const struct pg_statement cells_add = {
    "sink_cells_add", "INSERT INTO stats_cell (link, start_ms, shape, count, level)"
                      " SELECT link, start_ms, shape, count, 0 FROM unnest($1::bigint[], $2::bigint[],"
                      " $3::bigint[], $4::bigint[]) AS n(link, start_ms, shape, count)"
                      " ON CONFLICT (link, level, start_ms, shape) DO UPDATE SET"
                      " count = stats_cell.count + excluded.count"};

static int64_t own_cell(const struct sink_visit *v)
{
	return (int64_t)v->link;
}

static int64_t common_cell(const struct sink_visit *v)
{
	return v->link > 0 ? LINK_ALL : LINK_ORPHANS;
}

/* Counts by minute and dimension set, in the cells of link_of(visit). Orphans have no cell of their own, only
 * common ones. *ret_sent: a statement was sent. */
static int cells_send(struct pg_conn *c, const struct sink_batch *b, const uint32_t *sets,
                      int64_t (*link_of)(const struct sink_visit *), bool *ret_sent)
{
	struct tally_list l = {.items = malloc((b->visit_count + 1) * sizeof(*l.items))};
	if (!l.items)
		return ERR_NOMEM;
	for (size_t i = 0; i < b->visit_count; i++) {
		const struct sink_visit *v = &b->visits[i];
		if (link_of == own_cell && v->link == 0)
			continue;
		l.items[l.count++] = (struct tally){
		    .a = link_of(v), .b = time_floor(v->time_ms, MINUTE_MS), .c = sets[v->set], .count = 1};
	}
	tallies_join(&l);
	*ret_sent = l.count > 0;
	tallies_send(c, &cells_add, &l);
	free(l.items);
	return 0;
}

/* --- days and totals --- */

static const struct pg_statement totals_add = {
    "sink_totals_add",
    "INSERT INTO stats_total (link, clicks, flushed)"
    " SELECT link, sum(count), false FROM unnest($1::bigint[], $2::bigint[], $3::bigint[],"
    " $4::bigint[]) AS n(link, day, hash, count) WHERE link > 0 GROUP BY link ORDER BY link"
    " ON CONFLICT (link) DO UPDATE SET clicks = stats_total.clicks + excluded.clicks,"
    " flushed = false"};

/* Locks the rows and returns their sketches. */
static const struct pg_statement days_add = {
    "sink_days_add",
    "INSERT INTO stats_day (link, day, clicks, visitors, bots)"
    " SELECT link, day, sum(count), ''::bytea, ''::bytea FROM unnest($1::bigint[], $2::bigint[],"
    " $3::bigint[], $4::bigint[]) AS n(link, day, hash, count) GROUP BY link, day"
    " ORDER BY link, day"
    " ON CONFLICT (link, day) DO UPDATE SET clicks = stats_day.clicks + excluded.clicks"
    " RETURNING link, day, visitors, bots"};
static const struct pg_statement visitors_put = {
    "sink_visitors_put",
    "UPDATE stats_day d SET visitors = n.visitors, bots = CASE WHEN d.bots IS NOT NULL THEN n.bots END"
    " FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[]) AS n(link, day, visitors, bots)"
    " WHERE d.link = n.link AND d.day = n.day"};

#define VISITOR_IS_BOT (1LL << 32) /* above the visitor's hash */

/* Link, day and visitor (0: none) of each click; and again for all links together, whose days have no
 * clicks. */
static int days_gather(const struct sink_batch *b, struct tally_list *ret)
{
	ret->items = malloc((2 * b->visit_count + 1) * sizeof(*ret->items));
	if (!ret->items)
		return ERR_NOMEM;
	for (size_t i = 0; i < b->visit_count; i++) {
		const struct sink_visit *v = &b->visits[i];
		const struct dimension_set *set = &b->sets[v->set];
		if (v->link == 0 || set->kind != VISIT_CLICK)
			continue;
		struct tally t = {.a = (int64_t)v->link,
		                  .b = day_of(v->time_ms),
		                  .c = dimension_set_visitor_hash(v->visitor),
		                  .count = 1};
		if (t.c != 0 && set->dims[DIM_BOT].ptr)
			t.c |= VISITOR_IS_BOT;
		ret->items[ret->count++] = t;
		t.a = LINK_ALL;
		t.count = 0;
		if (t.c != 0)
			ret->items[ret->count++] = t;
	}
	tallies_join(ret);
	return 0;
}

struct day_visitors {
	int64_t link, day;
	struct str people, bots; /* sketches */
};

/* The first of the sorted `days` with that link and day. */
static size_t first_of(const struct tally_list *days, int64_t link, int64_t day)
{
	const struct tally wanted = {.a = link, .b = day, .c = INT64_MIN};
	size_t low = 0, high = days->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (tally_compare(&days->items[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct str sketch_store(struct arena *arena, const struct sketch *s)
{
	uint8_t bytes[SKETCH_BYTES_MAX];
	size_t len = sketch_write(s, bytes);
	return arena_str(arena, str_n((const char *)bytes, len));
}

/* Adds the day's visitors to the sketches of the row. *ret_changed: some of them are new. */
static int sketches_grow(const struct tally_list *days, const struct pg_result *rows, int row,
                         struct arena *arena, struct day_visitors *ret, bool *ret_changed)
{
	struct day_sketches sketches;
	*ret = (struct day_visitors){.link = pg_get_int(rows, row, 0), .day = pg_get_int(rows, row, 1)};
	*ret_changed = false;
	if (!day_sketches_read(&sketches, pg_get_text(rows, row, 2), pg_get_text(rows, row, 3)))
		return ERR_CORRUPT;
	for (size_t i = first_of(days, ret->link, ret->day);
	     i < days->count && days->items[i].a == ret->link && days->items[i].b == ret->day; i++)
		if (days->items[i].c != 0)
			*ret_changed |= day_sketches_add(&sketches, (uint32_t)days->items[i].c,
			                                 days->items[i].c & VISITOR_IS_BOT);
	if (!*ret_changed)
		return 0;
	ret->people = sketch_store(arena, &sketches.people);
	ret->bots = sketch_store(arena, &sketches.bots);
	return ret->people.ptr && ret->bots.ptr ? 0 : ERR_NOMEM;
}

static int sketches_put(struct pg_conn *c, const struct tally_list *days, const struct pg_result *rows)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct day_visitors *changed = arena_alloc(&arena, ((size_t)rows->rows + 1) * sizeof(*changed));
	size_t count = 0;
	int r = changed ? 0 : ERR_NOMEM;
	for (int row = 0; r == 0 && row < rows->rows; row++) {
		bool has_changed;
		r = sketches_grow(days, rows, row, &arena, &changed[count], &has_changed);
		count += has_changed;
	}
	if (r == 0 && count > 0) {
		struct pg_query q = pg_query(c, &visitors_put);
		PG_FIELDS(&q, pg_ints, changed, count, link);
		PG_FIELDS(&q, pg_ints, changed, count, day);
		PG_FIELDS(&q, pg_blobs, changed, count, people);
		PG_FIELDS(&q, pg_blobs, changed, count, bots);
		pg_send(&q);
	}
	return r;
}

/* `before` statements were sent, whose results are not read yet. */
static int days_put(struct pg_conn *c, const struct sink_batch *b, size_t before, struct err *e)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct tally_list days = {0};
	int r = days_gather(b, &days);
	if (r == 0 && days.count > 0) {
		tallies_send(c, &totals_add, &days);
		tallies_send(c, &days_add, &days);
		/* The result of days_add comes after the others. */
		pg_flush(c);
		for (size_t i = 0; i <= before + 1; i++) {
			pg_result_end(&rows);
			pg_next(c, &rows, NULL);
		}
		r = pg_sync(c, e) ?: sketches_put(c, &days, &rows);
	}
	free(days.items);
	return r;
}

int postgres_rollups_put(struct pg_conn *c, const struct sink_batch *batch, const uint32_t *sets,
                         struct err *e)
{
	bool sent = false;
	if (batch->visit_count == 0)
		return 0;
	int r = cells_send(c, batch, sets, own_cell, &sent) ?: days_put(c, batch, sent, e);
	return r ? r : cells_send(c, batch, sets, common_cell, &sent);
}

/* --- impressions --- */

static const struct pg_statement ad_cells_add = {
    "sink_ad_cells_add", "INSERT INTO stats_ad_cell (level, start_ms, ad, count)"
                         " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])"
                         " ON CONFLICT (level, start_ms, ad) DO UPDATE SET"
                         " count = stats_ad_cell.count + excluded.count"};

int postgres_ads_put(struct pg_conn *c, const struct sink_batch *batch, const uint32_t *ads, const bool *kept,
                     int64_t kept_ms)
{
	struct tally_list l = {.items = malloc((batch->impression_count * AD_LEVELS + 1) * sizeof(*l.items))};
	if (!l.items)
		return ERR_NOMEM;
	for (size_t i = 0; i < batch->impression_count; i++) {
		int64_t time_ms = batch->impressions[i].time_ms;
		for (int level = time_ms < kept_ms ? AD_HOUR : AD_SECOND; kept[i] && level < AD_LEVELS;
		     level++)
			l.items[l.count++] = (struct tally){.a = level,
			                                    .b = time_floor(time_ms, ad_level_ms[level]),
			                                    .c = ads[i],
			                                    .count = 1};
	}
	tallies_join(&l);
	tallies_send(c, &ad_cells_add, &l);
	free(l.items);
	return 0;
}
