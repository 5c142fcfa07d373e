/* How far streams were read, and which totals the link store has: what the committing thread reads back. */
#include "sink/postgres_sink.h"

#include <stdlib.h>

/* --- positions --- */

static const struct pg_statement positions_get = {
    "sink_positions_get",
    "SELECT stream, position FROM stats_position WHERE source = $1::bigint ORDER BY stream"};
static const struct pg_statement positions_forget = {
    "sink_positions_forget",
    "DELETE FROM stats_position WHERE source = $1::bigint AND stream = ANY($2::bigint[])"};

int postgres_positions_get(struct pg_conn *c, uint64_t source, struct arena *arena, struct position **ret,
                           size_t *ret_count, struct err *e)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query q = pg_query(c, &positions_get);
	pg_int(&q, (int64_t)source);
	int r = pg_ask(&q, &rows, e);
	if (r != 0)
		return r;
	struct position *positions = arena_alloc(arena, ((size_t)rows.rows + 1) * sizeof(*positions));
	if (!positions)
		return err_set(e, ERR_NOMEM, "memory ran out");
	for (int row = 0; row < rows.rows; row++)
		positions[row] = (struct position){.stream = (uint64_t)pg_get_int(&rows, row, 0),
		                                   .offset = (uint64_t)pg_get_int(&rows, row, 1)};
	*ret = positions;
	*ret_count = (size_t)rows.rows;
	return 0;
}

int postgres_positions_forget(struct pg_conn *c, uint64_t source, const uint64_t *streams, size_t count,
                              struct err *e)
{
	struct pg_query q = pg_query(c, &positions_forget);
	pg_int(&q, (int64_t)source);
	pg_ints(&q, (const int64_t *)streams, count);
	return postgres_do(&q, e);
}

/* --- totals --- */

static const struct pg_statement totals_get = {
    "sink_totals_get",
    "SELECT link, clicks FROM stats_total WHERE NOT flushed ORDER BY link LIMIT $1::bigint"};
static const struct pg_statement totals_mark = {
    "sink_totals_mark", "UPDATE stats_total t SET flushed = true FROM unnest($1::bigint[], $2::bigint[]) AS"
                        " n(link, clicks) WHERE t.link = n.link AND t.clicks = n.clicks AND NOT t.flushed"};

int postgres_totals_get(struct pg_conn *c, size_t max, struct arena *arena, struct sink_total **ret,
                        size_t *ret_count, struct err *e)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query q = pg_query(c, &totals_get);
	pg_int(&q, (int64_t)MIN(max, (size_t)1 << 20));
	int r = pg_ask(&q, &rows, e);
	if (r != 0)
		return r;
	struct sink_total *totals = arena_alloc(arena, ((size_t)rows.rows + 1) * sizeof(*totals));
	if (!totals)
		return err_set(e, ERR_NOMEM, "memory ran out");
	for (int row = 0; row < rows.rows; row++)
		totals[row] = (struct sink_total){.link = (uint64_t)pg_get_int(&rows, row, 0),
		                                  .clicks = (uint64_t)pg_get_int(&rows, row, 1)};
	*ret = totals;
	*ret_count = (size_t)rows.rows;
	return 0;
}

int postgres_totals_mark(struct pg_conn *c, const struct sink_total *totals, size_t count, struct err *e)
{
	int64_t *numbers = malloc((2 * count + 1) * sizeof(*numbers));
	if (!numbers)
		return err_set(e, ERR_NOMEM, "memory ran out");
	for (size_t i = 0; i < count; i++) {
		numbers[i] = (int64_t)totals[i].link;
		numbers[count + i] = (int64_t)totals[i].clicks;
	}
	struct pg_query q = pg_query(c, &totals_mark);
	pg_ints(&q, numbers, count);
	pg_ints(&q, numbers + count, count);
	int r = postgres_do(&q, e);
	free(numbers);
	return r;
}
