/* The books: what was consumed of each node's events, and what became of it. */
#include "base/grow.h"
#include "sink/postgres_sink.h"

/* --- adding --- */

/* As in the table; the first ones as in struct sink_tally. */
enum book_number {
	BOOK_CLICKS,
	BOOK_ORPHANS,
	BOOK_IMPRESSIONS,
	BOOK_BATCH_DUPLICATES,
	BOOK_UNUSABLE_CLICKS,
	BOOK_UNUSABLE_IMPRESSIONS,
	BOOK_REJECTED,
	BOOK_DROPPED_CLICKS,
	BOOK_DUPLICATES,
	BOOK_COUNTED_CLICKS,
	BOOK_COUNTED_ORPHANS,
	BOOK_COUNTED_IMPRESSIONS,
	BOOK_NUMBERS
};
_Static_assert(sizeof(struct sink_tally) == BOOK_DUPLICATES * sizeof(int64_t), "the tally comes first");

struct page {
	uint64_t node;
	int64_t numbers[BOOK_NUMBERS];
};

struct book {
	struct page *pages;
	size_t count, cap, last;
};

static void book_release(struct book *b)
{
	free(b->pages);
}

/* Events of one node mostly follow each other. NULL: memory ran out. */
static struct page *page_of(struct book *b, uint64_t node)
{
	if (b->count > 0 && b->pages[b->last].node == node)
		return &b->pages[b->last];
	for (b->last = 0; b->last < b->count; b->last++)
		if (b->pages[b->last].node == node)
			return &b->pages[b->last];
	if (!ARRAY_ROOM(b->pages, b->cap, b->count + 1))
		return NULL;
	b->pages[b->count++] = (struct page){.node = node};
	return &b->pages[b->last];
}

static int page_add(struct book *b, uint64_t node, enum book_number number, uint64_t n)
{
	struct page *p = page_of(b, node);
	if (!p)
		return ERR_NOMEM;
	p->numbers[number] += (int64_t)n;
	return 0;
}

/* What a note says was consumed, and what became of it. */
static const struct {
	int consumed, became; /* -1: nothing */
} note_numbers[NOTE_KINDS] = {
    [NOTE_DUPLICATE] = {BOOK_IMPRESSIONS, BOOK_BATCH_DUPLICATES},
    [NOTE_UNUSABLE_CLICK] = {BOOK_CLICKS, BOOK_UNUSABLE_CLICKS},
    [NOTE_UNUSABLE_ORPHAN] = {BOOK_ORPHANS, -1},
    [NOTE_UNUSABLE_IMPRESSION] = {BOOK_IMPRESSIONS, BOOK_UNUSABLE_IMPRESSIONS},
    [NOTE_REJECTED] = {-1, BOOK_REJECTED},
    [NOTE_DROPPED] = {-1, BOOK_DROPPED_CLICKS},
};

static int page_compare(const void *a, const void *b)
{
	uint64_t x = ((const struct page *)a)->node, y = ((const struct page *)b)->node;
	return x < y ? -1 : x > y;
}

/* Columns as in enum book_number. */
static const struct pg_statement reconcile_add = {
    "sink_books_add",
    "INSERT INTO stats_book AS b (node, clicks, orphans, impressions, batch_duplicates, unusable_clicks,"
    " unusable_impressions, rejected, dropped_clicks, duplicates, counted_clicks, counted_orphans,"
    " counted_impressions) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],"
    " $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],"
    " $12::bigint[], $13::bigint[]) ON CONFLICT (node) DO UPDATE SET clicks = b.clicks + excluded.clicks,"
    " orphans = b.orphans + excluded.orphans, impressions = b.impressions + excluded.impressions,"
    " batch_duplicates = b.batch_duplicates + excluded.batch_duplicates,"
    " unusable_clicks = b.unusable_clicks + excluded.unusable_clicks,"
    " unusable_impressions = b.unusable_impressions + excluded.unusable_impressions,"
    " rejected = b.rejected + excluded.rejected, dropped_clicks = b.dropped_clicks + excluded.dropped_clicks,"
    " duplicates = b.duplicates + excluded.duplicates,"
    " counted_clicks = b.counted_clicks + excluded.counted_clicks,"
    " counted_orphans = b.counted_orphans + excluded.counted_orphans,"
    " counted_impressions = b.counted_impressions + excluded.counted_impressions"};

int postgres_reconciliation_put(struct pg_conn *c, const struct sink_batch *batch, const bool *kept)
{
	CLEANUP(book_release) struct book book = {0};
	int r = 0;
	for (size_t i = 0; r == 0 && i < batch->visit_count; i++) {
		bool orphan = batch->visits[i].link == 0;
		uint64_t node = batch->visits[i].event.node;
		r = page_add(&book, node, orphan ? BOOK_ORPHANS : BOOK_CLICKS, 1)
		        ?: page_add(&book, node, orphan ? BOOK_COUNTED_ORPHANS : BOOK_COUNTED_CLICKS, 1);
	}
	for (size_t i = 0; r == 0 && i < batch->impression_count; i++) {
		uint64_t node = batch->impressions[i].event.node;
		r = page_add(&book, node, BOOK_IMPRESSIONS, 1)
		        ?: page_add(&book, node, kept[i] ? BOOK_COUNTED_IMPRESSIONS : BOOK_DUPLICATES, 1);
	}
	for (size_t i = 0; r == 0 && i < batch->note_count; i++) {
		const struct sink_note *n = &batch->notes[i];
		int consumed = note_numbers[n->kind].consumed, became = note_numbers[n->kind].became;
		if (consumed >= 0)
			r = page_add(&book, n->event.node, (enum book_number)consumed, n->count);
		if (r == 0 && became >= 0)
			r = page_add(&book, n->event.node, (enum book_number)became, n->count);
	}
	if (r != 0 || book.count == 0)
		return r;
	qsort(book.pages, book.count, sizeof(*book.pages), page_compare);
	struct pg_query q = pg_query(c, &reconcile_add);
	PG_FIELDS(&q, pg_ints, book.pages, book.count, node);
	for (int number = 0; number < BOOK_NUMBERS; number++)
		PG_FIELDS(&q, pg_ints, book.pages, book.count, numbers[number]);
	pg_send(&q);
	return 0;
}

/* --- asking --- */

static const struct pg_statement reconcile_tally = {
    "sink_books_tally",
    "SELECT coalesce(sum(clicks), 0)::bigint, coalesce(sum(orphans), 0)::bigint, coalesce(sum(impressions),"
    " 0)::bigint, coalesce(sum(batch_duplicates), 0)::bigint, coalesce(sum(unusable_clicks), 0)::bigint,"
    " coalesce(sum(unusable_impressions), 0)::bigint, coalesce(sum(rejected), 0)::bigint,"
    " coalesce(sum(dropped_clicks), 0)::bigint, coalesce(sum(duplicates), 0)::bigint,"
    " coalesce(sum(counted_clicks), 0)::bigint, coalesce(sum(counted_orphans), 0)::bigint,"
    " coalesce(sum(counted_impressions), 0)::bigint FROM stats_book WHERE $1::bigint = 0 OR node = "
    "$1::bigint"};

/* Of all nodes: from the rollups themselves. */
static const struct pg_statement reconcile_rollups = {
    "sink_books_rollups",
    "SELECT r.clicks + coalesce((SELECT sum(count) FROM stats_cell WHERE link = 0), 0)::bigint,"
    " r.orphans + coalesce((SELECT sum(count) FROM stats_cell WHERE link = -1), 0)::bigint,"
    " r.impressions + coalesce((SELECT sum(count) FROM stats_ad_cell WHERE level = 3), 0)::bigint"
    " FROM stats_retired r WHERE r.id = 1"};
static const struct pg_statement reconcile_rollups_deep = {
    "sink_books_rollups_deep",
    "SELECT r.link_clicks + coalesce((SELECT sum(count) FROM stats_cell WHERE link > 0), 0)::bigint,"
    " r.orphans + coalesce((SELECT sum(count) FROM stats_cell WHERE link = -1), 0)::bigint,"
    " r.impressions + coalesce((SELECT sum(count) FROM stats_ad_cell WHERE level = 2), 0)::bigint"
    " FROM stats_retired r WHERE r.id = 1"};
static const struct pg_statement reconcile_rows = {
    "sink_books_rows", "SELECT (SELECT count(*) FROM stats_visit WHERE $1::bigint = 0 OR node = $1::bigint),"
                       " (SELECT count(*) FROM stats_impression WHERE $1::bigint = 0 OR node = $1::bigint)"};

/* Rollups do not know nodes: of one node the book says what went into them. */
int postgres_reconciliation_get(struct pg_conn *c, uint64_t node, bool deep, struct reconciliation *ret)
{
	int64_t n[BOOK_NUMBERS] = {0}, rows[2] = {0};
	struct pg_query q = pg_query(c, &reconcile_tally);
	pg_int(&q, (int64_t)node);
	int r = postgres_find(&q, n, BOOK_NUMBERS, NULL);
	if (r == 0 && node == 0) {
		q = pg_query(c, deep ? &reconcile_rollups_deep : &reconcile_rollups);
		r = postgres_find(&q, n + BOOK_COUNTED_CLICKS, 3, NULL);
	}
	if (r == 0 && deep) {
		q = pg_query(c, &reconcile_rows);
		pg_int(&q, (int64_t)node);
		r = postgres_find(&q, rows, 2, NULL);
	}
	if (r != 0)
		return r;
	*ret = (struct reconciliation){
	    .duplicates = (uint64_t)(n[BOOK_BATCH_DUPLICATES] + n[BOOK_DUPLICATES]),
	    .clicks_in_rollups = (uint64_t)n[BOOK_COUNTED_CLICKS],
	    .orphans_in_rollups = (uint64_t)n[BOOK_COUNTED_ORPHANS],
	    .impressions_counted = (uint64_t)n[BOOK_COUNTED_IMPRESSIONS],
	    .visit_rows = (uint64_t)rows[0],
	    .impression_rows = (uint64_t)rows[1],
	};
	memcpy(&ret->tally, n, sizeof(ret->tally));
	return 0;
}
