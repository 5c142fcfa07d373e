/* Queries for windows of impressions, top links, clicks and reconciliation. */
#include "sink/ads.h"
#include "sink/clickhouse_sink.h"

#include <stdlib.h>

/* --- impressions --- */

/* impression.minute, the first column of the sorting key. */
static long long minute_of(int64_t ms)
{
	return MAX(MIN(time_floor(ms, MINUTE_MS) / MINUTE_MS, UINT32_MAX), 0);
}

enum { AD_BYTES_MIN = 1 + 8 + 1 }; /* of a row: an ad, its count, the end */

static void write_window(struct buf *sql, const struct ch_merged_days *merged, bool no_final, const void *arg)
{
	const struct window_query *q = arg;
	int64_t from_ms = ch_clamp(q->from_ms), to_ms = ch_clamp(q->to_ms);
	buf_printf(sql,
	           "SELECT ad, count() AS n FROM impression%s WHERE minute >= %lld AND minute <= %lld"
	           " AND time > %lld AND time <= %lld",
	           no_final ? "" : " FINAL", minute_of(from_ms), minute_of(to_ms), (long long)from_ms,
	           (long long)to_ms);
	ch_merged_days(merged, CH_IMPRESSION, no_final, sql);
	buf_printf(sql, " GROUP BY ad");
}

/* Clients choose the names: returns the ADS_MAX with the most impressions, and the sum of the others. */
static void write_windows(struct buf *sql, const struct ch_merged_days *merged, const void *arg)
{
	buf_printf(sql,
	           "SELECT if(rowNumberInAllBlocks() < %d, ad, '" ADS_OTHER
	           "') AS name, sum(m), toUInt8(0) FROM"
	           " (SELECT ad, sum(n) AS m FROM (",
	           ADS_MAX);
	ch_merged_parts(sql, merged, CH_IMPRESSION, write_window, arg);
	buf_printf(sql, ") GROUP BY ad ORDER BY m DESC, ad) GROUP BY name ORDER BY name");
}

int ch_window(struct sink *base, struct window_query *q)
{
	CLEANUP(buf_release) struct buf answer = {0};
	q->ads = NULL;
	q->count = 0;
	if (ch_clamp(q->from_ms) >= ch_clamp(q->to_ms))
		return 0;
	int r = ch_merged_select(ch_self(base), write_windows, q, &answer);
	if (r)
		return r;
	struct row_reader rows = row_reader_of(&answer);
	size_t room = answer.len / AD_BYTES_MIN, count = 0;
	struct ad_count *ads = arena_alloc(q->arena, MAX(room, 1) * sizeof(*ads));
	if (!ads)
		return ERR_NOMEM;
	for (; row_more(&rows) && count < room; row_end(&rows)) {
		struct str ad;
		if (!ch_text_get(&rows, q->arena, &ad))
			return ERR_NOMEM;
		ads[count++] = (struct ad_count){.ad = ad, .count = row_u64(&rows)};
	}
	q->ads = ads;
	q->count = count;
	return ch_rows_status(&rows);
}

/* --- links --- */

enum { TOTAL_BYTES = 8 + 8 + 1 }; /* of a row: a link, its clicks, the end */

static void write_top(struct buf *sql, const struct ch_merged_days *merged, bool no_final, const void *arg)
{
	const struct top_links_query *q = arg;
	buf_printf(sql, "SELECT link, count() AS n FROM visit%s", no_final ? "" : " FINAL");
	ch_where_time(sql, time_floor(ch_clamp(q->from_ms), DAY_MS), time_ceil(ch_clamp(q->to_ms), DAY_MS));
	buf_printf(sql, " AND kind = %d", VISIT_CLICK);
	ch_merged_days(merged, CH_VISIT, no_final, sql);
	buf_printf(sql, " GROUP BY link");
}

static void write_tops(struct buf *sql, const struct ch_merged_days *merged, const void *arg)
{
	const struct top_links_query *q = arg;
	buf_printf(sql, "SELECT link, sum(n) AS m, toUInt8(0) FROM (");
	ch_merged_parts(sql, merged, CH_VISIT, write_top, q);
	buf_printf(sql, ") GROUP BY link ORDER BY m DESC, link LIMIT %zu", q->limit);
}

int ch_top_links(struct sink *base, struct top_links_query *q)
{
	CLEANUP(buf_release) struct buf answer = {0};
	q->links = NULL;
	q->count = 0;
	if (q->from_ms >= q->to_ms)
		return 0;
	int r = ch_merged_select(ch_self(base), write_tops, q, &answer);
	if (r < 0)
		return r;
	struct row_reader rows = row_reader_of(&answer);
	size_t room = answer.len / TOTAL_BYTES, count = 0;
	struct sink_total *links = arena_alloc(q->arena, MAX(room, 1) * sizeof(*links));
	if (!links)
		return ERR_NOMEM;
	for (; row_more(&rows) && count < room; row_end(&rows)) {
		links[count].link = row_u64(&rows);
		links[count++].clicks = row_u64(&rows);
	}
	q->links = links;
	q->count = count;
	return ch_rows_status(&rows);
}

static int total_compare(const void *a, const void *b)
{
	const struct sink_total *x = a, *y = b;
	return x->link < y->link ? -1 : x->link > y->link;
}

struct clicks_query {
	struct sink_total *links; /* sorted, each once */
	size_t n;
};

/* Adds the clicks in rows, or in the sums of dropped days. */
static int add_clicks(struct sink_clickhouse *s, const struct ch_dropped_days *dropped,
                      struct clicks_query *q, bool in_rows)
{
	CLEANUP(buf_release) struct buf sql = {0}, answer = {0};
	if (in_rows)
		buf_printf(
		    &sql,
		    "SELECT link AS item, count(), toUInt8(0) FROM visit FINAL WHERE kind = %d AND link IN (",
		    VISIT_CLICK);
	else
		buf_printf(
		    &sql,
		    "SELECT item, sum(clicks), toUInt8(0) FROM day_total FINAL WHERE what = %d AND item IN (",
		    CH_VISIT);
	for (size_t i = 0; i < q->n; i++)
		buf_printf(&sql, "%s%llu", i ? ", " : "", (unsigned long long)q->links[i].link);
	buf_char(&sql, ')');
	if (in_rows)
		ch_dropped_skip_days(dropped, CH_VISIT, &sql);
	else
		ch_dropped_skip_sums(dropped, CH_VISIT, &sql);
	buf_printf(&sql, " GROUP BY item");
	int r = ch_select(s, &sql, &answer);
	if (r < 0)
		return r;
	struct row_reader rows = row_reader_of(&answer);
	while (row_more(&rows)) {
		struct sink_total found = {.link = row_u64(&rows)};
		found.clicks = row_u64(&rows);
		row_end(&rows);
		struct sink_total *of = bsearch(&found, q->links, q->n, sizeof(*q->links), total_compare);
		if (of && !rows.bad)
			of->clicks += found.clicks;
	}
	return ch_rows_status(&rows);
}

static int select_clicks(struct sink_clickhouse *s, const struct ch_dropped_days *dropped, void *arg)
{
	struct clicks_query *q = arg;
	for (size_t i = 0; i < q->n; i++)
		q->links[i].clicks = 0;
	int r = add_clicks(s, dropped, q, true);
	return r == 0 && ch_dropped_is_any(dropped) ? add_clicks(s, dropped, q, false) : r;
}

int ch_clicks(struct sink *base, struct sink_total *links, size_t n)
{
	struct sink_clickhouse *s = ch_self(base);
	struct sink_total sorted[SINK_CLICKS_MAX];
	struct clicks_query q = {.links = sorted};
	ASSERT(n <= SINK_CLICKS_MAX);
	if (n == 0)
		return 0;
	memcpy(sorted, links, n * sizeof(*links));
	qsort(sorted, n, sizeof(*sorted), total_compare);
	for (size_t i = 0; i < n; i++)
		if (q.n == 0 || sorted[q.n - 1].link != sorted[i].link)
			sorted[q.n++] = sorted[i];
	int r = ch_dropped_retry(s, select_clicks, &q);
	for (size_t i = 0; r == 0 && i < n; i++) {
		const struct sink_total *of = bsearch(&links[i], sorted, q.n, sizeof(*sorted), total_compare);
		links[i].clicks = of && of->link ? of->clicks : 0;
	}
	return r;
}

/* --- reconciliation --- */

/* How each table's rows, and the sums of its dropped days, are grouped and counted. */
static const struct reconcile_part {
	enum ch_table table;
	const char *group, *group_dropped, *count, *listed;
} reconcile_parts[] = {
    {CH_VISIT, "link != 0", "item != 0", "count()", "sum(details)"},
    {CH_IMPRESSION, "0", "0", "count()", "sum(details)"},
    {CH_NOTE, "kind", "item", "sum(count)", "0"},
};

struct reconcile_sums {
	uint64_t clicks, orphans, impressions, visit_rows, impression_rows;
	uint64_t notes[NOTE_KINDS];
};

struct reconcile_query {
	uint64_t node;
	bool deep;
	const struct ch_dropped_days *dropped;
	const struct reconcile_part *part; /* being written */
	struct reconcile_sums sums;
};

static void write_node(struct buf *sql, const struct reconcile_query *q)
{
	if (q->node)
		buf_printf(sql, " AND node = %llu", (unsigned long long)q->node);
}

static void write_part(struct buf *sql, const struct ch_merged_days *merged, bool no_final, const void *arg)
{
	const struct reconcile_query *q = arg;
	const struct reconcile_part *p = q->part;
	buf_printf(
	    sql,
	    "SELECT toUInt8(%d), toUInt64(%s) AS thing, toUInt64(%s), toUInt64(%s), toUInt8(0) FROM %s%s"
	    " WHERE 1",
	    p->table, p->group, p->count, q->deep ? p->listed : "0", ch_table_names[p->table],
	    no_final ? "" : " FINAL");
	write_node(sql, q);
	ch_dropped_skip_days(q->dropped, p->table, sql);
	ch_merged_days(merged, p->table, no_final, sql);
	buf_printf(sql, " GROUP BY thing");
}

static void write_sums(struct buf *sql, const struct ch_merged_days *merged, const void *arg)
{
	struct reconcile_query q = *(const struct reconcile_query *)arg;
	for (size_t i = 0; i < ARRAY_LEN(reconcile_parts); i++) {
		q.part = &reconcile_parts[i];
		buf_printf(sql, "%s", i ? " UNION ALL " : "");
		ch_merged_parts(sql, merged, q.part->table, write_part, &q);
		if (!ch_dropped_is_any(q.dropped))
			continue;
		buf_printf(sql,
		           " UNION ALL SELECT toUInt8(%d), toUInt64(%s) AS thing,"
		           " toUInt64(sum(events)), toUInt64(0), toUInt8(0) FROM day_total FINAL "
		           "WHERE what = %d",
		           q.part->table, q.part->group_dropped, q.part->table);
		write_node(sql, &q);
		ch_dropped_skip_sums(q.dropped, q.part->table, sql);
		buf_printf(sql, " GROUP BY thing");
	}
}

static int select_reconciliation(struct sink_clickhouse *s, const struct ch_dropped_days *dropped, void *arg)
{
	CLEANUP(buf_release) struct buf answer = {0};
	struct reconcile_query *q = arg;
	q->dropped = dropped;
	q->sums = (struct reconcile_sums){0};
	int r = ch_merged_select(s, write_sums, q, &answer);
	if (r)
		return r;
	struct row_reader rows = row_reader_of(&answer);
	while (row_more(&rows)) {
		uint8_t what = row_u8(&rows);
		uint64_t group = row_u64(&rows), n = row_u64(&rows), listed = row_u64(&rows);
		row_end(&rows);
		if (rows.bad)
			break;
		if (what == CH_VISIT) {
			*(group ? &q->sums.clicks : &q->sums.orphans) += n;
			q->sums.visit_rows += listed;
		} else if (what == CH_IMPRESSION) {
			q->sums.impressions += n;
			q->sums.impression_rows += listed;
		} else if (group < NOTE_KINDS) {
			q->sums.notes[group] += n;
		}
	}
	return ch_rows_status(&rows);
}

int ch_reconciliation(struct sink *base, uint64_t node, bool deep, struct reconciliation *ret)
{
	struct sink_clickhouse *s = ch_self(base);
	struct reconcile_query q = {.node = node, .deep = deep};
	int r = ch_dropped_retry(s, select_reconciliation, &q);
	if (r == 0) {
		const uint64_t *notes = q.sums.notes;
		*ret = (struct reconciliation){
		    .tally = {.clicks = q.sums.clicks + notes[NOTE_UNUSABLE_CLICK],
		              .orphans = q.sums.orphans + notes[NOTE_UNUSABLE_ORPHAN],
		              .impressions = q.sums.impressions + notes[NOTE_DUPLICATE] +
		                             notes[NOTE_UNUSABLE_IMPRESSION],
		              .duplicates = notes[NOTE_DUPLICATE],
		              .unusable_clicks = notes[NOTE_UNUSABLE_CLICK],
		              .unusable_impressions = notes[NOTE_UNUSABLE_IMPRESSION],
		              .rejected = notes[NOTE_REJECTED],
		              .dropped_clicks = notes[NOTE_DROPPED]},
		    .clicks_in_rollups = q.sums.clicks,
		    .orphans_in_rollups = q.sums.orphans,
		    .impressions_counted = q.sums.impressions,
		    .duplicates = notes[NOTE_DUPLICATE],
		    .visit_rows = q.sums.visit_rows,
		    .impression_rows = q.sums.impression_rows,
		};
	}
	return r;
}
