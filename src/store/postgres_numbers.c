#include "store/postgres_numbers.h"

#include "store/postgres_put.h"
#include "store/postgres_rows.h"
#include "store/rules.h"

/* Of what may be done again: an unknown outcome is none. */
static int again_error(int r)
{
	return r == ERR_UNCERTAIN ? ERR_UNAVAILABLE : postgres_error(r);
}

/* --- click totals --- */

/* Totals are counted elsewhere and only shown here. */
static const struct pg_statement totals_lazily = {"totals_lazily", "SET LOCAL synchronous_commit = off"};

/* Whoever adds up must see the totals of all nodes: one at a time, and in one order. (Where that lock cannot
 * be had, a sum may lack another node's newest total until one of them counts again.) */
static const struct pg_statement totals_lock = {
    "totals_lock", "SELECT id FROM link WHERE id = ANY ($1::bigint[]) ORDER BY key FOR UPDATE"};
/* When an id comes twice, the last one counts. */
static const struct pg_statement totals_put = {
    "totals_put",
    "INSERT INTO click_total (key, node, total) SELECT DISTINCT ON (l.key) l.key, $3::bigint, n.total"
    " FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS n (id, total, at)"
    " JOIN link l ON l.id = n.id ORDER BY l.key, n.at DESC"
    " ON CONFLICT (key, node) DO UPDATE SET total = excluded.total"
    " WHERE click_total.total <> excluded.total"};
static const struct pg_statement totals_add = {
    "totals_add",
    "UPDATE link SET clicks = s.total FROM (SELECT t.key,"
    " least(sum(t.total), 9223372036854775807)::bigint AS total"
    " FROM click_total t JOIN link l ON l.key = t.key WHERE l.id = ANY ($1::bigint[]) GROUP BY t.key) s"
    " WHERE link.key = s.key AND link.clicks <> s.total"};

struct clicks_work {
	uint64_t node;
	const struct store_count *counts;
	size_t n;
};

static int clicks_run(struct postgres_txn *t, void *ctx)
{
	const struct clicks_work *work = ctx;
	int64_t *ids = arena_alloc(&t->scratch, work->n * sizeof(*ids));
	int64_t *totals = arena_alloc(&t->scratch, work->n * sizeof(*totals));
	if (!ids || !totals)
		return txn_no_memory(t);
	for (size_t i = 0; i < work->n; i++) {
		ids[i] = id_is_valid(work->counts[i].id) ? (int64_t)work->counts[i].id : 0;
		totals[i] = (int64_t)MIN(work->counts[i].clicks, INT64_MAX);
	}
	struct pg_query q = txn_query(t, &totals_lazily);
	txn_put(t, &q);
	if (!t->is_distributed) {
		q = txn_query(t, &totals_lock);
		pg_ints(&q, ids, work->n);
		txn_put(t, &q);
	}
	q = txn_query(t, &totals_put);
	pg_ints(&q, ids, work->n);
	pg_ints(&q, totals, work->n);
	pg_int(&q, (int64_t)work->node);
	txn_put(t, &q);
	q = txn_query(t, &totals_add);
	pg_ints(&q, ids, work->n);
	txn_put(t, &q);
	return 0;
}

int postgres_set_clicks(struct pg_pool *writers, bool is_distributed, uint64_t node,
                        const struct store_count *counts, size_t n)
{
	ASSERT(n <= STORE_COUNTS_MAX);
	if (n == 0)
		return 0;
	struct clicks_work clicks = {.node = node, .counts = counts, .n = n};
	struct postgres_work work = {.run = clicks_run, .ctx = &clicks, .is_distributed = is_distributed};
	return again_error(postgres_txn_run(writers, NULL, &work, NULL));
}

/* --- counters --- */

static const struct pg_statement counter_lease = {
    "counter_lease",
    "INSERT INTO counter AS c (name, next) VALUES ($1, 1 + $2::bigint)"
    " ON CONFLICT (name) DO UPDATE SET next = c.next + $2 WHERE c.next <= 9223372036854775807 - $2"
    " RETURNING next - $2"};
_Static_assert(COUNTER_FIRST == 1, "the statement says so");

static int lease_on(struct pg_conn *c, struct str counter, int64_t count, uint64_t *ret_first)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = pg_query(c, &counter_lease);
	pg_text(&q, counter);
	pg_int(&q, count);
	int r = pg_ask(&q, &row, NULL);
	if (r == 0 && row.rows == 0)
		return ERR_LIMIT;
	if (r == 0)
		*ret_first = (uint64_t)pg_get_int(&row, 0, 0);
	return postgres_error(r);
}

int postgres_lease(struct pg_pool *writers, struct str counter, uint64_t count, uint64_t *ret_first)
{
	if (counter.len == 0 || count == 0)
		return ERR_INVALID;
	if (count > INT64_MAX - COUNTER_FIRST)
		return ERR_LIMIT;
	struct pg_conn *c = pg_take(writers, NULL);
	int r = c ? lease_on(c, counter, (int64_t)count, ret_first) : ERR_UNAVAILABLE;
	pg_return(c);
	return r;
}

/* --- constants --- */

static const struct pg_statement constant_put = {
    "constant_put", "INSERT INTO constant (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"};
static const struct pg_statement constant_get = {"constant_get",
                                                 "SELECT value FROM constant WHERE name = $1"};

static int constant_on(struct pg_conn *c, struct str name, void *value, size_t len)
{
	CLEANUP(pg_result_end) struct pg_result put = {NULL, 0};
	CLEANUP(pg_result_end) struct pg_result got = {NULL, 0};
	struct pg_query q = pg_query(c, &constant_put);
	pg_text(&q, name);
	pg_bytes(&q, len > 0 ? value : "", len);
	pg_send(&q);
	q = pg_query(c, &constant_get);
	pg_text(&q, name);
	pg_send(&q);
	pg_flush(c);
	pg_next(c, &put, NULL);
	pg_next(c, &got, NULL);
	int r = pg_sync(c, NULL);
	if (r != 0)
		return postgres_error(r);
	struct str stored = got.rows == 1 ? pg_get_text(&got, 0, 0) : STR_NULL;
	if (!stored.ptr || stored.len != len)
		return ERR_CORRUPT;
	if (len > 0)
		memcpy(value, stored.ptr, len);
	return 0;
}

int postgres_constant(struct pg_pool *writers, struct str name, void *value, size_t len)
{
	struct pg_conn *c = pg_take(writers, NULL);
	int r = c ? constant_on(c, name, value, len) : ERR_UNAVAILABLE;
	pg_return(c);
	return r;
}

/* --- keys that come back --- */

static const struct pg_statement spent_claim = {
    "spent_claim", "DELETE FROM spent_key WHERE key IN (SELECT key FROM spent_key WHERE ended_ms <= $1"
                   " ORDER BY ended_ms LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id"};
/* Links that nobody has reaped yet. */
static const struct pg_statement over_claim = {
    "over_claim", "SELECT key_id, key FROM link WHERE over_ms > 0 AND over_ms <= $1 AND key_id > 0"
                  " ORDER BY over_ms, id LIMIT $2 FOR UPDATE SKIP LOCKED"};

struct claim_work {
	int64_t ended_ms; /* at the latest */
	size_t max;
	uint64_t *ids;
	size_t count;
};

static int claim_ask(struct postgres_txn *t, struct claim_work *work, const struct pg_statement *statement,
                     struct pg_result *ret)
{
	struct pg_query q = txn_query(t, statement);
	pg_int(&q, work->ended_ms);
	pg_int(&q, (int64_t)(work->max - work->count));
	int r = txn_ask(t, &q, ret);
	for (int row = 0; r == 0 && row < ret->rows; row++)
		work->ids[work->count++] = (uint64_t)pg_get_int(ret, row, 0);
	return r;
}

static int claim_over(struct postgres_txn *t, struct claim_work *work)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = claim_ask(t, work, &over_claim, &rows);
	if (r != 0 || rows.rows == 0)
		return r;
	struct str *names = arena_alloc(&t->scratch, (size_t)rows.rows * sizeof(*names));
	if (!names)
		return txn_no_memory(t);
	for (int row = 0; row < rows.rows; row++)
		names[row] = pg_get_text(&rows, row, 1);
	postgres_links_delete(t, names, (size_t)rows.rows);
	return 0;
}

static int claim_run(struct postgres_txn *t, void *ctx)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct claim_work *work = ctx;
	work->count = 0;
	int r = claim_ask(t, work, &spent_claim, &rows);
	return r == 0 && work->count < work->max ? claim_over(t, work) : r;
}

int postgres_claim(struct pg_pool *writers, bool is_distributed, int64_t now_ms, uint64_t rest_ms, size_t max,
                   uint64_t *ret_ids, size_t *ret_count)
{
	int64_t ended_ms;
	*ret_count = 0;
	if (is_distributed) /* nobody could take keys without waiting for others */
		return 0;
	if (max == 0 || __builtin_sub_overflow(now_ms, rest_ms, &ended_ms))
		return 0;
	struct claim_work claim = {.ended_ms = ended_ms, .max = MIN(max, INT32_MAX), .ids = ret_ids};
	struct postgres_work work = {.run = claim_run, .ctx = &claim};
	int r = again_error(postgres_txn_run(writers, NULL, &work, NULL));
	if (r == 0)
		*ret_count = claim.count;
	return r;
}
