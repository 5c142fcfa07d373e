/* Click totals, and claiming keys for reuse. */
#include "os/clock.h"
#include "store/postgres_change.h"
#include "store/postgres_feed.h"

/* The call is safe to retry, so an unknown outcome counts as none. */
static int retryable_error(int r)
{
	return r == ERR_UNCERTAIN ? ERR_UNAVAILABLE : postgres_slots_error(r);
}

/* --- click totals --- */

/* Totals are only a copy: power loss may undo the last ones. */
static const struct pg_statement totals_async = {"totals_async", "SET LOCAL synchronous_commit = off"};

/* Citus cannot lock rows of several keys at once: there, one transaction at a time. */
#define TURN_LOCK(number)                                    \
	"SELECT pg_advisory_xact_lock(" number ", oid::int)" \
	" FROM pg_namespace WHERE nspname = current_schema()"

/* A sum must include the totals of all nodes: links are locked, in the order of keys. The advisory lock is
 * "curw". */
static const struct pg_statement totals_lock = {
    "totals_lock", "SELECT id, key FROM link WHERE id = ANY ($1::bigint[]) ORDER BY key FOR UPDATE"};
static const struct pg_statement totals_serialize = {"totals_serialize", TURN_LOCK("1668641399")};
static const struct pg_statement totals_find = {"totals_find",
                                                "SELECT id, key FROM link WHERE id = ANY ($1::bigint[])"};
static const struct pg_statement totals_put = {
    "totals_put", "INSERT INTO click_total (key, node, total) SELECT n.key, $3::bigint, n.total"
                  " FROM unnest($1::bytea[], $2::bigint[]) AS n (key, total) ORDER BY n.key"
                  " ON CONFLICT (key, node) DO UPDATE SET total = excluded.total"
                  " WHERE click_total.total <> excluded.total"};
static const struct pg_statement totals_add = {
    "totals_add", "UPDATE link SET clicks = s.total FROM (SELECT t.key,"
                  " least(sum(t.total), 9223372036854775807)::bigint AS total"
                  " FROM click_total t WHERE t.key = ANY ($1::bytea[]) GROUP BY t.key) s"
                  " WHERE link.key = s.key AND link.clicks <> s.total AND link.key = ANY ($1::bytea[])"};

struct clicks_work {
	const struct slot_row *row;
	uint64_t node;
	const struct store_count *counts;
	size_t n;
	bool is_frozen; /* out: a slot is frozen, and no total was set */
};

/* If an id comes twice, the last one counts. */
static int64_t total_of(const struct clicks_work *work, uint64_t id)
{
	size_t i = work->n;
	while (work->counts[i - 1].id != id)
		i--;
	return (int64_t)MIN(work->counts[i - 1].clicks, INT64_MAX);
}

/* Finds and locks the links. Those of slots that the database does not own are ignored. */
static int clicks_find(struct postgres_txn *t, const struct clicks_work *work, struct pg_result *ret)
{
	int64_t *ids = arena_alloc(&t->scratch, work->n * sizeof(*ids));
	if (!ids)
		return txn_no_memory(t);
	for (size_t i = 0; i < work->n; i++)
		ids[i] = id_is_valid(work->counts[i].id) ? (int64_t)work->counts[i].id : 0;
	TXN_PUT(t, &totals_async);
	if (t->is_distributed)
		TXN_PUT(t, &totals_serialize);
	return TXN_ASK(t, t->is_distributed ? &totals_find : &totals_lock, ret, PG_INTS(ids, work->n));
}

/* While slots are copied, new totals must be copied, too: they go into the feed. */
static int clicks_note(struct postgres_txn *t, const struct slot_row *row, const struct str *names, size_t n)
{
	CLEANUP(buf_release) struct buf feed = {0};
	for (size_t i = 0; i < n && row->move != MOVE_NONE; i++) {
		if (!slots_have(&row->out, slot_of(names[i])))
			continue;
		struct str entry = feed_entry_bytes(
		    &t->scratch, &(struct feed_entry){.kind = FEED_NAME_CHANGED, .name = names[i]});
		buf_str(&feed, entry);
		feed.failed |= !entry.ptr;
	}
	if (feed.failed)
		return txn_no_memory(t);
	postgres_feed_put(t, false, clock_real_ms(), buf_view(&feed));
	return 0;
}

static int clicks_run(struct postgres_txn *t, void *ctx)
{
	CLEANUP(pg_result_end) struct pg_result found = {NULL, 0};
	struct clicks_work *work = ctx;
	postgres_slots_hold(t, work->row);
	int r = clicks_find(t, work, &found);
	if (r != 0)
		return r;
	struct str *names = arena_alloc(&t->scratch, ((size_t)found.rows + 1) * sizeof(*names));
	int64_t *totals = arena_alloc(&t->scratch, ((size_t)found.rows + 1) * sizeof(*totals));
	size_t n = 0;
	if (!names || !totals)
		return txn_no_memory(t);
	for (int row = 0; row < found.rows; row++) {
		names[n] = pg_get_text(&found, row, 1);
		if (!slot_row_owns(work->row, names[n]))
			continue;
		work->is_frozen |= slot_is_frozen(work->row, slot_of(names[n]));
		totals[n++] = total_of(work, (uint64_t)pg_get_int(&found, row, 0));
	}
	if (n == 0 || work->is_frozen)
		return 0;
	TXN_PUT(t, &totals_put, PG_BLOBS(names, n), PG_INTS(totals, n), PG_INT(work->node));
	TXN_PUT(t, &totals_add, PG_BLOBS(names, n));
	return clicks_note(t, work->row, names, n);
}

int postgres_set_clicks(struct store_postgres *s, const struct slot_row *row, uint64_t node,
                        const struct store_count *counts, size_t n)
{
	ASSERT(n <= STORE_COUNTS_MAX);
	if (n == 0)
		return 0;
	struct clicks_work clicks = {.row = row, .node = node, .counts = counts, .n = n};
	struct postgres_work work = postgres_work(s, clicks_run, &clicks);
	int r = POSTGRES_WRITE(s, retryable_error(postgres_txn_run(s->writers, NULL, &work, NULL)));
	return r == 0 && clicks.is_frozen ? ERR_BUSY : r;
}

/* --- keys for reuse --- */

/* A table to claim keys from. `pick` finds keys, `take` deletes those that still qualify. Citus cannot lock
 * rows of several keys at once: there, claims take turns. */
struct claim_source {
	enum feed_kind entry;
	struct pg_statement pick, pick_distributed, take;
};

#define SPENT        "ended_ms <= $1"
#define EXPIRED      "over_ms > 0 AND over_ms <= $1 AND key_id > 0"
#define SPENT_PICK   "SELECT key, id FROM spent_key WHERE " SPENT " ORDER BY ended_ms LIMIT $2"
#define EXPIRED_PICK "SELECT key, key_id FROM link WHERE " EXPIRED " ORDER BY over_ms, id LIMIT $2"
#define SKIP_LOCKED  " FOR UPDATE SKIP LOCKED"

static const struct claim_source spent = {
    .entry = FEED_NAME_CHANGED,
    .pick = {"spent_pick", SPENT_PICK SKIP_LOCKED},
    .pick_distributed = {"spent_pick_0", SPENT_PICK},
    .take = {"spent_take",
             "DELETE FROM spent_key WHERE " SPENT " AND key = ANY ($2::bytea[]) RETURNING key, id, id"},
};
/* Expired links that were not swept yet. */
static const struct claim_source expired = {
    .entry = FEED_LINK_REMOVED,
    .pick = {"expired_pick", EXPIRED_PICK SKIP_LOCKED},
    .pick_distributed = {"expired_pick_0", EXPIRED_PICK},
    .take = {"expired_take",
             "DELETE FROM link WHERE " EXPIRED " AND key = ANY ($2::bytea[]) RETURNING key, key_id, id"},
};

/* The advisory lock is "curx". */
static const struct pg_statement claim_serialize = {"claim_serialize", TURN_LOCK("1668641400")};

struct claim_work {
	const struct slot_row *row;
	int64_t now_ms;
	int64_t ended_ms; /* expiry at or before this */
	size_t max;
	uint64_t *ids;
	size_t count;
};

/* Only names of slots that the database owns and that are not frozen. The others are claimed elsewhere, or
 * later. */
static int claim_pick(struct postgres_txn *t, const struct claim_work *work, const struct claim_source *from,
                      struct pg_result *rows, struct str **ret, size_t *ret_count)
{
	int r = TXN_ASK(t, t->is_distributed ? &from->pick_distributed : &from->pick, rows,
	                PG_INT(work->ended_ms), PG_INT(work->max - work->count));
	if (r != 0)
		return r;
	struct str *names = arena_alloc(&t->scratch, ((size_t)rows->rows + 1) * sizeof(*names));
	size_t count = 0;
	if (!names)
		return txn_no_memory(t);
	for (int row = 0; row < rows->rows; row++) {
		names[count] = pg_get_text(rows, row, 0);
		count += slot_row_owns(work->row, names[count]) &&
		         !slot_is_frozen(work->row, slot_of(names[count]));
	}
	*ret = names;
	*ret_count = count;
	return 0;
}

static int claim_note(struct postgres_txn *t, struct claim_work *work, const struct claim_source *from,
                      const struct pg_result *taken, struct str *names)
{
	CLEANUP(buf_release) struct buf feed = {0};
	for (int row = 0; row < taken->rows; row++) {
		names[row] = pg_get_text(taken, row, 0);
		struct str entry = feed_entry_bytes(
		    &t->scratch, &(struct feed_entry){.kind = from->entry,
		                                      .id = (uint64_t)pg_get_int(taken, row, 2),
		                                      .name = names[row]});
		buf_str(&feed, entry);
		feed.failed |= !entry.ptr;
		work->ids[work->count++] = (uint64_t)pg_get_int(taken, row, 1);
	}
	if (feed.failed)
		return txn_no_memory(t);
	postgres_feed_put(t, false, work->now_ms, buf_view(&feed));
	return 0;
}

static int claim_from(struct postgres_txn *t, struct claim_work *work, const struct claim_source *from)
{
	CLEANUP(pg_result_end) struct pg_result picked = {NULL, 0};
	CLEANUP(pg_result_end) struct pg_result taken = {NULL, 0};
	struct str *names;
	size_t count;
	int r = claim_pick(t, work, from, &picked, &names, &count);
	if (r != 0 || count == 0)
		return r;
	r = TXN_ASK(t, &from->take, &taken, PG_INT(work->ended_ms), PG_BLOBS(names, count))
	        ?: claim_note(t, work, from, &taken, names);
	if (r == 0 && from == &expired)
		/* with their tags, permissions and totals */
		postgres_links_delete(t, names, (size_t)taken.rows);
	return r;
}

static int claim_run(struct postgres_txn *t, void *ctx)
{
	struct claim_work *work = ctx;
	work->count = 0;
	postgres_slots_hold(t, work->row);
	if (t->is_distributed)
		TXN_PUT(t, &claim_serialize);
	int r = claim_from(t, work, &spent);
	return r == 0 && work->count < work->max ? claim_from(t, work, &expired) : r;
}

int postgres_claim(struct store_postgres *s, const struct slot_row *row, int64_t now_ms,
                   uint64_t quarantine_ms, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	int64_t ended_ms;
	*ret_count = 0;
	if (max == 0 || __builtin_sub_overflow(now_ms, quarantine_ms, &ended_ms))
		return 0;
	struct claim_work claim = {
	    .row = row, .now_ms = now_ms, .ended_ms = ended_ms, .max = MIN(max, INT32_MAX), .ids = ret_ids};
	struct postgres_work work = postgres_work(s, claim_run, &claim);
	int r = POSTGRES_WRITE(s, retryable_error(postgres_txn_run(s->writers, NULL, &work, NULL)));
	if (r == 0)
		*ret_count = claim.count;
	return r;
}
