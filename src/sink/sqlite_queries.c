#include "base/hash.h"
#include "sink/sqlite_sink.h"

#include <stdlib.h>

int sqlite_set_get(struct sqlite_conn *c, uint64_t id, struct arena *arena, struct dimension_set *ret)
{
	CLEANUP(query_end) struct query q = QUERY(c, SQL_SET_BY_ID, id);
	bool found;
	int rc = query_find(&q, &found);
	if (rc != SQLITE_OK || !found)
		return rc == SQLITE_OK ? SQLITE_CORRUPT : rc;
	int kind = sqlite3_column_int(q.stmt, 1);
	if (kind < 0 || kind >= VISIT_KINDS)
		return SQLITE_CORRUPT;
	ret->kind = (enum visit_kind)kind;
	for (int i = 0; i < DIM_COUNT; i++)
		if (!layout_column_str(&q, 2 + i, arena, &ret->dims[i]))
			return SQLITE_NOMEM;
	return SQLITE_OK;
}

int sqlite_spans_get(struct sqlite_conn *c, int64_t link, struct cell_spans *ret)
{
	int rc = SQLITE_OK;
	for (int level = 0; rc == SQLITE_OK && level < CELL_LEVELS; level++) {
		int64_t key = cell_level_key(level, link);
		ret->first_ms[level] = INT64_MAX;
		ret->last_ms[level] = INT64_MIN;
		rc = FIND(c, SQL_CELL_OLDEST, &ret->first_ms[level], 1, key)
		         ?: FIND(c, SQL_CELL_NEWEST, &ret->last_ms[level], 1, key);
	}
	return rc;
}

/* --- the top --- */

/* Clicks by link: open addressing, 0 is an empty slot. */
struct top {
	struct sink_total *slots;
	size_t slot_count, count;
	int64_t from_ms, to_ms; /* whole days */
};

static void top_put(struct top *t, uint64_t link, uint64_t clicks)
{
	size_t at = hash_u64(link, 0x2d358dccaa6c78a5ULL) & (t->slot_count - 1);
	while (t->slots[at].link != 0 && t->slots[at].link != link)
		at = (at + 1) & (t->slot_count - 1);
	t->count += t->slots[at].link == 0;
	t->slots[at].link = link;
	t->slots[at].clicks += clicks;
}

static int top_add(struct top *t, uint64_t link, uint64_t clicks)
{
	if (t->count * 2 >= t->slot_count) {
		struct top larger = {.slot_count = MAX(t->slot_count * 2, 1024)};
		larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
		if (!larger.slots)
			return SQLITE_NOMEM;
		for (size_t i = 0; i < t->slot_count; i++)
			if (t->slots[i].link != 0)
				top_put(&larger, t->slots[i].link, t->slots[i].clicks);
		free(t->slots);
		t->slots = larger.slots;
		t->slot_count = larger.slot_count;
	}
	top_put(t, link, clicks);
	return SQLITE_OK;
}

static int top_buffered(void *arg, uint64_t ordinal, const struct visit_key *key, uint32_t visitor)
{
	(void)ordinal;
	(void)visitor;
	struct top *t = arg;
	if (!key->click || key->time_ms < t->from_ms || key->time_ms >= t->to_ms)
		return SQLITE_OK;
	return top_add(t, key->link, 1);
}

static int top_days(struct sqlite_conn *c, struct top *t)
{
	CLEANUP(query_end)
	struct query q = QUERY(c, SQL_DAY_LINK_RANGE, day_of(t->from_ms), day_of(t->to_ms));
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		int64_t clicks = sqlite3_column_int64(q.stmt, 1);
		int r = clicks > 0 ? top_add(t, (uint64_t)sqlite3_column_int64(q.stmt, 0), (uint64_t)clicks)
		                   : SQLITE_OK;
		if (r != SQLITE_OK)
			return r;
	}
	return layout_done(rc);
}

/* Most clicks first, then the older link; empty slots last. */
static int total_compare(const void *a, const void *b)
{
	const struct sink_total *x = a, *y = b;
	if (x->clicks != y->clicks)
		return x->clicks > y->clicks ? -1 : 1;
	return x->link < y->link ? -1 : x->link > y->link;
}

int sqlite_top_links_get(struct sqlite_conn *c, struct top_links_query *q)
{
	const int64_t limit_ms = 1LL << 52;
	struct top t = {.from_ms = time_floor(MAX(q->from_ms, -limit_ms), DAY_MS),
	                .to_ms = time_ceil(MIN(q->to_ms, limit_ms), DAY_MS)};
	q->links = NULL;
	q->count = 0;
	if (q->from_ms >= q->to_ms)
		return SQLITE_OK;
	int rc = top_days(c, &t) ?: buffer_each(c, top_buffered, &t);
	if (rc == SQLITE_OK && t.count > 0) {
		qsort(t.slots, t.slot_count, sizeof(*t.slots), total_compare);
		size_t count = MIN(t.count, q->limit);
		q->links = arena_alloc(q->arena, MAX(count, 1) * sizeof(*q->links));
		if (q->links) {
			memcpy(q->links, t.slots, count * sizeof(*q->links));
			q->count = count;
		} else {
			rc = SQLITE_NOMEM;
		}
	}
	free(t.slots);
	return rc;
}

/* --- the books --- */

/* Not from the sums beside them, but from the bytes themselves. */
static int count_hours(struct sqlite_conn *c, uint64_t *ret)
{
	CLEANUP(query_end)
	struct query q = QUERY(c, SQL_AD_CELL_RANGE, ad_cell_key(AD_HOUR, 0), ad_cell_key(AD_DAY, 0));
	*ret = 0;
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		struct counts_reader r = {.blob = blob_reader_of(column_blob(&q, 0))};
		struct count item;
		while (counts_next(&r, &item))
			*ret += item.n;
		if (r.blob.bad)
			return SQLITE_CORRUPT;
	}
	return layout_done(rc);
}

static int count_buffered(void *arg, uint64_t ordinal, const struct visit_key *key, uint32_t visitor)
{
	(void)ordinal;
	(void)visitor;
	struct reconciliation *b = arg;
	b->visit_rows++;
	if (key->link == 0)
		b->orphans_in_rollups++;
	else
		b->clicks_in_rollups++;
	return SQLITE_OK;
}

/* Adds to what has retired. */
static int count_deep(struct sqlite_conn *c, const struct book *book, struct reconciliation *ret)
{
	int64_t links[2] = {0}, together[2] = {0}, rows[2] = {0};
	uint64_t impressions = 0;
	int rc = FIND(c, SQL_CELL_SUMS, links, 2, 0, CELL_TOGETHER);
	if (rc == SQLITE_OK) /* orphans have no cells but these */
		rc = FIND(c, SQL_CELL_SUMS, together, 2, CELL_TOGETHER, INT64_MAX);
	if (rc == SQLITE_OK)
		rc = FIND(c, SQL_VISIT_COUNT, &rows[0], 1);
	if (rc == SQLITE_OK)
		rc = FIND(c, SQL_IMPRESSION_COUNT, &rows[1], 1);
	if (rc == SQLITE_OK)
		rc = count_hours(c, &impressions);
	ret->clicks_in_rollups = book->retired_link_clicks + (uint64_t)links[0];
	ret->orphans_in_rollups += (uint64_t)together[1];
	ret->impressions_counted += impressions;
	ret->visit_rows += (uint64_t)rows[0];
	ret->impression_rows = (uint64_t)rows[1];
	return rc == SQLITE_OK ? buffer_each(c, count_buffered, ret) : rc;
}

static int count_shallow(struct sqlite_conn *c, const struct book *book, struct reconciliation *ret)
{
	int64_t together[2] = {0}, buffer[2] = {0}, impressions = 0;
	int rc = FIND(c, SQL_CELL_SUMS, together, 2, CELL_TOGETHER, INT64_MAX)
	         ?: FIND(c, SQL_BUFFER_SUMS, buffer, 2)
	         ?: FIND(c, SQL_AD_CELL_SUM, &impressions, 1, ad_cell_key(AD_DAY, 0));
	buffer[0] -= (int64_t)book->digesting.visits;
	buffer[1] -= (int64_t)book->digesting.orphans;
	ret->clicks_in_rollups += (uint64_t)(together[0] + buffer[0] - buffer[1]);
	ret->orphans_in_rollups += (uint64_t)(together[1] + buffer[1]);
	ret->impressions_counted += (uint64_t)impressions;
	return rc;
}

int sqlite_reconciliation_get(struct sqlite_conn *c, bool deep, struct reconciliation *ret)
{
	struct book book;
	int rc = layout_book_get(c, &book);
	if (rc != SQLITE_OK)
		return rc;
	struct reconciliation b = {.tally = book.tally,
	                           .clicks_in_rollups = book.retired_clicks,
	                           .orphans_in_rollups = book.retired_orphans,
	                           .impressions_counted = book.retired_impressions,
	                           .duplicates = book.tally.duplicates + book.duplicates};
	rc = deep ? count_deep(c, &book, &b) : count_shallow(c, &book, &b);
	if (rc == SQLITE_OK)
		*ret = b;
	return rc;
}
