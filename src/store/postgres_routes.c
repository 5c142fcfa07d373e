/* Routes of creates with an idempotency key, in the registry (shards_write.c). */
#include "store/postgres_store.h"

/* Turns remembered creates into routes to where they went. */
static const struct pg_statement routes_fill = {
    "routes_fill", "INSERT INTO route (caller, name, key, key_id, link_id, is_alias, made_ms)"
                   " SELECT r.caller, r.name, r.link_key, coalesce(l.key_id, s.id, 0), r.link_id,"
                   " coalesce(l.is_alias, s.key IS NULL), r.made_ms FROM replay r"
                   " LEFT JOIN link l ON l.key = r.link_key LEFT JOIN spent_key s ON s.key = r.link_key"
                   " ON CONFLICT (caller, name) DO UPDATE SET key = excluded.key, key_id = excluded.key_id,"
                   " link_id = excluded.link_id, is_alias = excluded.is_alias, made_ms = excluded.made_ms"
                   " WHERE route.made_ms < excluded.made_ms"};

void postgres_routes_fill(struct postgres_txn *t)
{
	TXN_PUT(t, &routes_fill);
}

enum { FILL_TIMEOUT_MS = 60 * 1000 };

static int fill_now(struct pg_conn *c)
{
	return postgres_error(pg_timeout(c, FILL_TIMEOUT_MS, NULL) ?: PG_EXEC(c, &routes_fill));
}

int postgres_routes_prepare(struct store_postgres *s)
{
	return POSTGRES_WRITE_ON(s, fill_now(c));
}

static const struct pg_statement routes_purge = {
    "routes_purge", "DELETE FROM route WHERE (caller, name) IN (SELECT caller, name FROM route"
                    " WHERE made_ms <= $1 ORDER BY made_ms LIMIT $2 FOR UPDATE SKIP LOCKED)"};
/* Replaces an expired route. */
static const struct pg_statement routes_insert = {
    "routes_insert",
    "INSERT INTO route (caller, name, key, key_id, link_id, is_alias, made_ms)"
    " SELECT DISTINCT ON (caller, name) caller, name, key, key_id, link_id, is_alias <> 0, made_ms"
    " FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[],"
    " $7::bigint[]) WITH ORDINALITY AS n (caller, name, key, key_id, link_id, is_alias, made_ms, at)"
    " ORDER BY caller, name, at ON CONFLICT (caller, name) DO UPDATE SET key = excluded.key,"
    " key_id = excluded.key_id, link_id = excluded.link_id, is_alias = excluded.is_alias,"
    " made_ms = excluded.made_ms WHERE route.made_ms <= excluded.made_ms - $8::bigint"};
static const struct pg_statement routes_get = {
    "routes_get", "SELECT a.at, r.key, r.key_id, r.link_id, r.is_alias"
                  " FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY AS a (caller, name, at)"
                  " JOIN route r ON r.caller = a.caller AND r.name = a.name"};

struct route_work {
	struct store_route *routes;
	size_t n;
};

/* Returns the stored choice, which may be the caller's own. */
static int route_take(const struct pg_result *rows, int row, const struct route_work *work)
{
	struct store_route *route = &work->routes[pg_get_int(rows, row, 0) - 1];
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
	const struct store_route *routes = work->routes;
	size_t n = work->n;
	int64_t *are_aliases = arena_alloc(&t->scratch, n * sizeof(*are_aliases));
	if (!are_aliases)
		return txn_no_memory(t);
	for (size_t i = 0; i < n; i++)
		are_aliases[i] = routes[i].is_alias;
	TXN_PUT(t, &routes_purge, PG_INT(routes[0].now_ms - REPLAY_MS),
	        PG_INT((int64_t)n * REPLAY_PURGE_PER_CREATE));
	struct pg_query q = txn_query(t, &routes_insert);
	PG_FIELDS(&q, pg_ints, routes, n, owner);
	PG_FIELDS(&q, pg_blobs, routes, n, idempotency_key);
	PG_FIELDS(&q, pg_blobs, routes, n, ref.key);
	PG_FIELDS(&q, pg_ints, routes, n, ref.id);
	PG_FIELDS(&q, pg_ints, routes, n, link_id);
	pg_ints(&q, are_aliases, n);
	PG_FIELDS(&q, pg_ints, routes, n, now_ms);
	pg_int(&q, REPLAY_MS);
	txn_put(t, &q);
	q = txn_query(t, &routes_get);
	PG_FIELDS(&q, pg_ints, routes, n, owner);
	PG_FIELDS(&q, pg_blobs, routes, n, idempotency_key);
	int r = txn_ask(t, &q, &rows);
	if (r == 0 && (size_t)rows.rows != n)
		return ERR_BUSY; /* one was dropped meanwhile: retry */
	for (int row = 0; r == 0 && row < rows.rows; row++)
		r = route_take(&rows, row, work);
	return r;
}

int postgres_routes_get(struct store_postgres *s, struct store_route *routes, size_t n)
{
	if (n == 0)
		return 0;
	struct route_work route = {routes, n};
	struct postgres_work work = postgres_work(s, route_run, &route);
	return postgres_error(POSTGRES_WRITE(s, postgres_write(s, &work, NULL)));
}

static const struct pg_statement route_forget = {
    "route_forget", "DELETE FROM route WHERE caller = $1 AND name = $2 AND link_id = $3 AND key = $4"};

static int route_drop(struct pg_conn *c, const struct store_route *route)
{
	return postgres_error(PG_EXEC(c, &route_forget, PG_INT(route->owner), PG_TEXT(route->idempotency_key),
	                              PG_INT(route->link_id), PG_TEXT(route->ref.key)));
}

int postgres_route_drop(struct store_postgres *s, const struct store_route *route)
{
	return POSTGRES_WRITE_ON(s, route_drop(c, route));
}
