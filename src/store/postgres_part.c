/*
 * A PostgreSQL store as one of several parts: the ring's epoch, where creates went, and keys that move.
 *
 * Who works under an epoch holds a shared advisory lock until its transaction ends; who sets the ring takes
 * it alone. A move is a transaction in the part that is left: its rows are locked from move_begin on, and
 * gone when it commits. They travel as JSON, each table's rows as they are, so that no column can be
 * forgotten.
 */
#include "store/part.h"

#include "store/postgres_read.h"
#include "store/postgres_rows.h"
#include "store/postgres_store.h"

/* --- the epoch --- */

/* The number is "curu": not the lock under which the tables are made. */
#define RING_LOCK(function) \
	"SELECT " function "(1668641397, oid::int) FROM pg_namespace WHERE nspname = current_schema()"

static const struct pg_statement ring_hold = {"ring_hold", RING_LOCK("pg_advisory_xact_lock_shared")};
static const struct pg_statement ring_lock = {"ring_lock", RING_LOCK("pg_advisory_xact_lock")};
/* Divides by 0 when it is another one: that ends the transaction without a round trip. */
static const struct pg_statement epoch_demand = {"epoch_demand",
                                                 "SELECT 1 / (epoch = $1)::int FROM ring_state WHERE id = 1"};
static const struct pg_statement ring_read = {"ring_read",
                                              "SELECT epoch, description FROM ring_state WHERE id = 1"};
static const struct pg_statement ring_write = {
    "ring_write",
    "UPDATE ring_state SET epoch = $1, description = $2 WHERE id = 1 AND epoch < $1 RETURNING 1"};
void postgres_epoch_hold(struct postgres_txn *t, uint64_t epoch)
{
	struct pg_query q = txn_query(t, &ring_hold);
	txn_put(t, &q);
	q = txn_query(t, &epoch_demand);
	pg_int(&q, (int64_t)part_epoch_number(epoch));
	txn_put(t, &q);
}

static int ring_get_on(struct pg_conn *c, struct arena *arena, uint64_t *ret_epoch, struct str *ret_text)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = pg_query(c, &ring_read);
	int r = pg_ask(&q, &row, NULL);
	if (r != 0 || row.rows == 0)
		return r ? postgres_error(r) : ERR_CORRUPT;
	struct str text = pg_get_text(&row, 0, 1);
	if (!str_own(arena, &text))
		return ERR_NOMEM;
	*ret_epoch = (uint64_t)pg_get_int(&row, 0, 0);
	*ret_text = text;
	return 0;
}

/* From the primary always. */
static int part_ring_get(struct store *base, struct arena *arena, uint64_t *ret_epoch, struct str *ret_text)
{
	struct store_postgres *s = store_postgres_of(base);
	return POSTGRES_READ(s, ring_get_on(c, arena, ret_epoch, ret_text));
}

int postgres_epoch_error(int r)
{
	if (r == ERR_NOT_FOUND)
		return ERR_CONFLICT;
	return r == ERR_CONFLICT ? r : postgres_error(r);
}

/* What is remembered of creates, as routes to where they went. */
static const struct pg_statement routes_fill = {
    "routes_fill", "INSERT INTO route (caller, name, key, key_id, link_id, is_alias, made_ms)"
                   " SELECT r.caller, r.name, r.link_key, coalesce(l.key_id, s.id, 0), r.link_id,"
                   " coalesce(l.is_alias, s.key IS NULL), r.made_ms FROM replay r"
                   " LEFT JOIN link l ON l.key = r.link_key LEFT JOIN spent_key s ON s.key = r.link_key"
                   " ON CONFLICT (caller, name) DO UPDATE SET key = excluded.key, key_id = excluded.key_id,"
                   " link_id = excluded.link_id, is_alias = excluded.is_alias, made_ms = excluded.made_ms"
                   " WHERE route.made_ms < excluded.made_ms"};

enum { FILL_TIMEOUT_MS = 60 * 1000 };

struct ring_work {
	uint64_t epoch;
	struct str text;
	bool was_whole;
};

static int ring_set_run(struct postgres_txn *t, void *ctx)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	const struct ring_work *work = ctx;
	struct pg_query q = txn_query(t, &ring_lock);
	txn_put(t, &q);
	q = txn_query(t, &ring_write);
	pg_int(&q, (int64_t)work->epoch);
	pg_text(&q, work->text);
	int r = txn_ask(t, &q, &row);
	if (r != 0 || row.rows == 0)
		return r ? r : ERR_CONFLICT;
	if (work->was_whole) {
		q = txn_query(t, &routes_fill);
		txn_put(t, &q);
	}
	return 0;
}

static int ring_set(struct store_postgres *s, struct ring_work *ring)
{
	struct postgres_work work = {.run = ring_set_run, .ctx = ring};
	int r = POSTGRES_WRITE(s, postgres_write(s, &work, NULL));
	return r == ERR_CONFLICT ? r : postgres_error(r);
}

static int part_ring_set(struct store *base, uint64_t epoch, struct str text)
{
	struct ring_work ring = {epoch, text, false};
	return ring_set(store_postgres_of(base), &ring);
}

static int routes_fill_now(struct store_postgres *s)
{
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	struct pg_conn *c = pg_take(s->writers, NULL);
	int r = c ? pg_timeout(c, FILL_TIMEOUT_MS, NULL) : ERR_UNAVAILABLE;
	if (r == 0) {
		struct pg_query q = pg_query(c, &routes_fill);
		r = pg_ask(&q, &none, NULL);
	}
	pg_return(c);
	return postgres_error(r);
}

/* Most routes are made before, as nobody can change anything while the ring is being set. */
static int part_ring_set_whole(struct store *base, uint64_t epoch, struct str text)
{
	struct store_postgres *s = store_postgres_of(base);
	struct ring_work ring = {epoch, text, true};
	int r = POSTGRES_WRITE(s, routes_fill_now(s));
	return r == 0 ? ring_set(s, &ring) : r;
}

static int part_lookup(struct store *base, uint64_t epoch, struct store_lookup *reads, size_t n)
{
	int r = n > 0 ? postgres_lookup_at(store_postgres_of(base), epoch, reads, n) : 0;
	return r == ERR_CONFLICT ? r : postgres_error(r);
}

static int part_apply(struct store *base, uint64_t epoch, struct store_write *writes, size_t n)
{
	struct store_postgres *s = store_postgres_of(base);
	return postgres_epoch_error(postgres_apply_at(s, epoch, true, writes, n));
}

static int part_apply_whole(struct store *base, uint64_t epoch, struct store_write *writes, size_t n)
{
	struct store_postgres *s = store_postgres_of(base);
	if (epoch == PART_ALONE && !s->kind.has_advisory_locks)
		epoch = 0; /* nobody can make it one of several */
	return postgres_epoch_error(postgres_apply_at(s, epoch, false, writes, n));
}

static const struct pg_statement counter_read = {"counter_read", "SELECT next FROM counter WHERE name = $1"};
static const struct pg_statement link_id_max = {"link_id_max", "SELECT coalesce(max(id), 0) FROM link"};

static int counter_on(struct pg_conn *c, struct str counter, uint64_t *ret_next)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = pg_query(c, &counter_read);
	pg_text(&q, counter);
	int r = pg_ask(&q, &row, NULL);
	if (r == 0)
		*ret_next = row.rows > 0 ? (uint64_t)pg_get_int(&row, 0, 0) : COUNTER_FIRST;
	return postgres_error(r);
}

static int part_counter(struct store *base, struct str counter, uint64_t *ret_next)
{
	struct store_postgres *s = store_postgres_of(base);
	return POSTGRES_READ(s, counter_on(c, counter, ret_next));
}

static int link_id_last_on(struct pg_conn *c, uint64_t *ret)
{
	CLEANUP(pg_result_end) struct pg_result row = {NULL, 0};
	struct pg_query q = pg_query(c, &link_id_max);
	int r = pg_ask(&q, &row, NULL);
	if (r == 0)
		*ret = (uint64_t)pg_get_int(&row, 0, 0);
	return postgres_error(r);
}

static int part_link_id_last(struct store *base, uint64_t *ret)
{
	struct store_postgres *s = store_postgres_of(base);
	return POSTGRES_READ(s, link_id_last_on(c, ret));
}

/* --- routes --- */

static const struct pg_statement routes_purge = {
    "routes_purge", "DELETE FROM route WHERE (caller, name) IN (SELECT caller, name FROM route"
                    " WHERE made_ms <= $1 ORDER BY made_ms LIMIT $2 FOR UPDATE SKIP LOCKED)"};
static const struct pg_statement routes_clear = {
    "routes_clear", "DELETE FROM route r USING unnest($1::bigint[], $2::bytea[], $3::bigint[])"
                    " AS a (caller, name, dead_ms)"
                    " WHERE r.caller = a.caller AND r.name = a.name AND r.made_ms <= a.dead_ms"};
static const struct pg_statement routes_insert = {
    "routes_insert",
    "INSERT INTO route (caller, name, key, key_id, link_id, is_alias, made_ms)"
    " SELECT DISTINCT ON (caller, name) caller, name, key, key_id, link_id, is_alias <> 0, made_ms"
    " FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[],"
    " $7::bigint[]) WITH ORDINALITY AS n (caller, name, key, key_id, link_id, is_alias, made_ms, at)"
    " ORDER BY caller, name, at ON CONFLICT (caller, name) DO NOTHING"};
static const struct pg_statement routes_get = {
    "routes_get", "SELECT a.at, r.key, r.key_id, r.link_id, r.is_alias"
                  " FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS a (caller, name, at)"
                  " JOIN route r ON r.caller = a.caller AND r.name = a.name"};

struct route_work {
	struct part_route *routes;
	size_t n;
};

struct route_columns {
	int64_t *callers, *key_ids, *link_ids, *are_aliases, *made_ms, *dead_ms;
	struct str *names, *keys;
};

static int route_columns_fill(struct postgres_txn *t, const struct route_work *work, struct route_columns *to)
{
	size_t n = work->n;
	int64_t *ints = arena_alloc(&t->scratch, 6 * n * sizeof(*ints));
	struct str *strs = arena_alloc(&t->scratch, 2 * n * sizeof(*strs));
	if (!ints || !strs)
		return txn_no_memory(t);
	*to = (struct route_columns){ints,         ints + n,     ints + 2 * n, ints + 3 * n,
	                             ints + 4 * n, ints + 5 * n, strs,         strs + n};
	for (size_t i = 0; i < n; i++) {
		const struct part_route *route = &work->routes[i];
		to->callers[i] = (int64_t)route->owner;
		to->names[i] = route->idempotency_key;
		to->keys[i] = route->ref.key;
		to->key_ids[i] = (int64_t)route->ref.id;
		to->link_ids[i] = (int64_t)route->link_id;
		to->are_aliases[i] = route->is_alias;
		to->made_ms[i] = route->now_ms;
		to->dead_ms[i] = route->now_ms - REPLAY_MS;
	}
	return 0;
}

static void routes_put(struct postgres_txn *t, const struct route_columns *c, size_t n)
{
	struct pg_query q = txn_query(t, &routes_purge);
	pg_int(&q, c->dead_ms[0]);
	pg_int(&q, (int64_t)n * REPLAY_PURGE_PER_CREATE);
	txn_put(t, &q);
	q = txn_query(t, &routes_clear);
	pg_ints(&q, c->callers, n);
	pg_blobs(&q, c->names, n);
	pg_ints(&q, c->dead_ms, n);
	txn_put(t, &q);
	q = txn_query(t, &routes_insert);
	pg_ints(&q, c->callers, n);
	pg_blobs(&q, c->names, n);
	pg_blobs(&q, c->keys, n);
	pg_ints(&q, c->key_ids, n);
	pg_ints(&q, c->link_ids, n);
	pg_ints(&q, c->are_aliases, n);
	pg_ints(&q, c->made_ms, n);
	txn_put(t, &q);
}

/* A choice that is the caller's own comes back as it was. */
static int route_take(const struct pg_result *rows, int row, const struct route_work *work)
{
	struct part_route *route = &work->routes[pg_get_int(rows, row, 0) - 1];
	struct str key = pg_get_text(rows, row, 1);
	if (!str_own(route->arena, &key))
		return ERR_NOMEM;
	route->ref = (struct link_ref){.id = (uint64_t)pg_get_int(rows, row, 2), .key = key};
	route->link_id = (uint64_t)pg_get_int(rows, row, 3);
	route->is_alias = pg_get_int(rows, row, 4);
	return 0;
}

static int route_run(struct postgres_txn *t, void *ctx)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	const struct route_work *work = ctx;
	struct route_columns c;
	int r = route_columns_fill(t, work, &c);
	if (r != 0)
		return r;
	routes_put(t, &c, work->n);
	struct pg_query q = txn_query(t, &routes_get);
	pg_ints(&q, c.callers, work->n);
	pg_blobs(&q, c.names, work->n);
	r = txn_ask(t, &q, &rows);
	if (r == 0 && (size_t)rows.rows != work->n)
		return ERR_BUSY; /* one was dropped in between */
	for (int row = 0; r == 0 && row < rows.rows; row++)
		r = route_take(&rows, row, work);
	return r;
}

static int part_route(struct store *base, struct part_route *routes, size_t n)
{
	struct store_postgres *s = store_postgres_of(base);
	if (n == 0)
		return 0;
	struct route_work route = {routes, n};
	struct postgres_work work = {.run = route_run, .ctx = &route};
	return postgres_error(POSTGRES_WRITE(s, postgres_write(s, &work, NULL)));
}

static const struct pg_statement route_forget = {
    "route_forget", "DELETE FROM route WHERE caller = $1 AND name = $2 AND link_id = $3 AND key = $4"};

static int route_drop(struct store_postgres *s, const struct part_route *route)
{
	CLEANUP(pg_result_end) struct pg_result none = {NULL, 0};
	struct pg_conn *c = pg_take(s->writers, NULL);
	if (!c)
		return ERR_UNAVAILABLE;
	struct pg_query q = pg_query(c, &route_forget);
	pg_int(&q, (int64_t)route->owner);
	pg_text(&q, route->idempotency_key);
	pg_int(&q, (int64_t)route->link_id);
	pg_text(&q, route->ref.key);
	int r = pg_ask(&q, &none, NULL);
	pg_return(c);
	return postgres_error(r);
}

static int part_route_drop(struct store *base, const struct part_route *route)
{
	struct store_postgres *s = store_postgres_of(base);
	return POSTGRES_WRITE(s, route_drop(s, route));
}

/* --- pages --- */

static bool part_before(const struct link_record *a, const struct link_record *b)
{
	return a->created_ms != b->created_ms ? a->created_ms > b->created_ms : a->id > b->id;
}

#define KEYS_OF(table, column) \
	"(SELECT " column " AS key FROM " table " WHERE " column " > $1 ORDER BY " column " LIMIT $2)"

static const struct pg_statement keys_above = {
    "keys_above",
    "SELECT key FROM (" KEYS_OF("link", "key") " UNION " KEYS_OF("resting", "key") " UNION " KEYS_OF(
        "spent_key", "key") " UNION " KEYS_OF("replay", "link_key") ") AS k ORDER BY key LIMIT $2"};

static int keys_after_on(struct pg_conn *c, struct str after, size_t max, struct arena *arena,
                         struct str *ret, size_t *ret_count)
{
	CLEANUP(pg_result_end) struct pg_result rows = {NULL, 0};
	struct pg_query q = pg_query(c, &keys_above);
	pg_text(&q, after.ptr ? after : STR(""));
	pg_int(&q, (int64_t)MIN(max, INT32_MAX));
	int r = pg_ask(&q, &rows, NULL);
	if (r != 0)
		return postgres_error(r);
	for (int row = 0; row < rows.rows; row++) {
		ret[row] = pg_get_text(&rows, row, 0);
		if (!str_own(arena, &ret[row]))
			return ERR_NOMEM;
	}
	*ret_count = (size_t)rows.rows;
	return 0;
}

static int part_keys_after(struct store *base, struct str after, size_t max, struct arena *arena,
                           struct str *ret, size_t *ret_count)
{
	struct store_postgres *s = store_postgres_of(base);
	return POSTGRES_READ(s, keys_after_on(c, after, max, arena, ret, ret_count));
}

const struct store_part_ops postgres_part_ops = {
    .lookup = part_lookup,
    .apply = part_apply,
    .apply_whole = part_apply_whole,
    .ring_get = part_ring_get,
    .ring_set = part_ring_set,
    .ring_set_whole = part_ring_set_whole,
    .counter = part_counter,
    .link_id_last = part_link_id_last,
    .route = part_route,
    .route_drop = part_route_drop,
    .cursor = postgres_cursor_format,
    .before = part_before,
    .keys_after = part_keys_after,
    .move_begin = postgres_move_begin,
    .move_put = postgres_move_put,
    .move_end = postgres_move_end,
};
