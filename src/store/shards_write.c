/*
 * Changes, in one transaction of each database that they are about. Where creates with an idempotency key
 * went is asked of the registry before.
 *
 * Routes. A create with an idempotency key writes down in the registry which key it will have, before it goes
 * to that key's database, where the link and the memory of the idempotency key are made in one transaction. A
 * retry has chosen another key, but finds the first one's route and goes to the same database: there it is
 * repeated, or made now under the first one's key if the first never arrived. Routes lie in the registry, and
 * not spread over the databases, since the registry stays where it is.
 *
 * A route may lead to a create that was not like this one (an alias of another name): then that database is
 * asked only whether it happened. If not, the route is forgotten and this one takes its place.
 */
#include "store/shards.h"

enum { ROUNDS_MAX = 4 };

/* A change beside what its database gets, which stands in changes.batch. */
struct change {
	struct store_write *from;  /* the caller's */
	struct store_route *route; /* NULL: it has none */
	bool foreign; /* the route leads to another create: it is asked whether that one happened */
};

struct changes {
	struct store_shards *s;
	struct shards_batch batch;
	struct store_write *writes; /* the batch's items */
	struct change *all;
	struct store_route *routes; /* of those that have one */
	struct arena arena;
};

/* --- routes --- */

/* Follows the route. A generated key is as good as any other; a name that somebody chose is not. */
static void route_follow(struct change *c, struct store_write *w)
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

static void routes_ask(struct changes *changes)
{
	const struct shards_batch *b = &changes->batch;
	size_t count = 0;
	for (size_t i = 0; i < b->n; i++) {
		const struct store_write *w = &changes->writes[i];
		bool wants = b->pending[i] && w->kind == STORE_LINK_CREATE && w->idempotency_key.ptr;
		changes->all[i].route = wants ? &changes->routes[count] : NULL;
		if (wants)
			changes->routes[count++] = route_of(w);
	}
	int r = postgres_routes_get(shards_registry(changes->s), changes->routes, count);
	for (size_t i = 0; i < b->n; i++) {
		if (!changes->all[i].route)
			continue;
		if (r == 0) {
			route_follow(&changes->all[i], &changes->writes[i]);
			continue;
		}
		/* Of the create nothing has happened. */
		changes->writes[i].result = r == ERR_UNCERTAIN ? ERR_UNAVAILABLE : r;
		b->pending[i] = false;
	}
}

/* After the databases have answered: forgets routes that lead nowhere. True when there are creates that may
 * be tried again. */
static bool routes_settle(struct changes *changes)
{
	bool again = false;
	for (size_t i = 0; i < changes->batch.n; i++) {
		struct change *c = &changes->all[i];
		struct store_write *w = &changes->writes[i];
		if (!c->route)
			continue;
		/* It was only to be repeated if it happened before. */
		bool round_trip = w->replay_only && w->result == ERR_LIMIT && !c->from->replay_only;
		if (round_trip || w->result == ERR_CONFLICT) /* left behind, it is asked again */
			(void)postgres_route_drop(shards_registry(changes->s), c->route);
		if (round_trip && c->foreign) {
			*w = *c->from;
			w->result = ERR_UNAVAILABLE; /* unless it is tried again */
			changes->batch.pending[i] = again = true;
		}
	}
	return again;
}

/* --- transactions --- */

/* One whose slot is frozen waits. */
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
			result = ERR_UNCERTAIN; /* it happened, but cannot be told whole */
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
		to->ref = w->ref; /* as its route said */
	if (w->result == 0)
		to->link = w->link;
}

static int changes_make(struct changes *changes, struct store_write *writes, size_t n)
{
	changes->all = arena_zalloc(&changes->arena, n * sizeof(*changes->all));
	changes->writes = arena_alloc(&changes->arena, n * sizeof(*writes));
	changes->routes = arena_alloc(&changes->arena, n * sizeof(*changes->routes));
	changes->batch.pending = arena_alloc(&changes->arena, n);
	if (!changes->all || !changes->writes || !changes->routes || !changes->batch.pending)
		return ERR_NOMEM;
	changes->batch.items = memcpy(changes->writes, writes, n * sizeof(*writes));
	memset(changes->batch.pending, true, n);
	for (size_t i = 0; i < n; i++) {
		changes->all[i].from = &writes[i];
		changes->writes[i].replayed = false;
	}
	return 0;
}

int shards_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_shards *s = shards_of(base);
	struct changes changes = {.s = s, .batch = {.kind = &writes_kind, .items = writes, .n = n}};
	int r = n > 0 ? shards_batch_unsharded(s, &changes.batch) : 0;
	if (n == 0 || changes.batch.is_unsharded)
		return r;
	if (s->is_single)
		return ERR_UNAVAILABLE;
	r = changes_make(&changes, writes, n);
	calls_enter(&s->calls);
	bool again = r == 0;
	for (int round = 0; again && round < ROUNDS_MAX; round++) {
		routes_ask(&changes);
		shards_batch_sharded(s, &changes.batch);
		again = routes_settle(&changes);
	}
	calls_leave(&s->calls);
	for (size_t i = 0; r == 0 && i < n; i++)
		outcome_give(&changes.writes[i], &writes[i]);
	arena_release(&changes.arena);
	return r;
}
