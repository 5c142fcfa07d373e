#include "store/postgres_numbers.h"

#include "store/postgres_feed.h"
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

/* With Citus, where rows of several keys cannot be locked at once, those who would lock them take turns. */
#define TURN_LOCK(number)                                    \
	"SELECT pg_advisory_xact_lock(" number ", oid::int)" \
	" FROM pg_namespace WHERE nspname = current_schema()"

/* Whoever adds up must see the totals of all nodes: one at a time, and in one order. The number is "curw". */
static const struct pg_statement totals_lock = {
    "totals_lock", "SELECT id FROM link WHERE id = ANY ($1::bigint[]) ORDER BY key FOR UPDATE"};
static const struct pg_statement totals_turn = {"totals_turn", TURN_LOCK("1668641399")};
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
	q = txn_query(t, t->is_distributed ? &totals_turn : &totals_lock);
	if (!t->is_distributed)
		pg_ints(&q, ids, work->n);
	txn_put(t, &q);
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

static const struct pg_statement constant_drop = {"constant_drop",
                                                  "DELETE FROM constant WHERE name >= $1 AND name < $2"};

int postgres_forget(struct pg_pool *writers, struct str from, struct str before)
{
	struct pg_conn *c = pg_take(writers, NULL);
	if (!c)
		return ERR_UNAVAILABLE;
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	struct pg_query q = pg_query(c, &constant_drop);
	pg_text(&q, from);
	pg_text(&q, before);
	pg_send(&q);
	pg_flush(c);
	pg_next(c, &none, NULL);
	int r = pg_sync(c, NULL);
	pg_return(c);
	return r ? postgres_error(r) : 0;
}

/* --- keys that come back --- */

/* Where keys are claimed from. The columns of the answers are the key's number, its text and the id that the
 * feed tells. With Citus `pick` finds keys, and `take` takes those that still are as they were found. */
struct source {
	enum feed_kind entry;
	struct pg_statement claim, pick, take;
};

#define SPENT "ended_ms <= $1"
#define OVER  "over_ms > 0 AND over_ms <= $1 AND key_id > 0"

static const struct source spent = {
    .entry = FEED_NAME_CHANGED,
    .claim = {"spent_claim", "DELETE FROM spent_key WHERE key IN (SELECT key FROM spent_key WHERE " SPENT
                             " ORDER BY ended_ms LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id, key, id"},
    .pick = {"spent_pick", "SELECT key FROM spent_key WHERE " SPENT " ORDER BY ended_ms LIMIT $2"},
    .take = {"spent_take",
             "DELETE FROM spent_key WHERE " SPENT " AND key = ANY ($2::bytea[]) RETURNING id, key, id"},
};
/* Links that nobody has reaped yet. */
static const struct source over = {
    .entry = FEED_LINK_GONE,
    .claim = {"over_claim", "SELECT key_id, key, id FROM link WHERE " OVER
                            " ORDER BY over_ms, id LIMIT $2 FOR UPDATE SKIP LOCKED"},
    .pick = {"over_pick", "SELECT key FROM link WHERE " OVER " ORDER BY over_ms, id LIMIT $2"},
    .take = {"over_take",
             "DELETE FROM link WHERE " OVER " AND key = ANY ($2::bytea[]) RETURNING key_id, key, id"},
};

/* The number is "curx". */
static const struct pg_statement claim_turn = {"claim_turn", TURN_LOCK("1668641400")};

struct claim_work {
	int64_t now_ms;
	int64_t ended_ms; /* at the latest */
	size_t max;
	uint64_t *ids;
	size_t count;
};

static int claim_ask(struct postgres_txn *t, const struct claim_work *work,
                     const struct pg_statement *statement, struct pg_result *ret)
{
	struct pg_query q = txn_query(t, statement);
	pg_int(&q, work->ended_ms);
	pg_int(&q, (int64_t)(work->max - work->count));
	return txn_ask(t, &q, ret);
}

/* One column of the rows; NULL: memory ran out. */
static struct str *names_of(struct postgres_txn *t, const struct pg_result *rows, int col)
{
	struct str *names = arena_alloc(&t->scratch, ((size_t)rows->rows + 1) * sizeof(*names));
	for (int row = 0; names && row < rows->rows; row++)
		names[row] = pg_get_text(rows, row, col);
	if (!names)
		txn_no_memory(t);
	return names;
}

static int claim_picked(struct postgres_txn *t, const struct claim_work *work, const struct source *from,
                        struct pg_result *ret)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = claim_ask(t, work, &from->pick, &rows);
	if (r != 0 || rows.rows == 0)
		return r;
	const struct str *names = names_of(t, &rows, 0);
	if (!names)
		return t->error;
	struct pg_query q = txn_query(t, &from->take);
	pg_int(&q, work->ended_ms);
	pg_blobs(&q, names, (size_t)rows.rows);
	return txn_ask(t, &q, ret);
}

static int claim_from(struct postgres_txn *t, struct claim_work *work, const struct source *from,
                      struct pg_result *ret)
{
	int r = t->is_distributed ? claim_picked(t, work, from, ret) : claim_ask(t, work, &from->claim, ret);
	CLEANUP(buf_release) struct buf feed = {0};
	for (int row = 0; r == 0 && row < ret->rows; row++) {
		struct str entry = feed_entry_bytes(
		    &t->scratch, &(struct feed_entry){.kind = from->entry,
		                                      .id = (uint64_t)pg_get_int(ret, row, 2),
		                                      .name = pg_get_text(ret, row, 1)});
		buf_str(&feed, entry);
		feed.failed |= !entry.ptr;
		work->ids[work->count++] = (uint64_t)pg_get_int(ret, row, 0);
	}
	if (feed.failed)
		return txn_no_memory(t);
	if (r == 0)
		postgres_feed_put(t, false, work->now_ms, buf_view(&feed));
	return r;
}

static int claim_over(struct postgres_txn *t, struct claim_work *work)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	int r = claim_from(t, work, &over, &rows);
	if (r != 0 || rows.rows == 0)
		return r;
	const struct str *names = names_of(t, &rows, 1);
	if (!names)
		return t->error;
	postgres_links_delete(t, names, (size_t)rows.rows);
	return 0;
}

static int claim_run(struct postgres_txn *t, void *ctx)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct claim_work *work = ctx;
	work->count = 0;
	if (t->is_distributed) {
		struct pg_query q = txn_query(t, &claim_turn);
		txn_put(t, &q);
	}
	int r = claim_from(t, work, &spent, &rows);
	return r == 0 && work->count < work->max ? claim_over(t, work) : r;
}

int postgres_claim(struct pg_pool *writers, const struct postgres_kind *kind, int64_t now_ms,
                   uint64_t rest_ms, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	int64_t ended_ms;
	*ret_count = 0;
	if (max == 0 || __builtin_sub_overflow(now_ms, rest_ms, &ended_ms))
		return 0;
	struct claim_work claim = {
	    .now_ms = now_ms, .ended_ms = ended_ms, .max = MIN(max, INT32_MAX), .ids = ret_ids};
	struct postgres_work work = {.run = claim_run,
	                             .ctx = &claim,
	                             .is_distributed = kind->is_distributed,
	                             .is_postgres = kind->has_advisory_locks};
	int r = again_error(postgres_txn_run(writers, NULL, &work, NULL));
	if (r == 0)
		*ret_count = claim.count;
	return r;
}
