/*
 * Changes of links: one transaction in each database that they touch.
 *
 * Routes. A create with an idempotency key first stores in the registry which key it chose. Then it goes to
 * that key's database, which writes the link and the idempotency key in one transaction. A retry has chosen
 * another key, but finds the route of the first attempt and goes to the same database. There it is replayed
 * or, if the first attempt never arrived, created under the first key. Routes are in the registry because
 * the registry never moves.
 *
 * A route may lead to a different create (an alias of another name). Then that database is asked only
 * whether that create happened. If it did not, the route is dropped, and this create takes its place.
 */
#include "store/shards.h"

enum { ROUNDS_MAX = 4 };

/* A routed_write, and its route. batch.items has the copy that its database gets. */
struct routed_write {
	struct store_write *from;  /* the caller's */
	struct store_route *route; /* NULL: no idempotency key */
	bool foreign;              /* the route leads to a different create: ask only whether that happened */
};

struct write_batch {
	struct store_shards *s;
	struct shards_batch batch;
	struct store_write *writes; /* batch.items */
	struct routed_write *all;
	struct store_route *routes; /* of the creates with an idempotency key */
	struct arena arena;
};

/* --- routes --- */

/* Applies the route. Generated keys are interchangeable; a chosen name is not. */
static void route_follow(struct routed_write *c, struct store_write *w)
{
	const struct store_route *route = c->route;
	bool plain = !w->link.is_alias && !route->is_alias;
	c->foreign = !plain && !str_eq(route->ref.key, w->ref.key);
	w->replay_only = c->from->replay_only || c->foreign;
	if (str_eq(route->ref.key, w->ref.key))
		return;
	w->ref = route->ref;
	w->link.key = route->ref.key;
	w->link.id = route->link_id;
	w->link.is_alias = route->is_alias;
	w->reuse = false;
}

static struct store_route route_of(const struct store_write *w)
{
	return (struct store_route){.owner = w->idempotency_owner,
	                            .idempotency_key = w->idempotency_key,
	                            .now_ms = w->now_ms,
	                            .arena = w->arena,
	                            .ref = w->ref,
	                            .link_id = w->link.id,
	                            .is_alias = w->link.is_alias};
}

static void routes_ask(struct write_batch *wb)
{
	const struct shards_batch *b = &wb->batch;
	size_t count = 0;
	for (size_t i = 0; i < b->n; i++) {
		const struct store_write *w = &wb->writes[i];
		bool wants = b->pending[i] && w->kind == STORE_LINK_CREATE && w->idempotency_key.ptr;
		wb->all[i].route = wants ? &wb->routes[count] : NULL;
		if (wants)
			wb->routes[count++] = route_of(w);
	}
	int r = postgres_routes_get(shards_registry(wb->s), wb->routes, count);
	for (size_t i = 0; i < b->n; i++) {
		if (!wb->all[i].route)
			continue;
		if (r == 0) {
			route_follow(&wb->all[i], &wb->writes[i]);
			continue;
		}
		/* the create has not been tried */
		wb->writes[i].result = r == ERR_UNCERTAIN ? ERR_UNAVAILABLE : r;
		b->pending[i] = false;
	}
}

/* After the databases have answered: drops useless routes. True: some creates must be tried again. */
static bool routes_finish(struct write_batch *wb)
{
	bool again = false;
	for (size_t i = 0; i < wb->batch.n; i++) {
		struct routed_write *c = &wb->all[i];
		struct store_write *w = &wb->writes[i];
		if (!c->route)
			continue;
		/* it was only a replay, and there was nothing to replay */
		bool round_trip = w->replay_only && w->result == ERR_LIMIT && !c->from->replay_only;
		if (round_trip || w->result == ERR_CONFLICT) /* a route that stays is harmless */
			(void)postgres_route_drop(shards_registry(wb->s), c->route);
		if (round_trip && c->foreign) {
			*w = *c->from;
			w->result = ERR_UNAVAILABLE; /* unless the next round succeeds */
			wb->batch.pending[i] = again = true;
		}
	}
	return again;
}

/* --- transactions --- */

/* A change of a frozen slot waits. */
static uint64_t write_shards(void *item, const struct shards_view *v, uint64_t *ret_stale)
{
	const struct store_write *w = item;
	unsigned slot = slot_of(w->ref.key);
	size_t shard = v->owner[slot];
	bool is_frozen = shard < SHARDS_MAX && v->is_known[shard] && slot_is_frozen(&v->rows[shard], slot);
	*ret_stale = is_frozen || shard == SHARD_NONE ? (uint64_t)1 << shard : 0;
	return (uint64_t)1 << shard;
}

static int write_call(struct store_postgres *db, const struct slot_row *row, void *items, size_t n)
{
	return postgres_apply(db, row, items, n);
}

static void write_take(void *item, const void *copy, int error)
{
	struct store_write *w = item;
	const struct store_write *from = copy;
	int result = error ? error : from->result;
	if (result == 0) {
		struct arena *arena = w->arena;
		*w = *from;
		w->arena = arena;
		if (link_own(arena, &w->link) != 0)
			result = ERR_UNCERTAIN; /* it was applied, but cannot be returned */
	}
	w->replayed = !error && from->replayed;
	w->result = result;
}

static const struct shards_batch_kind writes_kind = {.bytes = sizeof(struct store_write),
                                                     .arena_at = offsetof(struct store_write, arena),
                                                     .shards = write_shards,
                                                     .call = write_call,
                                                     .take = write_take};

static void outcome_give(const struct store_write *w, struct store_write *to)
{
	to->result = w->result;
	to->replayed = w->replayed;
	bool made = w->kind == STORE_LINK_CREATE && !w->replayed;
	if (made && (w->result == 0 || w->result == ERR_UNCERTAIN))
		to->ref = w->ref; /* as its route says */
	if (w->result == 0)
		to->link = w->link;
}

static int write_batch_init(struct write_batch *wb, struct store_write *writes, size_t n)
{
	wb->all = arena_zalloc(&wb->arena, n * sizeof(*wb->all));
	wb->writes = arena_alloc(&wb->arena, n * sizeof(*writes));
	wb->routes = arena_alloc(&wb->arena, n * sizeof(*wb->routes));
	wb->batch.pending = arena_alloc(&wb->arena, n);
	if (!wb->all || !wb->writes || !wb->routes || !wb->batch.pending)
		return ERR_NOMEM;
	wb->batch.items = memcpy(wb->writes, writes, n * sizeof(*writes));
	memset(wb->batch.pending, true, n);
	for (size_t i = 0; i < n; i++) {
		wb->all[i].from = &writes[i];
		wb->writes[i].replayed = false;
	}
	return 0;
}

int shards_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_shards *s = shards_of(base);
	struct write_batch wb = {.s = s, .batch = {.kind = &writes_kind, .items = writes, .n = n}};
	int r = n > 0 ? shards_batch_unsharded(s, &wb.batch) : 0;
	if (n == 0 || wb.batch.is_unsharded)
		return r;
	if (s->is_single)
		return ERR_UNAVAILABLE;
	r = write_batch_init(&wb, writes, n);
	calls_enter(&s->calls);
	bool again = r == 0;
	for (int round = 0; again && round < ROUNDS_MAX; round++) {
		routes_ask(&wb);
		shards_batch_sharded(s, &wb.batch);
		again = routes_finish(&wb);
	}
	calls_leave(&s->calls);
	for (size_t i = 0; r == 0 && i < n; i++)
		outcome_give(&wb.writes[i], &writes[i]);
	arena_release(&wb.arena);
	return r;
}
