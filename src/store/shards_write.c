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

#include <stdlib.h>

enum { ROUNDS_MAX = 4 };

struct change {
	struct store_write *from; /* the caller's */
	struct store_write write; /* as the database gets it */
	bool pending;             /* its database has not answered for good */
	bool routed;              /* it has a route */
	bool foreign; /* the route leads to another create: it is asked whether that one happened */
	struct store_route route;
};

struct changes {
	struct store_shards *s;
	struct change *all;
	size_t count;
};

static void change_end(struct change *c, int result)
{
	c->write.result = result;
	c->pending = false;
}

/* --- routes --- */

static bool wants_route(const struct change *c)
{
	return c->pending && c->write.kind == STORE_LINK_CREATE && c->write.idempotency_key.ptr;
}

/* Follows the route. A generated key is as good as any other; a name that somebody chose is not. */
static void route_follow(struct change *c, const struct store_route *route)
{
	struct store_write *w = &c->write;
	bool plain = !w->link.is_alias && !route->is_alias;
	c->route = *route;
	c->routed = true;
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

static struct store_route route_of(const struct change *c)
{
	const struct store_write *w = c->from;
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
	struct store_route *routes = calloc(changes->count + 1, sizeof(*routes));
	size_t count = 0, at = 0;
	for (size_t i = 0; routes && i < changes->count; i++) {
		if (wants_route(&changes->all[i]))
			routes[count++] = route_of(&changes->all[i]);
	}
	int r = routes ? postgres_routes_get(shards_registry(changes->s), routes, count) : ERR_NOMEM;
	if (r == ERR_UNCERTAIN)
		r = ERR_UNAVAILABLE; /* of the creates nothing has happened */
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		if (!wants_route(c))
			continue;
		if (r == 0)
			route_follow(c, &routes[at++]);
		else
			change_end(c, r);
	}
	free(routes);
}

static void create_restart(struct change *c)
{
	c->write = *c->from;
	c->routed = c->foreign = false;
	c->pending = true;
}

/* After the databases have answered: forgets routes that lead nowhere. True when there are creates that may
 * be tried again. */
static bool routes_settle(struct changes *changes)
{
	bool again = false;
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		if (!c->routed)
			continue;
		/* It was only to be repeated if it happened before. */
		bool nothing = c->write.replay_only && c->write.result == ERR_LIMIT && !c->from->replay_only;
		if (nothing || c->write.result == ERR_CONFLICT) /* left behind, it is asked again */
			(void)postgres_route_drop(shards_registry(changes->s), &c->route);
		if (nothing && c->foreign) {
			create_restart(c);
			again = true;
		}
	}
	return again;
}

/* --- transactions --- */

/* The changes as they are handed to databases: those of one stand side by side in their order, and share an
 * arena that no other thread touches. */
struct spread {
	const struct shards_view *v;
	struct arena arenas[SHARD_KINDS];
	struct store_write *copies;
	struct change **changes; /* whose copy it is */
	size_t begin[SHARD_KINDS + 1];
};

static void spread_release(struct spread *sp)
{
	for (size_t i = 0; i < SHARD_KINDS; i++)
		arena_release(&sp->arenas[i]);
	free(sp->copies);
	free(sp->changes);
}

/* Where the change goes. One whose slot is frozen waits. */
static size_t change_shard(const struct shards_view *v, const struct change *c, uint64_t *stale)
{
	unsigned slot = slot_of(c->write.ref.key);
	size_t shard = v->owner[slot];
	bool is_frozen = shard < SHARDS_MAX && v->is_known[shard] && slot_is_frozen(&v->rows[shard], slot);
	if (!is_frozen && shard != SHARD_NOBODY)
		return shard;
	*stale |= (uint64_t)1 << shard;
	return SHARD_NOBODY;
}

static int spread_init(struct spread *sp, const struct shards_view *v, struct changes *changes,
                       uint64_t *stale)
{
	size_t at = 0;
	*sp = (struct spread){.v = v};
	uint8_t *shards = calloc(changes->count + 1, sizeof(*shards));
	sp->copies = calloc(changes->count + 1, sizeof(*sp->copies));
	sp->changes = calloc(changes->count + 1, sizeof(struct change *));
	bool done = shards && sp->copies && sp->changes;
	for (size_t i = 0; done && i < changes->count; i++) {
		const struct change *c = &changes->all[i];
		shards[i] = (uint8_t)(c->pending ? change_shard(v, c, stale) : SHARD_NOBODY);
	}
	for (size_t shard = 0; done && shard < SHARD_NOBODY; shard++) {
		sp->begin[shard] = at;
		for (size_t i = 0; i < changes->count; i++) {
			if (shards[i] != shard)
				continue;
			sp->changes[at] = &changes->all[i];
			sp->copies[at] = changes->all[i].write;
			sp->copies[at++].arena = &sp->arenas[shard];
		}
	}
	sp->begin[SHARD_NOBODY] = sp->begin[SHARD_KINDS] = at;
	free(shards);
	return done ? 0 : ERR_NOMEM;
}

static int apply_call(void *ctx, struct store_postgres *db, size_t number)
{
	const struct spread *sp = ctx;
	size_t begin = sp->begin[number];
	return postgres_apply(db, &sp->v->rows[number], &sp->copies[begin], sp->begin[number + 1] - begin);
}

static void outcome_take(struct change *c, const struct store_write *copy, int r)
{
	int result = r ? r : copy->result;
	if (result == 0) {
		struct arena *arena = c->write.arena;
		c->write = *copy;
		c->write.arena = arena;
		if (link_own(arena, &c->write.link) != 0)
			result = ERR_UNCERTAIN; /* it happened, but cannot be told whole */
	}
	c->write.replayed = r == 0 && copy->replayed;
	change_end(c, result);
}

static int changes_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	CLEANUP(spread_release) struct spread sp = {0};
	struct changes *changes = ctx;
	int results[SHARD_KINDS];
	uint64_t asked = 0;
	int r = spread_init(&sp, v, changes, stale);
	if (r != 0)
		return r;
	for (size_t shard = 0; shard < SHARD_NOBODY; shard++) {
		if (sp.begin[shard] < sp.begin[shard + 1])
			asked |= (uint64_t)1 << shard;
	}
	shards_each(s, asked, apply_call, &sp, results);
	for (size_t shard = 0; shard < SHARD_NOBODY; shard++) {
		bool refused = shards_has(asked, shard) && results[shard] == ERR_CONFLICT;
		*stale |= (uint64_t)refused << shard;
		for (size_t i = sp.begin[shard]; i < sp.begin[shard + 1] && !refused; i++)
			outcome_take(sp.changes[i], &sp.copies[i], results[shard]);
	}
	return *stale ? ERR_CONFLICT : 0;
}

static void changes_close(struct changes *changes, int error)
{
	for (size_t i = 0; i < changes->count; i++) {
		if (changes->all[i].pending)
			change_end(&changes->all[i], error);
	}
}

static void change_give(const struct change *c)
{
	struct store_write *to = c->from;
	const struct store_write *w = &c->write;
	to->result = w->result;
	to->replayed = w->replayed;
	bool made = w->kind == STORE_LINK_CREATE && !w->replayed;
	if (made && (w->result == 0 || w->result == ERR_UNCERTAIN))
		to->ref = w->ref; /* as its route said */
	if (w->result == 0)
		to->link = w->link;
}

/* --- in one database --- */

struct whole {
	struct store_write *writes;
	size_t n;
	bool is_whole; /* out: it was done, or failed, there */
};

static int whole_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	struct whole *w = ctx;
	w->is_whole = v->is_whole;
	if (!v->is_whole)
		return 0;
	int r = postgres_apply(shards_registry(s), &v->rows[s->registry], w->writes, w->n);
	*stale |= r == ERR_CONFLICT ? (uint64_t)1 << s->registry : 0;
	return r;
}

int shards_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_shards *s = shards_of(base);
	struct whole whole = {.writes = writes, .n = n};
	int r = n > 0 ? shards_try(s, whole_once, &whole) : 0;
	if (n == 0 || whole.is_whole || s->is_single)
		return whole.is_whole || n == 0 ? r : ERR_UNAVAILABLE;
	struct changes changes = {.s = s, .all = calloc(n, sizeof(*changes.all)), .count = n};
	if (!changes.all)
		return ERR_NOMEM;
	calls_enter(&s->calls);
	for (size_t i = 0; i < n; i++) {
		changes.all[i] = (struct change){.from = &writes[i], .write = writes[i], .pending = true};
		changes.all[i].write.replayed = false;
	}
	bool again = true;
	for (int round = 0; again && round < ROUNDS_MAX; round++) {
		routes_ask(&changes);
		r = shards_try(s, changes_once, &changes);
		changes_close(&changes, r ? r : ERR_UNAVAILABLE);
		again = routes_settle(&changes);
	}
	changes_close(&changes, ERR_UNAVAILABLE);
	calls_leave(&s->calls);
	for (size_t i = 0; i < n; i++)
		change_give(&changes.all[i]);
	free(changes.all);
	return 0;
}
