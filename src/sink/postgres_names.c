/*
 * Ids of dimension sets and ads. The cache has what the database has. If a transaction that assigns ids
 * fails, the state of the database is unknown, and the cache is emptied.
 *
 * The row of an ad has the day of its last use, which protects its name from being swept. So each used ad is
 * looked up at least once a day.
 */
#include "base/buf.h"
#include "base/grow.h"
#include "sink/ads.h"
#include "sink/dimension_set.h"
#include "sink/name_table.h"
#include "sink/postgres_sink.h"

#include <stdlib.h>

enum { CACHED_MAX = 100000, STAGES_MAX = 8 };

struct postgres_names {
	uint8_t key[SINK_KEY_BYTES];
	struct name_table sets, ads;
	uint32_t *set_ids, *ad_ids; /* of the batch */
	size_t set_cap, ad_cap;
	struct buf scratch;
};

int postgres_names_new(const uint8_t key[SINK_KEY_BYTES], struct postgres_names **ret)
{
	struct postgres_names *n = calloc(1, sizeof(*n));
	if (!n)
		return ERR_NOMEM;
	memcpy(n->key, key, SINK_KEY_BYTES);
	*ret = n;
	return 0;
}

void postgres_names_free(struct postgres_names *n)
{
	if (!n)
		return;
	name_table_forget(&n->sets);
	name_table_forget(&n->ads);
	free(n->set_ids);
	free(n->ad_ids);
	buf_release(&n->scratch);
	free(n);
}

/* --- assigning ids --- */

/* A transaction that assigns ids. */
struct id_allocation {
	struct postgres_names *n;
	struct pg_conn *conn;
	const struct sink_batch *batch;
	struct arena arena;
	int64_t day, new_sets, new_ads, last_set, last_ad, ads;
	struct set_row {
		int64_t id, hash, kind;
		struct str dims[DIM_COUNT];
	} * new_rows;
	size_t new_row_count;
	struct err *e;
};

static const struct pg_statement names_lock = {
    "sink_names_lock",
    "SELECT day, new_shapes, new_ads, last_shape, last_ad, ads FROM stats_names WHERE id = 1 FOR UPDATE"};
static const struct pg_statement names_update = {
    "sink_names_update", "UPDATE stats_names SET day = $1, new_shapes = $2, new_ads = $3, last_shape = $4,"
                         " last_ad = $5, ads = $6 WHERE id = 1"};
static const struct pg_statement sets_by_hash = {"sink_shapes_by_hash",
                                                 "SELECT id, hash, kind, " DIMENSION_SET_DIMS
                                                 " FROM stats_shape WHERE hash = ANY($1::bigint[])"};
static const struct pg_statement sets_insert = {
    "sink_shapes_insert", "INSERT INTO stats_shape (id, hash, kind, " DIMENSION_SET_DIMS ")"
                          " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[],"
                          " $5::bytea[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bytea[],"
                          " $11::bytea[])"};
static const struct pg_statement ads_by_name = {
    "sink_ads_by_name", "SELECT id, name, last_day FROM stats_ad WHERE name = ANY($1::bytea[])"};
static const struct pg_statement ads_put = {"sink_ads_put",
                                            "INSERT INTO stats_ad (id, name, last_day)"
                                            " SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[])"
                                            " ON CONFLICT (name) DO UPDATE SET last_day ="
                                            " greatest(stats_ad.last_day, excluded.last_day)"};

static int no_memory(struct err *e)
{
	return err_set(e, ERR_NOMEM, "out of memory");
}

static int allocation_begin(struct id_allocation *g)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query lock = pg_query(g->conn, &names_lock);
	int r = postgres_txn_begin(&lock, &result, g->e);
	if (r == 0 && result.rows != 1)
		return err_set(g->e, ERR_CORRUPT, "the table stats_names is empty");
	if (r != 0)
		return r;
	g->new_sets = pg_get_int(&result, 0, 1);
	g->new_ads = pg_get_int(&result, 0, 2);
	g->last_set = pg_get_int(&result, 0, 3);
	g->last_ad = pg_get_int(&result, 0, 4);
	g->ads = pg_get_int(&result, 0, 5);
	g->day = day_of(g->batch->now_ms);
	if (pg_get_int(&result, 0, 0) != g->day)
		g->new_sets = g->new_ads = 0;
	return 0;
}

/* --- dimension sets --- */

static struct name_entry set_name(struct postgres_names *n, const struct dimension_set *set)
{
	dimension_set_pack(&n->scratch, set);
	struct str packed = n->scratch.failed ? STR_NULL : buf_view(&n->scratch);
	return (struct name_entry){.hash = packed.ptr ? keyed_hash(n->key, packed.ptr, packed.len) : 0,
	                           .text = packed};
}

/* 0: not cached. */
static uint32_t set_find(struct postgres_names *n, const struct dimension_set *set)
{
	struct name_entry wanted = set_name(n, set);
	const struct name_entry *found = wanted.text.ptr ? name_table_find(&n->sets, wanted.hash, wanted.text)
	                                                 : NULL;
	return found ? found->id : 0;
}

static int set_remember(struct postgres_names *n, const struct dimension_set *set, uint32_t id)
{
	struct name_entry name = set_name(n, set);
	name.id = id;
	return name.text.ptr ? name_table_put(&n->sets, name) : ERR_NOMEM;
}

static void set_read(const struct pg_result *r, int row, int column, struct dimension_set *ret)
{
	ret->kind = (enum visit_kind)pg_get_int(r, row, column);
	for (int i = 0; i < DIM_COUNT; i++)
		ret->dims[i] = pg_get_text(r, row, column + 1 + i);
}

/* Fetches the batch's sets that are not cached, or all their simplified forms. */
static int sets_fetch(struct id_allocation *g, bool simplified)
{
	size_t count = 0;
	int64_t *hashes = arena_alloc(&g->arena, g->batch->set_count * STAGES_MAX * sizeof(*hashes) + 1);
	if (!hashes)
		return no_memory(g->e);
	for (size_t i = 0; i < g->batch->set_count; i++) {
		struct dimension_set set = g->batch->sets[i];
		if (set_find(g->n, &set) != 0)
			continue;
		if (!simplified)
			hashes[count++] = (int64_t)set_name(g->n, &set).hash;
		for (size_t stage = 0; simplified && dimension_set_simplify(&set, stage, INT64_MAX, 0);
		     stage++) {
			ASSERT(stage < STAGES_MAX);
			hashes[count++] = (int64_t)set_name(g->n, &set).hash;
		}
	}
	if (count == 0)
		return 0;
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query q = pg_query(g->conn, &sets_by_hash);
	pg_ints(&q, hashes, count);
	int r = pg_ask(&q, &result, g->e);
	for (int row = 0; r == 0 && row < result.rows; row++) {
		struct dimension_set set;
		set_read(&result, row, 2, &set);
		if (set_remember(g->n, &set, (uint32_t)pg_get_int(&result, row, 0)) < 0)
			r = no_memory(g->e);
	}
	return r;
}

/* The id of a set, of a simplified form, or a new one. */
static int set_number(struct id_allocation *g, struct dimension_set set, uint32_t *ret_id)
{
	size_t stage = 0;
	do
		*ret_id = set_find(g->n, &set);
	while (*ret_id == 0 && dimension_set_simplify(&set, stage++, g->new_sets, (uint64_t)g->last_set));
	if (*ret_id)
		return 0;
	if (set_remember(g->n, &set, (uint32_t)(g->last_set + 1)) < 0)
		return no_memory(g->e);
	struct set_row *row = &g->new_rows[g->new_row_count++];
	*row = (struct set_row){
	    .id = ++g->last_set, .hash = (int64_t)set_name(g->n, &set).hash, .kind = set.kind};
	memcpy(row->dims, set.dims, sizeof(row->dims));
	g->new_sets++;
	*ret_id = (uint32_t)row->id;
	return 0;
}

static void sets_write(struct id_allocation *g)
{
	if (g->new_row_count == 0)
		return;
	struct pg_query q = pg_query(g->conn, &sets_insert);
	PG_FIELDS(&q, pg_ints, g->new_rows, g->new_row_count, id);
	PG_FIELDS(&q, pg_ints, g->new_rows, g->new_row_count, hash);
	PG_FIELDS(&q, pg_ints, g->new_rows, g->new_row_count, kind);
	for (int dim = 0; dim < DIM_COUNT; dim++)
		PG_FIELDS(&q, pg_blobs, g->new_rows, g->new_row_count, dims[dim]);
	pg_send(&q);
}

static int sets_allocate(struct id_allocation *g)
{
	size_t count = g->batch->set_count;
	g->new_rows = arena_alloc(&g->arena, (count + 1) * sizeof(*g->new_rows));
	int r = g->new_rows ? sets_fetch(g, false) : no_memory(g->e);
	struct dimension_set any = {.kind = VISIT_CLICK};
	if (r == 0 &&
	    dimension_set_simplify(&any, 0, g->new_sets + (int64_t)count, (uint64_t)g->last_set + count))
		r = sets_fetch(g, true);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = set_number(g, g->batch->sets[i], &g->n->set_ids[i]);
	return r;
}

/* --- ads --- */

static int64_t ad_day(const struct sink_batch *batch, const struct sink_impression *i)
{
	return MAX(day_of(i->time_ms), day_of(batch->now_ms));
}

static struct name_entry *ad_find(const struct postgres_names *n, struct str name)
{
	return name_table_find(&n->ads, keyed_hash(n->key, name.ptr, name.len), name);
}

static int ad_remember(struct postgres_names *n, struct str name, uint32_t id, int64_t day)
{
	return name_table_put(
	    &n->ads, (struct name_entry){
	                 .hash = keyed_hash(n->key, name.ptr, name.len), .text = name, .id = id, .day = day});
}

/* Fetches the batch's ads that are not cached. If a cached one was last used on an earlier day, its name may
 * have been swept, and the cache is emptied first. */
static int ads_fetch(struct id_allocation *g)
{
	const struct sink_batch *b = g->batch;
	struct str *names = arena_alloc(&g->arena, (b->impression_count + 1) * sizeof(*names));
	size_t count = 0;
	if (!names)
		return no_memory(g->e);
	bool stale = false;
	for (size_t i = 0; i < b->impression_count; i++) {
		const struct name_entry *known = ad_find(g->n, b->impressions[i].ad);
		stale |= known && known->day < ad_day(b, &b->impressions[i]);
	}
	if (stale)
		name_table_forget(&g->n->ads);
	for (size_t i = 0; i < b->impression_count; i++)
		if (!ad_find(g->n, b->impressions[i].ad))
			names[count++] = b->impressions[i].ad;
	names[count++] = STR(ADS_OTHER);
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query q = pg_query(g->conn, &ads_by_name);
	pg_blobs(&q, names, count);
	int r = pg_ask(&q, &result, g->e);
	for (int row = 0; r == 0 && row < result.rows; row++)
		if (ad_remember(g->n, pg_get_text(&result, row, 1), (uint32_t)pg_get_int(&result, row, 0),
		                pg_get_int(&result, row, 2)) < 0)
			r = no_memory(g->e);
	return r;
}

/* The ad of that name, a new one, or ADS_OTHER. */
static int ad_number(struct id_allocation *g, struct str name, struct name_entry **ret)
{
	*ret = ad_find(g->n, name);
	if (!*ret && (g->new_ads >= NEW_ADS_PER_DAY || g->ads >= ADS_MAX)) {
		name = STR(ADS_OTHER);
		*ret = ad_find(g->n, name);
	}
	if (*ret)
		return 0;
	if (ad_remember(g->n, name, (uint32_t)(g->last_ad + 1), INT64_MIN) < 0)
		return no_memory(g->e);
	g->last_ad++;
	g->ads++;
	g->new_ads++;
	*ret = ad_find(g->n, name);
	return 0;
}

/* Writes ads that are new, or used on a later day. */
static int ads_write(struct id_allocation *g)
{
	const struct name_table *t = &g->n->ads;
	struct ad_row {
		int64_t id, day;
		struct str name;
	} *rows = arena_alloc(&g->arena, (t->count + 1) * sizeof(*rows));
	size_t count = 0;
	if (!rows)
		return no_memory(g->e);
	for (size_t i = 0; i < t->slot_count; i++) {
		struct name_entry *ad = &t->slots[i];
		if (!ad->is_changed)
			continue;
		ad->is_changed = false;
		rows[count++] = (struct ad_row){.id = ad->id, .day = ad->day, .name = ad->text};
	}
	if (count == 0)
		return 0;
	struct pg_query q = pg_query(g->conn, &ads_put);
	PG_FIELDS(&q, pg_ints, rows, count, id);
	PG_FIELDS(&q, pg_blobs, rows, count, name);
	PG_FIELDS(&q, pg_ints, rows, count, day);
	pg_send(&q);
	return 0;
}

static int ads_allocate(struct id_allocation *g)
{
	const struct sink_batch *b = g->batch;
	int r = b->impression_count > 0 ? ads_fetch(g) : 0;
	for (size_t i = 0; r == 0 && i < b->impression_count; i++) {
		struct name_entry *ad;
		r = ad_number(g, b->impressions[i].ad, &ad);
		if (r != 0)
			break;
		int64_t day = ad_day(b, &b->impressions[i]);
		g->n->ad_ids[i] = ad->id;
		ad->is_changed |= ad->day < day;
		ad->day = MAX(ad->day, day);
	}
	return r;
}

/* --- both --- */

/* A connection that is returned in the middle of this is closed, which rolls back. */
static int allocate(struct id_allocation *g)
{
	int r = allocation_begin(g) ?: sets_allocate(g) ?: ads_allocate(g);
	if (r != 0) {
		postgres_txn_undo(g->conn);
		return r;
	}
	sets_write(g);
	r = ads_write(g);
	if (r != 0)
		return r;
	struct pg_query update = pg_query(g->conn, &names_update);
	INTS(&update, g->day, g->new_sets, g->new_ads, g->last_set, g->last_ad, g->ads);
	pg_send(&update);
	return postgres_txn_commit(g->conn, g->e);
}

/* Fills the ids from the cache. False: some are missing. */
static bool find_all(struct postgres_names *n, const struct sink_batch *b)
{
	for (size_t i = 0; i < b->set_count; i++)
		if ((n->set_ids[i] = set_find(n, &b->sets[i])) == 0)
			return false;
	for (size_t i = 0; i < b->impression_count; i++) {
		const struct name_entry *ad = ad_find(n, b->impressions[i].ad);
		if (!ad || ad->day < ad_day(b, &b->impressions[i]))
			return false;
		n->ad_ids[i] = ad->id;
	}
	return true;
}

int postgres_names_get(struct postgres_names *n, struct pg_conn *c, const struct sink_batch *batch,
                       const uint32_t **ret_sets, const uint32_t **ret_ads, struct err *e)
{
	if (!ARRAY_ROOM(n->set_ids, n->set_cap, batch->set_count + 1) ||
	    !ARRAY_ROOM(n->ad_ids, n->ad_cap, batch->impression_count + 1))
		return no_memory(e);
	*ret_sets = n->set_ids;
	*ret_ads = n->ad_ids;
	if (n->sets.count > CACHED_MAX)
		name_table_forget(&n->sets);
	if (n->ads.count > CACHED_MAX)
		name_table_forget(&n->ads);
	if (find_all(n, batch))
		return 0;
	struct id_allocation g = {.n = n, .conn = c, .batch = batch, .e = e};
	int r = allocate(&g);
	if (r != 0) {
		name_table_forget(&n->sets);
		name_table_forget(&n->ads);
	}
	arena_release(&g.arena);
	return r;
}

/* --- queries --- */

static const struct pg_statement sets_by_id = {"sink_shapes_by_id",
                                               "SELECT kind, " DIMENSION_SET_DIMS
                                               " FROM unnest($1::bigint[]) WITH ORDINALITY AS w(id, at)"
                                               " JOIN stats_shape s ON s.id = w.id ORDER BY w.at"};

int postgres_sets_get(struct pg_conn *c, const int64_t *ids, size_t count, struct arena *arena,
                      struct dimension_set *ret)
{
	CLEANUP(pg_result_end) struct pg_result result = {NULL, 0};
	struct pg_query q = pg_query(c, &sets_by_id);
	pg_ints(&q, ids, count);
	int r = pg_ask(&q, &result, NULL);
	if (r == 0 && (size_t)result.rows != count)
		r = ERR_CORRUPT;
	for (size_t i = 0; r == 0 && i < count; i++) {
		set_read(&result, (int)i, 0, &ret[i]);
		if (ret[i].kind < 0 || ret[i].kind >= VISIT_KINDS)
			return ERR_CORRUPT;
		for (int dim = 0; dim < DIM_COUNT; dim++) {
			struct str *value = &ret[i].dims[dim];
			*value = arena_str(arena, *value);
			if (!value->ptr && !pg_is_null(&result, (int)i, 1 + dim))
				return ERR_NOMEM;
		}
	}
	return r;
}
