/* The books: what was consumed of each node's events, and what became of it. */
#include "sink/postgres_sink.h"

#include <stdlib.h>

/* --- adding --- */

enum { BOOK_NUMBERS = 12 };

/* As in the table. */
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
};
_Static_assert(BOOK_COUNTED_IMPRESSIONS + 1 == BOOK_NUMBERS, "one for each column");

struct page {
	uint64_t node;
	int64_t numbers[BOOK_NUMBERS];
};

struct book {
	struct arena *arena;
	struct page *pages;
	size_t count, cap, last;
};

/* Events of one node mostly follow each other. NULL: memory ran out. */
static struct page *page_of(struct book *b, uint64_t node)
{
	if (b->count > 0 && b->pages[b->last].node == node)
		return &b->pages[b->last];
	for (b->last = 0; b->last < b->count; b->last++)
		if (b->pages[b->last].node == node)
			return &b->pages[b->last];
	if (b->count == b->cap) {
		size_t cap = b->cap ? b->cap * 2 : 8;
		struct page *larger = arena_alloc(b->arena, cap * sizeof(*larger));
		if (!larger)
			return NULL;
		if (b->count > 0)
			memcpy(larger, b->pages, b->count * sizeof(*larger));
		b->pages = larger;
		b->cap = cap;
	}
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

static int note_add(struct book *b, const struct sink_note *n)
{
	int consumed = note_numbers[n->kind].consumed, became = note_numbers[n->kind].became;
	int r = consumed >= 0 ? page_add(b, n->event.node, (enum book_number)consumed, n->count) : 0;
	if (r == 0 && became >= 0)
		r = page_add(b, n->event.node, (enum book_number)became, n->count);
	return r;
}

static int book_fill(struct book *book, const struct sink_batch *b, const bool *kept)
{
	int result = 0;
	for (size_t i = 0; result == 0 && i < b->visit_count; i++) {
		bool orphan = b->visits[i].link == 0;
		uint64_t node = b->visits[i].event.node;
		result = page_add(book, node, orphan ? BOOK_ORPHANS : BOOK_CLICKS, 1);
		if (result == 0)
			result = page_add(book, node, orphan ? BOOK_COUNTED_ORPHANS : BOOK_COUNTED_CLICKS, 1);
	}
	for (size_t i = 0; result == 0 && i < b->impression_count; i++) {
		uint64_t node = b->impressions[i].event.node;
		result = page_add(book, node, BOOK_IMPRESSIONS, 1);
		if (result == 0)
			result = page_add(book, node, kept[i] ? BOOK_COUNTED_IMPRESSIONS : BOOK_DUPLICATES,
			                  1);
	}
	for (size_t i = 0; result == 0 && i < b->note_count; i++)
		result = note_add(book, &b->notes[i]);
	return result;
}

static int page_compare(const void *a, const void *b)
{
	uint64_t x = ((const struct page *)a)->node, y = ((const struct page *)b)->node;
	return x < y ? -1 : x > y;
}

#define ADD(column) column " = stats_book." column " + excluded." column

static const struct pg_statement books_add = {
    "sink_books_add",
    "INSERT INTO stats_book (node, clicks, orphans, impressions, batch_duplicates, unusable_clicks,"
    " unusable_impressions, rejected, dropped_clicks, duplicates, counted_clicks, counted_orphans,"
    " counted_impressions) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], "
    "$4::bigint[],"
    " $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], "
    "$11::bigint[],"
    " $12::bigint[], $13::bigint[]) ON CONFLICT (node) DO UPDATE SET " ADD("clicks") ", " ADD(
        "orpha"
        "ns") ", " ADD("impressions") ", " ADD("batch_duplicates") ", " ADD("unusable_clicks") ", " ADD("unus"
                                                                                                        "able"
                                                                                                        "_imp"
                                                                                                        "ress"
                                                                                                        "ion"
                                                                                                        "s") ", " ADD("rejected") ", " ADD("dropped_clicks") ", " ADD("duplicate"
                                                                                                                                                                      "s") ","
                                                                                                                                                                           " " ADD("counted_clicks") ", " ADD(
                                                                                                                                                                               "counted_orphans") ", " ADD("counted_impressions")};

static int book_send(struct pg_conn *c, const struct book *book)
{
	int64_t *column = arena_alloc(book->arena, book->count * sizeof(*column));
	if (!column)
		return ERR_NOMEM;
	struct pg_query q = pg_query(c, &books_add);
	for (size_t i = 0; i < book->count; i++)
		column[i] = (int64_t)book->pages[i].node;
	pg_ints(&q, column, book->count);
	for (int number = 0; number < BOOK_NUMBERS; number++) {
		for (size_t i = 0; i < book->count; i++)
			column[i] = book->pages[i].numbers[number];
		pg_ints(&q, column, book->count);
	}
	pg_send(&q);
	return 0;
}

int postgres_books_put(struct pg_conn *c, const struct sink_batch *batch, const bool *kept)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct book book = {.arena = &arena};
	int r = book_fill(&book, batch, kept);
	if (r != 0 || book.count == 0)
		return r;
	qsort(book.pages, book.count, sizeof(*book.pages), page_compare);
	return book_send(c, &book);
}

/* --- asking --- */

static const struct pg_statement books_tally = {
    "sink_books_tally",
    "SELECT coalesce(sum(clicks), 0)::bigint, coalesce(sum(orphans), 0)::bigint, coalesce(sum(impressions),"
    " 0)::bigint, coalesce(sum(batch_duplicates), 0)::bigint, coalesce(sum(unusable_clicks), 0)::bigint,"
    " coalesce(sum(unusable_impressions), 0)::bigint, coalesce(sum(rejected), 0)::bigint,"
    " coalesce(sum(dropped_clicks), 0)::bigint, coalesce(sum(duplicates), 0)::bigint,"
    " coalesce(sum(counted_clicks), 0)::bigint, coalesce(sum(counted_orphans), 0)::bigint,"
    " coalesce(sum(counted_impressions), 0)::bigint FROM stats_book WHERE $1::bigint = 0 OR node = "
    "$1::bigint"};

/* Of all nodes: from the rollups themselves. */
static const struct pg_statement books_rollups = {
    "sink_books_rollups",
    "SELECT r.clicks + coalesce((SELECT sum(count) FROM stats_cell WHERE link = 0), 0)::bigint,"
    " r.orphans + coalesce((SELECT sum(count) FROM stats_cell WHERE link = -1), 0)::bigint,"
    " r.impressions + coalesce((SELECT sum(count) FROM stats_ad_cell WHERE level = 3), 0)::bigint"
    " FROM stats_retired r WHERE r.id = 1"};
static const struct pg_statement books_rollups_deep = {
    "sink_books_rollups_deep",
    "SELECT r.link_clicks + coalesce((SELECT sum(count) FROM stats_cell WHERE link > 0), 0)::bigint,"
    " r.orphans + coalesce((SELECT sum(count) FROM stats_cell WHERE link = -1), 0)::bigint,"
    " r.impressions + coalesce((SELECT sum(count) FROM stats_ad_cell WHERE level = 2), 0)::bigint"
    " FROM stats_retired r WHERE r.id = 1"};
static const struct pg_statement books_rows = {
    "sink_books_rows", "SELECT (SELECT count(*) FROM stats_visit WHERE $1::bigint = 0 OR node = $1::bigint),"
                       " (SELECT count(*) FROM stats_impression WHERE $1::bigint = 0 OR node = $1::bigint)"};

static uint64_t cell(const struct pg_result *r, int column)
{
	return (uint64_t)pg_get_int(r, 0, column);
}

static int tally_ask(struct pg_conn *c, uint64_t node, struct sink_books *ret)
{
	struct pg_result rows;
	struct pg_query q = pg_query(c, &books_tally);
	pg_int(&q, (int64_t)node);
	int r = pg_ask(&q, &rows, NULL);
	if (r != 0)
		return r;
	*ret = (struct sink_books){.tally = {.clicks = cell(&rows, 0),
	                                     .orphans = cell(&rows, 1),
	                                     .impressions = cell(&rows, 2),
	                                     .duplicates = cell(&rows, 3),
	                                     .unusable_clicks = cell(&rows, 4),
	                                     .unusable_impressions = cell(&rows, 5),
	                                     .rejected = cell(&rows, 6),
	                                     .dropped_clicks = cell(&rows, 7)},
	                           .duplicates = cell(&rows, 3) + cell(&rows, 8),
	                           .clicks_in_rollups = cell(&rows, 9),
	                           .orphans_in_rollups = cell(&rows, 10),
	                           .impressions_counted = cell(&rows, 11)};
	pg_result_end(&rows);
	return 0;
}

static int rollups_ask(struct pg_conn *c, bool deep, struct sink_books *ret)
{
	struct pg_result rows;
	struct pg_query q = pg_query(c, deep ? &books_rollups_deep : &books_rollups);
	int r = pg_ask(&q, &rows, NULL);
	if (r != 0)
		return r;
	if (rows.rows == 1) {
		ret->clicks_in_rollups = cell(&rows, 0);
		ret->orphans_in_rollups = cell(&rows, 1);
		ret->impressions_counted = cell(&rows, 2);
	}
	r = rows.rows == 1 ? 0 : ERR_CORRUPT;
	pg_result_end(&rows);
	return r;
}

static int rows_ask(struct pg_conn *c, uint64_t node, struct sink_books *ret)
{
	struct pg_result rows;
	struct pg_query q = pg_query(c, &books_rows);
	pg_int(&q, (int64_t)node);
	int r = pg_ask(&q, &rows, NULL);
	if (r != 0)
		return r;
	ret->visit_rows = cell(&rows, 0);
	ret->impression_rows = cell(&rows, 1);
	pg_result_end(&rows);
	return 0;
}

/* Rollups do not know nodes: of one node the book says what went into them. */
int postgres_books_get(struct pg_conn *c, uint64_t node, bool deep, struct sink_books *ret)
{
	int r = tally_ask(c, node, ret);
	if (r == 0 && node == 0)
		r = rollups_ask(c, deep, ret);
	return r == 0 && deep ? rows_ask(c, node, ret) : r;
}
