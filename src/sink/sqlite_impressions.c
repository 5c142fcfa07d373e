#include "base/grow.h"
#include "base/hash.h"
#include "sink/sort.h"
#include "sink/sqlite_sink.h"

#include <stdlib.h>

enum {
	ROW_IMPRESSIONS_MAX = 4096,
};

/* --- ads --- */

struct ad {
	int64_t id;       /* 0: none */
	int64_t last_day; /* of its newest impression */
};

static int ad_find(struct sqlite_conn *c, struct str name, struct ad *ret)
{
	CLEANUP(query_end) struct query q = query_begin(c, SQL_AD_BY_NAME);
	query_str(&q, name);
	bool found;
	int rc = query_find(&q, &found);
	*ret = (struct ad){0};
	if (found)
		*ret = (struct ad){.id = sqlite3_column_int64(q.stmt, 0),
		                   .last_day = sqlite3_column_int64(q.stmt, 1)};
	return rc;
}

static int ad_get(struct sqlite_conn *c, struct book_row *book, struct str name, struct ad *ret)
{
	ASSERT(name.ptr);
	int rc = ad_find(c, name, ret);
	if (rc == SQLITE_OK && ret->id == 0 && (book->new_ads >= NEW_ADS_PER_DAY || book->ads >= ADS_MAX)) {
		name = STR(ADS_OTHER);
		rc = ad_find(c, name, ret);
	}
	if (rc == SQLITE_OK && ret->id == 0) {
		*ret = (struct ad){.id = ++book->last_ad};
		book->ads++;
		book->new_ads++;
		CLEANUP(query_end) struct query q = QUERY(c, SQL_AD_INSERT, ret->id);
		query_str(&q, name);
		query_int(&q, ret->last_day);
		rc = query_run(&q);
	}
	return rc;
}

/* --- writing --- */

struct impression_writer {
	struct sqlite_conn *c;
	const struct sink_impression *const *impressions;
	size_t count;
	struct ad *ads;    /* of each impression */
	uint32_t *same;    /* hash table of ads: 1 + the index of an impression; 0: empty */
	size_t same_count; /* a power of two */
	struct sort_item *items, *room;
	struct counts counts;
	struct buf blob, details;
};

static void writer_release(struct impression_writer *w)
{
	free(w->ads);
	free(w->same);
	free(w->items);
	free(w->room);
	counts_release(&w->counts);
	buf_release(&w->blob);
	buf_release(&w->details);
}

/* Looks up each ad of the batch once. */
static int find_ads(struct impression_writer *w, struct book_row *book)
{
	int rc = SQLITE_OK;
	for (size_t i = 0; rc == SQLITE_OK && i < w->count; i++) {
		struct str ad = w->impressions[i]->ad;
		size_t at = hash_str(ad, (uintptr_t)w->same) & (w->same_count - 1);
		while (w->same[at] && !str_eq(w->impressions[w->same[at] - 1]->ad, ad))
			at = (at + 1) & (w->same_count - 1);
		if (w->same[at])
			w->ads[i] = w->ads[w->same[at] - 1];
		else
			rc = ad_get(w->c, book, ad, &w->ads[i]);
		w->same[at] = (uint32_t)i + 1; /* the last impression has the newest day */
		int64_t day = day_of(w->impressions[i]->time_ms);
		if (rc == SQLITE_OK && day > w->ads[i].last_day) {
			rc = RUN(w->c, SQL_AD_TOUCH, w->ads[i].id, day);
			w->ads[i].last_day = day;
		}
	}
	return rc;
}

/* Sorts those from `from_ms` on by bucket and ad. Returns how many. */
static size_t order(struct impression_writer *w, int64_t unit_ms, int64_t from_ms)
{
	size_t count = 0;
	for (size_t i = 0; i < w->count; i++) {
		int64_t time_ms = w->impressions[i]->time_ms;
		ASSERT(time_ms >= 0 && time_ms < 1LL << 48);
		if (time_ms >= from_ms)
			w->items[count++] = (struct sort_item){.major = (uint64_t)(time_ms / unit_ms),
			                                       .minor = (uint64_t)w->ads[i].id,
			                                       .index = (uint32_t)i};
	}
	sort_items(w->items, w->room, count);
	return count;
}

static size_t bucket_end(const struct impression_writer *w, size_t at, size_t count)
{
	size_t end = at + 1;
	while (end < count && w->items[end].major == w->items[at].major)
		end++;
	return end;
}

static int cell_read(struct impression_writer *w, int64_t key)
{
	CLEANUP(query_end) struct query q = QUERY(w->c, SQL_AD_CELL_GET, key);
	bool found;
	int rc = query_find(&q, &found);
	if (rc != SQLITE_OK || !found)
		return rc;
	return db_code(counts_add_blob(&w->counts, column_blob(&q, 0)));
}

static int cell_add(struct impression_writer *w, int64_t key, size_t from, size_t to)
{
	w->counts.count = 0;
	int r = 0;
	for (size_t i = from, end; r == 0 && i < to; i = end) {
		for (end = i + 1; end < to && w->items[end].minor == w->items[i].minor;)
			end++;
		r = counts_append(&w->counts, w->items[i].minor, end - i);
	}
	int rc = r == 0 ? cell_read(w, key) : SQLITE_NOMEM;
	if (rc != SQLITE_OK)
		return rc;
	w->blob.len = 0;
	counts_write(&w->counts, &w->blob);
	if (w->blob.failed)
		return SQLITE_NOMEM;
	CLEANUP(query_end) struct query q = QUERY(w->c, SQL_AD_CELL_PUT, key, counts_sum(&w->counts));
	query_blob(&q, w->blob.data, w->blob.len);
	return query_run(&q);
}

static int write_cells(struct impression_writer *w, enum ad_level level, int64_t from_ms)
{
	size_t count = order(w, ad_level_ms[level], from_ms);
	int rc = SQLITE_OK;
	for (size_t at = 0, end; rc == SQLITE_OK && at < count; at = end) {
		end = bucket_end(w, at, count);
		rc = cell_add(w, ad_cell_key(level, (int64_t)w->items[at].major * ad_level_ms[level]), at,
		              end);
	}
	return rc;
}

static void pack_text(struct buf *out, struct str text)
{
	uint8_t *at = (uint8_t *)buf_reserve(out, VARINT_BYTES_MAX);
	if (at)
		out->len += (size_t)(varint_put(at, text.len) - at);
	buf_str(out, text);
}

static int row_write(struct impression_writer *w, int64_t key, size_t from, size_t to)
{
	w->blob.len = w->details.len = 0;
	for (const struct sort_item *item = w->items + from; item < w->items + to; item++) {
		const struct sink_impression *i = w->impressions[item->index];
		uint8_t *ads = (uint8_t *)buf_reserve(&w->blob, 2UL * VARINT_BYTES_MAX);
		uint8_t *details = (uint8_t *)buf_reserve(&w->details, VARINT_BYTES_MAX);
		if (!ads || !details)
			return SQLITE_NOMEM;
		uint8_t *end = varint_put(varint_put(ads, (uint64_t)(i->time_ms % SECOND_MS)), item->minor);
		w->blob.len += (size_t)(end - ads);
		w->details.len += (size_t)(varint_put(details, zigzag(i->received_ms - i->time_ms)) -
		                           details);
		pack_text(&w->details, i->id);
		pack_text(&w->details, i->user);
	}
	if (w->blob.failed || w->details.failed)
		return SQLITE_NOMEM;
	CLEANUP(query_end) struct query q = QUERY(w->c, SQL_IMPRESSION_INSERT, key, to - from);
	query_blob(&q, w->blob.data, w->blob.len);
	query_blob(&q, w->details.data, w->details.len);
	return query_run(&q);
}

static int write_rows(struct impression_writer *w, const struct book_row *book)
{
	size_t count = order(w, SECOND_MS, book->kept_ms);
	int rc = SQLITE_OK;
	for (size_t at = 0; rc == SQLITE_OK && at < count;) {
		size_t end = bucket_end(w, at, count);
		int64_t second_ms = (int64_t)w->items[at].major * SECOND_MS, last = -1;
		rc = FIND(w->c, SQL_IMPRESSION_LAST, &last, 1, impression_key(second_ms, 0),
		          impression_key(second_ms + SECOND_MS, 0));
		int64_t part = last < 0 ? 0 : last % IMPRESSION_PARTS + 1;
		for (; rc == SQLITE_OK && at < end; part++) {
			/* When a second has no part left, commits append to existing ones in turn. */
			int64_t to_part = part < IMPRESSION_PARTS ? part
			                                          : (part + book->serial) % IMPRESSION_PARTS;
			size_t to = MIN(end, at + ROW_IMPRESSIONS_MAX);
			rc = row_write(w, impression_key(second_ms, to_part), at, to);
			at = to;
		}
	}
	return rc;
}

int impressions_write(struct sqlite_conn *c, struct book_row *book,
                      const struct sink_impression *const *impressions, size_t count)
{
	CLEANUP(writer_release)
	struct impression_writer w = {.c = c, .impressions = impressions, .count = count};
	for (w.same_count = 64; w.same_count < w.count * 2;)
		w.same_count *= 2;
	w.ads = malloc(w.count * sizeof(*w.ads));
	w.same = calloc(w.same_count, sizeof(*w.same));
	w.items = malloc(w.count * sizeof(*w.items));
	w.room = malloc(w.count * sizeof(*w.room));
	int rc = (w.ads && w.same && w.items && w.room ? SQLITE_OK : SQLITE_NOMEM)
	         ?: find_ads(&w, book)
	         ?: write_rows(&w, book);
	for (int level = 0; rc == SQLITE_OK && level < AD_LEVELS; level++)
		rc = write_cells(&w, level, level < AD_HOUR ? book->kept_ms : 0);
	return rc;
}

/* --- windows --- */

struct window_sum {
	struct sqlite_conn *c;
	uint64_t *by_ad; /* counts by id */
	size_t cap;
	uint64_t last; /* the largest id */
};

static int window_add(struct window_sum *a, uint64_t ad, uint64_t n)
{
	if (UNLIKELY(ad >= a->cap)) {
		if (ad > a->last)
			return SQLITE_CORRUPT;
		size_t before = a->cap;
		if (!ARRAY_ROOM(a->by_ad, a->cap, ad + 1))
			return SQLITE_NOMEM;
		memset(a->by_ad + before, 0, (a->cap - before) * sizeof(*a->by_ad));
	}
	a->by_ad[ad] += n;
	return SQLITE_OK;
}

static int add_cells(struct window_sum *a, enum ad_level level, int64_t from_ms, int64_t to_ms)
{
	CLEANUP(query_end)
	struct query q = QUERY(a->c, SQL_AD_CELL_RANGE, ad_cell_key(level, from_ms),
	                       ad_cell_key(level, to_ms));
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		struct counts_reader r = {.blob = blob_reader_of(column_blob(&q, 0))};
		struct count item;
		int added = SQLITE_OK;
		while (added == SQLITE_OK && counts_next(&r, &item))
			added = window_add(a, item.id, item.n);
		if (r.blob.bad)
			return SQLITE_CORRUPT;
		if (added != SQLITE_OK)
			return added;
	}
	return db_done(rc);
}

static int add_rows(struct window_sum *a, int64_t from_ms, int64_t to_ms)
{
	CLEANUP(query_end)
	struct query q = QUERY(a->c, SQL_IMPRESSION_RANGE, impression_key(from_ms, 0),
	                       impression_key(time_ceil(to_ms, SECOND_MS), 0));
	int rc;
	while ((rc = query_step(&q)) == SQLITE_ROW) {
		int64_t second_ms = (sqlite3_column_int64(q.stmt, 0) >> IMPRESSION_PART_BITS) * SECOND_MS;
		struct blob_reader r = blob_reader_of(column_blob(&q, 1));
		int added = SQLITE_OK;
		while (added == SQLITE_OK && r.at < r.end) {
			int64_t time_ms = second_ms + (int64_t)varint_get(&r);
			uint64_t ad = varint_get(&r);
			if (!r.bad && time_ms >= from_ms && time_ms < to_ms)
				added = window_add(a, ad, 1);
		}
		if (r.bad)
			return SQLITE_CORRUPT;
		if (added != SQLITE_OK)
			return added;
	}
	return db_done(rc);
}

static int ad_name(struct sqlite_conn *c, uint64_t id, struct arena *arena, struct str *ret)
{
	CLEANUP(query_end) struct query q = QUERY(c, SQL_AD_BY_ID, id);
	bool found;
	int rc = query_find(&q, &found);
	*ret = STR(ADS_OTHER); /* if its name was swept */
	if (rc != SQLITE_OK || !found)
		return rc;
	return db_column_str(&q, 0, arena, ret) ? SQLITE_OK : SQLITE_NOMEM;
}

static int window_fill(const struct window_sum *a, struct window_query *q)
{
	size_t count = 0;
	for (size_t id = 0; id < a->cap; id++)
		count += a->by_ad[id] > 0;
	struct ad_count *ads = arena_alloc(q->arena, MAX(count, 1) * sizeof(*ads));
	int rc = ads ? SQLITE_OK : SQLITE_NOMEM;
	count = 0;
	for (size_t id = 0; rc == SQLITE_OK && id < a->cap; id++) {
		if (a->by_ad[id] == 0)
			continue;
		ads[count].count = a->by_ad[id];
		rc = ad_name(a->c, id, q->arena, &ads[count++].ad);
	}
	if (rc != SQLITE_OK)
		return rc;
	q->ads = ads;
	q->count = ads_merge(ads, count);
	return SQLITE_OK;
}

int impressions_window(struct sqlite_conn *c, struct window_query *q)
{
	struct window_sum a = {.c = c};
	struct book_row book = {0};
	struct window_part parts[WINDOW_PARTS_MAX];
	int rc = book_get(c, &book);
	a.last = (uint64_t)book.last_ad;
	size_t count = window_split(q, book.kept_ms, parts);
	for (size_t i = 0; rc == SQLITE_OK && i < count; i++)
		rc = parts[i].level < 0 ? add_rows(&a, parts[i].from_ms, parts[i].to_ms)
		                        : add_cells(&a, parts[i].level, parts[i].from_ms, parts[i].to_ms);
	if (rc == SQLITE_OK)
		rc = window_fill(&a, q);
	free(a.by_ad);
	return rc;
}
