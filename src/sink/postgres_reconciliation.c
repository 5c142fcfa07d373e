/* Reconciliation: how many events of each node were consumed, and what happened to them. */
#include "base/grow.h"
#include "sink/postgres_sink.h"

/* The columns of stats_book after `node`. The first ones are those of struct sink_tally. */
#define TALLY_LIST(COLUMN)                                 \
	COLUMN(CLICKS, clicks)                             \
	COLUMN(ORPHANS, orphans)                           \
	COLUMN(IMPRESSIONS, impressions)                   \
	COLUMN(BATCH_DUPLICATES, batch_duplicates)         \
	COLUMN(UNUSABLE_CLICKS, unusable_clicks)           \
	COLUMN(UNUSABLE_IMPRESSIONS, unusable_impressions) \
	COLUMN(REJECTED, rejected)                         \
	COLUMN(DROPPED_CLICKS, dropped_clicks)             \
	COLUMN(DUPLICATES, duplicates)                     \
	COLUMN(COUNTED_CLICKS, counted_clicks)             \
	COLUMN(COUNTED_ORPHANS, counted_orphans)           \
	COLUMN(COUNTED_IMPRESSIONS, counted_impressions)

enum tally_column {
#define TALLY_ENUM(name, column) TALLY_##name,
	TALLY_LIST(TALLY_ENUM) TALLY_COLUMNS
};
_Static_assert(sizeof(struct sink_tally) == TALLY_DUPLICATES * sizeof(int64_t), "the tally comes first");

/* --- writing --- */

struct node_tally {
	uint64_t node;
	int64_t numbers[TALLY_COLUMNS];
};

struct node_tallies {
	struct node_tally *items;
	size_t count, cap, last;
};

static void tallies_release(struct node_tallies *b)
{
	free(b->items);
}

/* Starts with the last node, as events of one node are mostly consecutive. NULL: out of memory. */
static struct node_tally *tally_of(struct node_tallies *b, uint64_t node)
{
	if (b->count > 0 && b->items[b->last].node == node)
		return &b->items[b->last];
	for (b->last = 0; b->last < b->count; b->last++)
		if (b->items[b->last].node == node)
			return &b->items[b->last];
	if (!ARRAY_ROOM(b->items, b->cap, b->count + 1))
		return NULL;
	b->items[b->count++] = (struct node_tally){.node = node};
	return &b->items[b->last];
}

static int tally_add(struct node_tallies *b, uint64_t node, enum tally_column number, uint64_t n)
{
	struct node_tally *p = tally_of(b, node);
	if (!p)
		return ERR_NOMEM;
	p->numbers[number] += (int64_t)n;
	return 0;
}

/* Which columns a note adds to. */
static const struct {
	int consumed, outcome; /* -1: none */
} note_numbers[NOTE_KINDS] = {
    [NOTE_DUPLICATE] = {TALLY_IMPRESSIONS, TALLY_BATCH_DUPLICATES},
    [NOTE_UNUSABLE_CLICK] = {TALLY_CLICKS, TALLY_UNUSABLE_CLICKS},
    [NOTE_UNUSABLE_ORPHAN] = {TALLY_ORPHANS, -1},
    [NOTE_UNUSABLE_IMPRESSION] = {TALLY_IMPRESSIONS, TALLY_UNUSABLE_IMPRESSIONS},
    [NOTE_REJECTED] = {-1, TALLY_REJECTED},
    [NOTE_DROPPED] = {-1, TALLY_DROPPED_CLICKS},
};

static int tally_compare(const void *a, const void *b)
{
	uint64_t x = ((const struct node_tally *)a)->node, y = ((const struct node_tally *)b)->node;
	return x < y ? -1 : x > y;
}

#define TALLY_NAME(name, column) ", " #column
#define TALLY_ADD(name, column)  ", " #column " = b." #column " + excluded." #column

/* `node = b.node` only starts the list. */
static const struct pg_statement reconcile_add = {
    "sink_reconcile_add",
    "INSERT INTO stats_book AS b (node" TALLY_LIST(
        TALLY_NAME) ") SELECT * FROM unnest($1::bigint[],"
                    " $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], "
                    "$8::bigint[],"
                    " $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])"
                    " ON CONFLICT (node) DO UPDATE SET node = b.node" TALLY_LIST(TALLY_ADD)};

int postgres_reconciliation_put(struct pg_conn *c, const struct sink_batch *batch, const bool *kept)
{
	CLEANUP(tallies_release) struct node_tallies tallies = {0};
	int r = 0;
	for (size_t i = 0; r == 0 && i < batch->visit_count; i++) {
		bool orphan = batch->visits[i].link == 0;
		uint64_t node = batch->visits[i].event.node;
		r = tally_add(&tallies, node, orphan ? TALLY_ORPHANS : TALLY_CLICKS, 1)
		        ?: tally_add(&tallies, node, orphan ? TALLY_COUNTED_ORPHANS : TALLY_COUNTED_CLICKS,
		                     1);
	}
	for (size_t i = 0; r == 0 && i < batch->impression_count; i++) {
		uint64_t node = batch->impressions[i].event.node;
		r = tally_add(&tallies, node, TALLY_IMPRESSIONS, 1)
		        ?: tally_add(&tallies, node, kept[i] ? TALLY_COUNTED_IMPRESSIONS : TALLY_DUPLICATES,
		                     1);
	}
	for (size_t i = 0; r == 0 && i < batch->note_count; i++) {
		const struct sink_note *n = &batch->notes[i];
		int consumed = note_numbers[n->kind].consumed, outcome = note_numbers[n->kind].outcome;
		if (consumed >= 0)
			r = tally_add(&tallies, n->event.node, (enum tally_column)consumed, n->count);
		if (r == 0 && outcome >= 0)
			r = tally_add(&tallies, n->event.node, (enum tally_column)outcome, n->count);
	}
	if (r != 0 || tallies.count == 0)
		return r;
	qsort(tallies.items, tallies.count, sizeof(*tallies.items), tally_compare);
	struct pg_query q = pg_query(c, &reconcile_add);
	PG_FIELDS(&q, pg_ints, tallies.items, tallies.count, node);
	for (int number = 0; number < TALLY_COLUMNS; number++)
		PG_FIELDS(&q, pg_ints, tallies.items, tallies.count, numbers[number]);
	pg_send(&q);
	return 0;
}

/* --- reading --- */

#define TALLY_SUM(name, column) ", coalesce(sum(" #column "), 0)::bigint"

/* The first column is not used. */
static const struct pg_statement reconcile_tally = {
    "sink_reconcile_tally",
    "SELECT 0::bigint" TALLY_LIST(TALLY_SUM) " FROM stats_book"
                                             " WHERE $1::bigint = 0 OR node = $1::bigint"};

/* Of all nodes, from the rollups themselves. */
static const struct pg_statement reconcile_rollups = {
    "sink_reconcile_rollups",
    "SELECT r.clicks + coalesce((SELECT sum(count) FROM stats_cell WHERE link = 0), 0)::bigint,"
    " r.orphans + coalesce((SELECT sum(count) FROM stats_cell WHERE link = -1), 0)::bigint,"
    " r.impressions + coalesce((SELECT sum(count) FROM stats_ad_cell WHERE level = 3), 0)::bigint"
    " FROM stats_retired r WHERE r.id = 1"};
static const struct pg_statement reconcile_rollups_deep = {
    "sink_reconcile_rollups_deep",
    "SELECT r.link_clicks + coalesce((SELECT sum(count) FROM stats_cell WHERE link > 0), 0)::bigint,"
    " r.orphans + coalesce((SELECT sum(count) FROM stats_cell WHERE link = -1), 0)::bigint,"
    " r.impressions + coalesce((SELECT sum(count) FROM stats_ad_cell WHERE level = 2), 0)::bigint"
    " FROM stats_retired r WHERE r.id = 1"};
static const struct pg_statement reconcile_rows = {
    "sink_reconcile_rows",
    "SELECT (SELECT count(*) FROM stats_visit WHERE $1::bigint = 0 OR node = $1::bigint),"
    " (SELECT count(*) FROM stats_impression WHERE $1::bigint = 0 OR node = $1::bigint)"};

/* Rollups have no nodes: for one node, its tally says what was added to them. */
int postgres_reconciliation_get(struct pg_conn *c, uint64_t node, bool deep, struct reconciliation *ret)
{
	int64_t sums[1 + TALLY_COLUMNS] = {0}, *n = sums + 1, rows[2] = {0};
	struct pg_query q = pg_query(c, &reconcile_tally);
	pg_int(&q, (int64_t)node);
	int r = postgres_find(&q, sums, 1 + TALLY_COLUMNS, NULL);
	if (r == 0 && node == 0) {
		q = pg_query(c, deep ? &reconcile_rollups_deep : &reconcile_rollups);
		r = postgres_find(&q, n + TALLY_COUNTED_CLICKS, 3, NULL);
	}
	if (r == 0 && deep) {
		q = pg_query(c, &reconcile_rows);
		pg_int(&q, (int64_t)node);
		r = postgres_find(&q, rows, 2, NULL);
	}
	if (r != 0)
		return r;
	*ret = (struct reconciliation){
	    .duplicates = (uint64_t)(n[TALLY_BATCH_DUPLICATES] + n[TALLY_DUPLICATES]),
	    .clicks_in_rollups = (uint64_t)n[TALLY_COUNTED_CLICKS],
	    .orphans_in_rollups = (uint64_t)n[TALLY_COUNTED_ORPHANS],
	    .impressions_counted = (uint64_t)n[TALLY_COUNTED_IMPRESSIONS],
	    .visit_rows = (uint64_t)rows[0],
	    .impression_rows = (uint64_t)rows[1],
	};
	memcpy(&ret->tally, n, sizeof(ret->tally));
	return 0;
}
