/*
 * A stats query adds up cells that are inside the range, and the rows of cells that an edge of the range
 * cuts.
 *
 * A row does not say which cell counts it, since cells are folded. So at each edge, the region of the largest
 * cut cell is taken, with all cells that begin in it and all its rows. Rows count at their own time. If the
 * cells have more visits of a dimension set than there are rows, the rows of the others have expired. Those
 * count at the start of their cells: as many as the cells that begin inside have more than there are rows
 * inside.
 */
#include "base/grow.h"
#include "sink/day_sketches.h"
#include "sink/postgres_sink.h"
#include "sink/tallies.h"

#include <stdlib.h>

/* Visits of a dimension set at a time: the start of a step or of a cell. */
struct set_count {
	int64_t time_ms;
	int64_t set;
	int64_t count;
	bool inside; /* of rows: in the range */
};

struct set_counts {
	struct set_count *items;
	size_t count, cap;
};

/* The region around an edge; empty if the edge cuts no cell. */
struct region {
	int64_t from_ms, to_ms;
	struct set_counts cells, rows;
};

struct stats_fetch {
	struct pg_conn *conn;
	struct stats_query *q;
	struct tallies tallies;
	int64_t links[2]; /* of the cells */
	size_t link_count;
	int64_t unit_ms, shift_ms; /* a step of the series begins at t - (t + shift) % unit, or a day does */
	struct region edges[2];    /* left, and right unless it is the same region */
	struct set_counts full_cells;
};

static void fetch_release(struct stats_fetch *a)
{
	for (size_t i = 0; i < ARRAY_LEN(a->edges); i++) {
		free(a->edges[i].cells.items);
		free(a->edges[i].rows.items);
	}
	free(a->full_cells.items);
	tallies_release(&a->tallies);
}

/* Reads rows of (time, set, count), and whether they are inside. */
static int set_counts_read(struct pg_conn *c, struct set_counts *ret, bool has_inside)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = pg_next(c, &rows, NULL);
	if (r == 0 && !ARRAY_ROOM(ret->items, ret->cap, ret->count + (size_t)rows.rows + 1))
		return ERR_NOMEM;
	for (int row = 0; r == 0 && row < rows.rows; row++)
		ret->items[ret->count++] = (struct set_count){.time_ms = pg_get_int(&rows, row, 0),
		                                              .set = pg_get_int(&rows, row, 1),
		                                              .count = pg_get_int(&rows, row, 2),
		                                              .inside = has_inside &&
		                                                        pg_get_int(&rows, row, 3)};
	return r;
}

/* --- reading --- */

/* The level of the largest cell that begins at one of these times; NULL: none. */
static const struct pg_statement cell_largest = {
    "sink_cell_largest",
    "SELECT max(level)::bigint FROM stats_cell WHERE link = ANY($1::bigint[]) AND ((level = 0"
    " AND start_ms = $2::bigint) OR (level = 1 AND start_ms = $3::bigint) OR"
    " (level = 2 AND start_ms = $4::bigint))"};
static const struct pg_statement cells_whole = {
    "sink_cells_whole",
    "SELECT start_ms - (start_ms + $5::bigint) % $4::bigint, shape, sum(count)::bigint FROM stats_cell"
    " WHERE link = ANY($1::bigint[]) AND level IN (0, 1, 2) AND start_ms >= $2::bigint"
    " AND start_ms < $3::bigint GROUP BY 1, 2"};
static const struct pg_statement cells_at = {
    "sink_cells_at",
    "SELECT start_ms, shape, sum(count)::bigint FROM stats_cell WHERE link = ANY($1::bigint[])"
    " AND level IN (0, 1, 2) AND start_ms >= $2::bigint AND start_ms < $3::bigint"
    " GROUP BY 1, 2 ORDER BY 1"};

#define ROWS_SELECT                                                                                        \
	"SELECT time_ms - (time_ms + $3::bigint) % $2::bigint, shape, count(*), time_ms >= $4::bigint AND" \
	" time_ms < $5::bigint FROM stats_visit WHERE time_ms >= $6::bigint AND time_ms < $7::bigint"

static const struct pg_statement rows_of_link = {
    "sink_rows_of_link", ROWS_SELECT " AND link = $1::bigint AND time_ms / 60000 >= $6::bigint / 60000 AND"
                                     " time_ms / 60000 < $7::bigint / 60000 GROUP BY 1, 2, 4"};
static const struct pg_statement rows_of_all = {"sink_rows_of_all",
                                                ROWS_SELECT " AND $1::bigint = 0 GROUP BY 1, 2, 4"};
static const struct pg_statement days_of = {
    "sink_days_of",
    "SELECT visitors, bots FROM stats_day WHERE link = $1::bigint AND day >= $2::bigint AND day <="
    " $3::bigint"};

static void edge_ask(struct stats_fetch *a, int64_t ms)
{
	struct pg_query q = pg_query(a->conn, &cell_largest);
	pg_ints(&q, a->links, a->link_count);
	for (int level = 0; level < CELL_LEVELS; level++) {
		int64_t start_ms = time_floor(ms, cell_level_ms[level]);
		pg_int(&q, start_ms < ms ? start_ms : INT64_MIN); /* one that begins there is not cut */
	}
	pg_send(&q);
}

static int edge_read(struct stats_fetch *a, int64_t ms, struct region *ret)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = pg_next(a->conn, &rows, NULL);
	if (r != 0)
		return r;
	*ret = (struct region){.from_ms = ms, .to_ms = ms};
	if (pg_is_null(&rows, 0, 0))
		return 0;
	int64_t unit_ms = cell_level_ms[pg_get_int(&rows, 0, 0)];
	ret->from_ms = time_floor(ms, unit_ms);
	ret->to_ms = ret->from_ms + unit_ms;
	return 0;
}

static bool region_is_empty(const struct region *edge)
{
	return edge->from_ms == edge->to_ms;
}

static int visitors_read(struct stats_fetch *a)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = pg_next(a->conn, &rows, NULL);
	for (int row = 0; r == 0 && row < rows.rows; row++) {
		struct day_sketches sketches;
		struct sketch sketch;
		if (!day_sketches_read(&sketches, pg_get_text(&rows, row, 0), pg_get_text(&rows, row, 1)))
			return ERR_CORRUPT;
		a->q->has_visitors &= day_sketches_select(&sketches, a->q->bots, &sketch);
		a->q->visitors += sketch_estimate(&sketch);
	}
	return r;
}

static int all_find(struct stats_fetch *a)
{
	struct pg_query q = pg_query(a->conn, &cells_whole);
	pg_ints(&q, a->links, a->link_count);
	INTS(&q, region_is_empty(&a->edges[0]) ? a->tallies.from_ms : a->edges[0].to_ms, a->edges[1].from_ms,
	     a->unit_ms, a->shift_ms);
	pg_send(&q);
	for (size_t i = 0; i < ARRAY_LEN(a->edges); i++) {
		const struct region *edge = &a->edges[i];
		if (region_is_empty(edge))
			continue;
		q = pg_query(a->conn, &cells_at);
		pg_ints(&q, a->links, a->link_count);
		INTS(&q, edge->from_ms, edge->to_ms);
		pg_send(&q);
		q = pg_query(a->conn, a->q->link ? &rows_of_link : &rows_of_all);
		INTS(&q, a->q->link, a->unit_ms, a->shift_ms, a->tallies.from_ms, a->tallies.to_ms,
		     edge->from_ms, edge->to_ms);
		pg_send(&q);
	}
	if (a->q->has_visitors) {
		q = pg_query(a->conn, &days_of);
		INTS(&q, a->q->link, day_of(a->tallies.from_ms), day_of(a->tallies.to_ms - 1));
		pg_send(&q);
	}
	pg_flush(a->conn);
	int r = set_counts_read(a->conn, &a->full_cells, false);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(a->edges); i++) {
		if (region_is_empty(&a->edges[i]))
			continue;
		r = set_counts_read(a->conn, &a->edges[i].cells, false)
		        ?: set_counts_read(a->conn, &a->edges[i].rows, true);
	}
	if (r == 0 && a->q->has_visitors)
		r = visitors_read(a);
	int synced = pg_sync(a->conn, NULL);
	return r ? r : synced;
}

/* --- dimension sets --- */

static int id_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return x < y ? -1 : x > y;
}

/* Fetches all dimension sets at once. */
static int sets_learn(struct stats_fetch *a)
{
	const struct set_counts *lists[] = {&a->full_cells, &a->edges[0].cells, &a->edges[0].rows,
	                                    &a->edges[1].cells, &a->edges[1].rows};
	size_t count = 0, kept = 0;
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		count += lists[i]->count;
	if (count == 0)
		return 0;
	int64_t *ids = malloc(count * sizeof(*ids));
	if (!ids)
		return ERR_NOMEM;
	count = 0;
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		const struct set_counts *f = lists[i];
		for (size_t k = 0; k < f->count; k++)
			ids[count++] = f->items[k].set;
	}
	qsort(ids, count, sizeof(*ids), id_compare);
	for (size_t i = 0; i < count; i++)
		if (kept == 0 || ids[kept - 1] != ids[i])
			ids[kept++] = ids[i];
	struct dimension_set *sets = malloc((kept + 1) * sizeof(*sets));
	int r = sets ? postgres_sets_get(a->conn, ids, kept, a->q->arena, sets) : ERR_NOMEM;
	for (size_t i = 0; r == 0 && i < kept; i++)
		r = tallies_learn(&a->tallies, (uint64_t)ids[i], &sets[i]);
	free(sets);
	free(ids);
	return r;
}

/* --- adding up --- */

static void add(struct stats_fetch *a, int64_t set, int64_t count, int64_t time_ms)
{
	tallies_add(&a->tallies, (uint64_t)set, (uint64_t)count, tallies_step(&a->tallies, time_ms));
}

/* Of one dimension set in a region. */
struct set_balance {
	int64_t missing; /* visits in cells minus rows: those whose rows have expired */
	int64_t beyond;  /* visits in cells that begin inside minus rows inside */
};

static bool starts_inside(const struct stats_fetch *a, const struct set_count *cell)
{
	return cell->time_ms >= a->tallies.from_ms && cell->time_ms < a->tallies.to_ms;
}

/* `balances` are indexed by the id of the set. */
static void region_add(struct stats_fetch *a, const struct region *edge, struct set_balance *balances)
{
	for (size_t i = 0; i < edge->cells.count; i++) {
		const struct set_count *cell = &edge->cells.items[i];
		balances[cell->set].missing += cell->count;
		balances[cell->set].beyond += starts_inside(a, cell) ? cell->count : 0;
	}
	for (size_t i = 0; i < edge->rows.count; i++) {
		const struct set_count *row = &edge->rows.items[i];
		balances[row->set].missing -= row->count;
		if (!row->inside)
			continue;
		balances[row->set].beyond -= row->count;
		add(a, row->set, row->count, MAX(row->time_ms, a->tallies.from_ms));
	}
	for (size_t i = 0; i < edge->cells.count; i++) {
		const struct set_count *cell = &edge->cells.items[i];
		struct set_balance *p = &balances[cell->set];
		int64_t n = MIN(MIN(p->missing, p->beyond), cell->count);
		if (n <= 0 || !starts_inside(a, cell))
			continue;
		add(a, cell->set, n, cell->time_ms);
		p->missing -= n;
		p->beyond -= n;
	}
}

static int count_all(struct stats_fetch *a)
{
	struct region *left = &a->edges[0], *right = &a->edges[1];
	edge_ask(a, a->tallies.from_ms);
	edge_ask(a, a->tallies.to_ms);
	pg_flush(a->conn);
	int r = edge_read(a, a->tallies.from_ms, left) ?: edge_read(a, a->tallies.to_ms, right);
	int synced = pg_sync(a->conn, NULL);
	if (right->from_ms < left->to_ms) { /* one contains the other: keep the larger */
		if (right->to_ms - right->from_ms > left->to_ms - left->from_ms)
			*left = *right;
		right->from_ms = right->to_ms = a->tallies.to_ms;
	}
	r = (r ? r : synced) ?: all_find(a) ?: sets_learn(a);
	for (size_t i = 0; r == 0 && i < a->full_cells.count; i++)
		add(a, a->full_cells.items[i].set, a->full_cells.items[i].count,
		    MAX(a->full_cells.items[i].time_ms, a->tallies.from_ms));
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(a->edges); i++) {
		if (region_is_empty(&a->edges[i]))
			continue;
		struct set_balance *balances = calloc(a->tallies.cap + 1, sizeof(*balances));
		if (balances)
			region_add(a, &a->edges[i], balances);
		else
			r = ERR_NOMEM;
		free(balances);
	}
	return r ? r : tallies_finish(&a->tallies);
}

int postgres_stats_get(struct pg_conn *c, struct stats_query *q)
{
	CLEANUP(fetch_release) struct stats_fetch a = {.conn = c, .q = q, .link_count = q->link ? 1 : 2};
	a.links[0] = q->link ? (int64_t)q->link : LINK_ALL;
	a.links[1] = LINK_ORPHANS;
	a.unit_ms = q->series_wanted ? step_unit_ms(q->step) : DAY_MS;
	a.shift_ms = q->series_wanted && q->step == STEP_WEEK ? 3 * DAY_MS : 0;
	int r = tallies_begin(&a.tallies, q);
	return r == 0 && a.tallies.from_ms < a.tallies.to_ms ? count_all(&a) : r;
}
