/* Queries for top links, clicks and reconciliation, and lookups that several queries share. */
#include "base/hash.h"
#include "sink/day_sketches.h"
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
		if (!db_column_str(&q, 2 + i, arena, &ret->dims[i]))
			return SQLITE_NOMEM;
	return SQLITE_OK;
}

int sqlite_day_sketches_get(const struct query *q, struct day_sketches *ret)
{
	bool is_mixed = sqlite3_column_type(q->stmt, 3) == SQLITE_NULL;
	struct str bots = column_blob(q, 3); /* without an address if it is empty */
	if (!is_mixed && !bots.ptr)
		bots = STR("");
	return day_sketches_read(ret, column_blob(q, 2), bots) ? SQLITE_OK : SQLITE_CORRUPT;
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

/* --- clicks of links --- */

/* Clicks by link: open addressing, at most half full; link 0 is an empty slot. */
struct link_map {
	struct sink_total *slots;
	size_t slot_count, count;
	int64_t from_ms, to_ms; /* of the visits that count */
};

static struct sink_total *link_slot(const struct link_map *m, uint64_t link)
{
	size_t at = hash_u64(link, 0x2d358dccaa6c78a5ULL) & (m->slot_count - 1);
	while (m->slots[at].link != 0 && m->slots[at].link != link)
		at = (at + 1) & (m->slot_count - 1);
	return &m->slots[at];
}

static int link_add(struct link_map *m, uint64_t link, uint64_t clicks)
{
	if (m->count * 2 >= m->slot_count) {
		struct link_map larger = {.slot_count = MAX(m->slot_count * 2, 1024)};
		larger.slots = calloc(larger.slot_count, sizeof(*larger.slots));
		if (!larger.slots)
			return SQLITE_NOMEM;
		for (size_t i = 0; i < m->slot_count; i++)
			if (m->slots[i].link != 0)
				*link_slot(&larger, m->slots[i].link) = m->slots[i];
		free(m->slots);
		m->slots = larger.slots;
		m->slot_count = larger.slot_count;
	}
	struct sink_total *slot = link_slot(m, link);
	m->count += slot->link == 0;
	slot->link = link;
	slot->clicks += clicks;
	return SQLITE_OK;
}

static int top_buffered(void *arg, const struct buffered *v)
{
	struct link_map *m = arg;
	if (!v->key.click || v->key.time_ms < m->from_ms || v->key.time_ms >= m->to_ms)
		return SQLITE_OK;
	return link_add(m, v->key.link, 1);
}

static int top_days(struct sqlite_conn *c, struct link_map *m)
{
	CLEANUP(query_end)
	struct query q = QUERY(c, SQL_DAY_LINK_RANGE, day_of(m->from_ms), day_of(m->to_ms));
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		int64_t clicks = sqlite3_column_int64(q.stmt, 1);
		int r = clicks > 0 ? link_add(m, (uint64_t)sqlite3_column_int64(q.stmt, 0), (uint64_t)clicks)
		                   : SQLITE_OK;
		if (r != SQLITE_OK)
			return r;
	}
	return db_done(rc);
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
	struct link_map m = {.from_ms = time_floor(MAX(q->from_ms, -limit_ms), DAY_MS),
	                     .to_ms = time_ceil(MIN(q->to_ms, limit_ms), DAY_MS)};
	q->links = NULL;
	q->count = 0;
	if (q->from_ms >= q->to_ms)
		return SQLITE_OK;
	int rc = top_days(c, &m) ?: buffer_each(c, top_buffered, &m);
	if (rc == SQLITE_OK && m.count > 0) {
		qsort(m.slots, m.slot_count, sizeof(*m.slots), total_compare);
		size_t count = MIN(m.count, q->limit);
		q->links = arena_alloc(q->arena, MAX(count, 1) * sizeof(*q->links));
		if (q->links) {
			memcpy(q->links, m.slots, count * sizeof(*q->links));
			q->count = count;
		} else {
			rc = SQLITE_NOMEM;
		}
	}
	free(m.slots);
	return rc;
}

static int clicks_buffered(void *arg, const struct buffered *v)
{
	struct sink_total *slot = v->key.click ? link_slot(arg, v->key.link) : NULL;
	if (slot && slot->link != 0)
		slot->clicks++;
	return SQLITE_OK;
}

/* The table `total` has the compacted clicks of each link, also those whose cells have expired. The buffer is
 * scanned once for all links. */
int sqlite_clicks_get(struct sqlite_conn *c, struct sink_total *links, size_t n)
{
	struct sink_total slots[2 * SINK_CLICKS_MAX];
	struct link_map m = {.slots = slots, .slot_count = 2}; /* few links use few cache lines */
	while (m.slot_count < 2 * n)
		m.slot_count *= 2;
	memset(slots, 0, m.slot_count * sizeof(*slots));
	for (size_t i = 0; i < n; i++)
		link_slot(&m, links[i].link)->link = links[i].link;
	int rc = buffer_each(c, clicks_buffered, &m);
	for (size_t i = 0; rc == SQLITE_OK && i < m.slot_count; i++) {
		int64_t compacted = 0;
		if (slots[i].link != 0)
			rc = FIND(c, SQL_TOTAL_GET, &compacted, 1, slots[i].link);
		slots[i].clicks += (uint64_t)compacted;
	}
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++)
		links[i].clicks = links[i].link ? link_slot(&m, links[i].link)->clicks : 0;
	return rc;
}

/* --- reconciliation --- */

/* Adds up the blobs themselves, not the sums stored beside them. */
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
	return db_done(rc);
}

static int count_buffered(void *arg, const struct buffered *v)
{
	struct reconciliation *b = arg;
	b->visit_rows++;
	*(v->key.link == 0 ? &b->orphans_in_rollups : &b->clicks_in_rollups) += 1;
	return SQLITE_OK;
}

/* Adds to the retired counts, which are in `ret`. */
static int count_deep(struct sqlite_conn *c, const struct book_row *book, struct reconciliation *ret)
{
	int64_t links[2] = {0}, together[2] = {0}, rows[2] = {0};
	uint64_t impressions = 0;
	/* Orphans are only in cells of all links together. */
	int rc = FIND(c, SQL_CELL_SUMS, links, 2, 0, CELL_TOGETHER)
	         ?: FIND(c, SQL_CELL_SUMS, together, 2, CELL_TOGETHER, INT64_MAX)
	         ?: FIND(c, SQL_VISIT_COUNT, &rows[0], 1)
	         ?: FIND(c, SQL_IMPRESSION_COUNT, &rows[1], 1)
	         ?: count_hours(c, &impressions);
	ret->clicks_in_rollups = book->retired_link_clicks + (uint64_t)links[0];
	ret->orphans_in_rollups += (uint64_t)together[1];
	ret->impressions_counted += impressions;
	ret->visit_rows += (uint64_t)rows[0];
	ret->impression_rows = (uint64_t)rows[1];
	return rc == SQLITE_OK ? buffer_each(c, count_buffered, ret) : rc;
}

static int count_shallow(struct sqlite_conn *c, const struct book_row *book, struct reconciliation *ret)
{
	int64_t together[2] = {0}, buffer[2] = {0}, impressions = 0;
	int rc = FIND(c, SQL_CELL_SUMS, together, 2, CELL_TOGETHER, INT64_MAX)
	         ?: FIND(c, SQL_BUFFER_SUMS, buffer, 2)
	         ?: FIND(c, SQL_AD_CELL_SUM, &impressions, 1, ad_cell_key(AD_DAY, 0));
	buffer[0] -= (int64_t)book->compaction.visits;
	buffer[1] -= (int64_t)book->compaction.orphans;
	ret->clicks_in_rollups += (uint64_t)(together[0] + buffer[0] - buffer[1]);
	ret->orphans_in_rollups += (uint64_t)(together[1] + buffer[1]);
	ret->impressions_counted += (uint64_t)impressions;
	return rc;
}

int sqlite_reconciliation_get(struct sqlite_conn *c, bool deep, struct reconciliation *ret)
{
	struct book_row book;
	int rc = book_get(c, &book);
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
