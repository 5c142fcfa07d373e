/* Queries for single visits, windows of impressions, and links by clicks. */
#include "sink/ads.h"
#include "sink/postgres_sink.h"

#include <stdlib.h>

/* --- visits --- */

enum {
	VISIT_TIME,
	VISIT_NUMBER,
	VISIT_SET,
	VISIT_AGENT,
	VISIT_REFERRER,
	VISIT_PLACE,
	VISIT_PATH,
	VISIT_ADDRESS
};

static const struct pg_statement visits_of = {
    "sink_visits_of", "SELECT time_ms, number, shape, agent, referrer, place, path, address FROM stats_visit"
                      " WHERE link = $1::bigint AND time_ms >= $2::bigint AND time_ms < $3::bigint"
                      " AND (time_ms / 60000, number) < ($4::bigint, $5::bigint)"
                      " ORDER BY time_ms / 60000 DESC, number DESC LIMIT $6::bigint"};

static bool text_get(const struct pg_result *rows, int row, int column, struct arena *arena, struct str *ret)
{
	*ret = arena_str(arena, pg_get_text(rows, row, column));
	return ret->ptr || pg_is_null(rows, row, column);
}

static int visit_fill(const struct pg_result *rows, int row, const struct visits_query *q,
                      struct stats_visit *ret)
{
	struct str place, address = pg_get_text(rows, row, VISIT_ADDRESS);
	ret->time_ms = pg_get_int(rows, row, VISIT_TIME);
	ret->link = q->link;
	if (!text_get(rows, row, VISIT_AGENT, q->arena, &ret->agent) ||
	    !text_get(rows, row, VISIT_REFERRER, q->arena, &ret->referrer) ||
	    !text_get(rows, row, VISIT_PLACE, q->arena, &place) ||
	    !text_get(rows, row, VISIT_PATH, q->arena, &ret->path))
		return ERR_NOMEM;
	page_place(place, ret);
	ret->address = page_address(q->arena, (const uint8_t *)address.ptr, address.len);
	return address.ptr && !ret->address.ptr ? ERR_NOMEM : 0;
}

/* Fills everything but the dimension sets, whose ids go to `ids`. */
static int page_fill(const struct pg_result *rows, struct visits_query *q, const uint8_t *key, int64_t *ids)
{
	size_t count = MIN((size_t)rows->rows, q->limit);
	struct str next = STR_NULL;
	int r = 0;
	for (size_t i = 0; r == 0 && i < count; i++) {
		r = visit_fill(rows, (int)i, q, &q->visits[i]);
		ids[i] = pg_get_int(rows, (int)i, VISIT_SET);
	}
	if (r == 0 && (size_t)rows->rows > count) {
		int last = (int)count - 1;
		next = page_cursor_text(
		    q->arena, key, q->link,
		    (struct page_cursor){
		        .minute_ms = time_floor(pg_get_int(rows, last, VISIT_TIME), MINUTE_MS),
		        .rank = (uint64_t)pg_get_int(rows, last, VISIT_NUMBER)});
		r = next.ptr ? 0 : ERR_NOMEM;
	}
	q->next = next;
	q->count = r == 0 ? count : 0;
	return r;
}

int postgres_visits_get(struct pg_conn *c, struct visits_query *q, const uint8_t *key,
                        const struct page_cursor *from)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query query = pg_query(c, &visits_of);
	INTS(&query, q->link, q->from_ms, q->to_ms,
	     from->minute_ms == INT64_MAX ? INT64_MAX : from->minute_ms / MINUTE_MS,
	     MIN(from->rank, (uint64_t)INT64_MAX), (int64_t)MIN(q->limit, (size_t)INT32_MAX) + 1);
	int r = pg_ask(&query, &rows, NULL);
	if (r != 0)
		return r;
	size_t count = MIN((size_t)rows.rows, q->limit);
	q->visits = arena_zalloc(q->arena, (count + 1) * sizeof(*q->visits));
	int64_t *ids = arena_alloc(q->arena, (count + 1) * sizeof(*ids));
	r = q->visits && ids ? page_fill(&rows, q, key, ids) : ERR_NOMEM;
	if (r != 0 || q->count == 0)
		return r;
	struct dimension_set *sets = arena_alloc(q->arena, (q->count + 1) * sizeof(*sets));
	r = sets ? postgres_sets_get(c, ids, q->count, q->arena, sets) : ERR_NOMEM;
	for (size_t i = 0; r == 0 && i < q->count; i++)
		q->visits[i].set = sets[i];
	return r;
}

/* --- windows --- */

static const struct pg_statement kept_get = {"sink_kept_get", "SELECT kept_ms FROM stats_clock WHERE id = 1"};
static const struct pg_statement window_cells = {
    "sink_window_cells",
    "SELECT a.name, n.count FROM (SELECT ad, sum(count)::bigint AS count FROM stats_ad_cell WHERE level ="
    " $1::bigint AND start_ms >= $2::bigint AND start_ms < $3::bigint GROUP BY ad) n"
    " LEFT JOIN stats_ad a ON a.id = n.ad"};
static const struct pg_statement window_rows = {
    "sink_window_rows",
    "SELECT a.name, n.count FROM (SELECT ad, count(*) AS count FROM stats_impression WHERE time_ms >="
    " $1::bigint AND time_ms < $2::bigint GROUP BY ad) n LEFT JOIN stats_ad a ON a.id = n.ad"};

static int ads_read(const struct pg_result *rows, struct window_query *q)
{
	for (int row = 0; row < rows->rows; row++) {
		struct ad_count *ad = &q->ads[q->count++];
		ad->count = (uint64_t)pg_get_int(rows, row, 1);
		ad->ad = STR(ADS_OTHER); /* if its name was swept */
		if (!pg_is_null(rows, row, 0) && !text_get(rows, row, 0, q->arena, &ad->ad))
			return ERR_NOMEM;
	}
	return 0;
}

int postgres_window_get(struct pg_conn *c, struct window_query *q)
{
	struct window_part parts[WINDOW_PARTS_MAX];
	struct pg_result results[WINDOW_PARTS_MAX] = {{NULL, 0}};
	int64_t kept_ms = 0;
	struct pg_query kept = pg_query(c, &kept_get);
	q->ads = NULL;
	q->count = 0;
	int r = postgres_find(&kept, &kept_ms, 1, NULL);
	size_t count = r == 0 ? window_split(q, kept_ms, parts) : 0;
	if (count == 0)
		return r;
	for (size_t i = 0; i < count; i++) {
		struct pg_query query = pg_query(c, parts[i].level < 0 ? &window_rows : &window_cells);
		if (parts[i].level >= 0)
			pg_int(&query, parts[i].level);
		INTS(&query, parts[i].from_ms, parts[i].to_ms);
		pg_send(&query);
	}
	pg_flush(c);
	for (size_t i = 0; i < count; i++)
		pg_next(c, &results[i], NULL);
	r = pg_sync(c, NULL);
	if (r == 0) {
		size_t total = 1;
		for (size_t i = 0; i < count; i++)
			total += (size_t)results[i].rows;
		q->ads = arena_alloc(q->arena, total * sizeof(*q->ads));
		r = q->ads ? 0 : ERR_NOMEM;
		for (size_t i = 0; r == 0 && i < count; i++)
			r = ads_read(&results[i], q);
		if (r == 0)
			q->count = ads_merge(q->ads, q->count);
	}
	for (size_t i = 0; i < count; i++)
		pg_result_end(&results[i]);
	return r;
}

/* --- links --- */

static const struct pg_statement links_top = {
    "sink_links_top", "SELECT link, sum(clicks)::bigint FROM stats_day WHERE day >= $1::bigint AND day <"
                      " $2::bigint AND link > 0 AND clicks > 0 GROUP BY link ORDER BY 2 DESC, 1"
                      " LIMIT $3::bigint"};
static const struct pg_statement links_clicks = {
    "sink_links_clicks", "SELECT w.at, t.clicks FROM unnest($1::bigint[]) WITH ORDINALITY AS w(link, at)"
                         " JOIN stats_total t ON t.link = w.link"};

int postgres_top_links_get(struct pg_conn *c, struct top_links_query *q)
{
	const int64_t limit_ms = 1LL << 52;
	q->links = NULL;
	q->count = 0;
	if (q->from_ms >= q->to_ms)
		return 0;
	struct pg_query query = pg_query(c, &links_top);
	INTS(&query, day_of(MAX(q->from_ms, -limit_ms)), day_of(time_ceil(MIN(q->to_ms, limit_ms), DAY_MS)),
	     MIN(q->limit, (size_t)INT32_MAX));
	return postgres_rows(&query, 2, q->arena, &q->links, &q->count, NULL);
}

int postgres_clicks_get(struct pg_conn *c, struct sink_total *links, size_t n)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query query = pg_query(c, &links_clicks);
	PG_FIELDS(&query, pg_ints, links, n, link);
	int r = pg_ask(&query, &rows, NULL);
	if (r != 0)
		return r;
	for (size_t i = 0; i < n; i++)
		links[i].clicks = 0;
	for (int row = 0; row < rows.rows; row++)
		links[pg_get_int(&rows, row, 0) - 1].clicks = (uint64_t)pg_get_int(&rows, row, 1);
	return 0;
}
