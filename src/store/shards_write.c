/*
 * Changes, in one transaction of each database that they are about. What the registry alone knows is asked
 * there before: users, the counter of ids, and where creates with an idempotency key went.
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
	bool stranger;            /* a PERMIT of a user who is not there */
	bool taken;               /* a key that reads so was given out: it may be repeated, not made */
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

/* --- users --- */

/* There is no such user; still the link may not be there, which would have to be told first. To take the user
 * off its list finds that out in its turn, and changes nothing. */
static void permit_take(struct change *c, int r)
{
	c->stranger = r == ERR_NOT_FOUND;
	if (c->stranger)
		c->write.kind = STORE_FORBID;
	else if (r != 0)
		change_end(c, r);
}

/* A batch of permits is often about one user: he is asked for once. */
static void permits_ask(struct changes *changes)
{
	uint64_t asked = 0;
	int r = 0;
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		struct user_record user;
		if (c->write.kind != STORE_PERMIT)
			continue;
		if (asked == 0 || asked != c->write.user.id)
			r = store_user(&shards_registry(changes->s)->base, c->write.user.id, STR_NULL,
			               c->write.arena, &user);
		asked = c->write.user.id;
		permit_take(c, r);
	}
}

/* --- keys that were given out --- */

/* Might the name that the CREATE wants be a key that was generated? */
static bool is_asked(const struct change *c)
{
	const struct store_write *w = &c->write;
	return c->pending && w->kind == STORE_LINK_CREATE && w->link.is_alias && id_is_valid(w->ref.id) &&
	       !w->reuse;
}

/* Has the counter passed an id of theirs that it had not when it was last asked? */
static int counter_ask(struct changes *changes)
{
	struct store_shards *s = changes->s;
	uint64_t highest = 0, next;
	for (size_t i = 0; i < changes->count; i++) {
		if (is_asked(&changes->all[i]))
			highest = MAX(highest, changes->all[i].write.ref.id);
	}
	if (highest == 0 || highest < atomic_load(&s->counter_seen))
		return 0;
	int r = postgres_counter_next(shards_registry(s), STORE_LINK_COUNTER, &next);
	if (r == 0)
		atomic_store(&s->counter_seen, next); /* it only grows; an older answer is asked again */
	return r;
}

/* The counter has passed the id: unless an alias took it as its row, the key was given out. */
static void given_take(struct change *c, const struct store_lookup *read, int r)
{
	if (r == 0 && read->result != ERR_NOT_FOUND)
		r = read->result;
	c->taken = read->result != 0 || !read->link.is_alias;
	if (r != 0)
		change_end(c, r);
	else if (c->taken && !c->write.idempotency_key.ptr)
		change_end(c, ERR_CONFLICT);
}

static void aliases_ask(struct changes *changes)
{
	struct store_lookup *reads = calloc(changes->count + 1, sizeof(*reads));
	size_t count = 0, at = 0;
	int r = reads ? counter_ask(changes) : ERR_NOMEM;
	uint64_t counter = atomic_load(&changes->s->counter_seen);
	for (size_t i = 0; r == 0 && i < changes->count; i++) {
		const struct store_write *w = &changes->all[i].write;
		if (is_asked(&changes->all[i]) && w->ref.id < counter)
			reads[count++] = (struct store_lookup){.ref = {.id = w->ref.id}, .arena = w->arena};
	}
	int looked = count > 0 ? shards_lookup(&changes->s->base, reads, count) : 0;
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		if (r != 0 && is_asked(c))
			change_end(c, r);
		else if (is_asked(c) && c->write.ref.id < counter)
			given_take(c, &reads[at++], looked);
	}
	free(reads);
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
	w->replay_only = c->from->replay_only || c->taken || c->foreign;
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
		if (nothing && !c->foreign)
			c->write.result = ERR_CONFLICT;         /* somebody's key reads so */
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
static size_t change_shard(const struct changes *changes, const struct shards_view *v, const struct change *c,
                           uint64_t *stale)
{
	if (!store_write_is_link(c->write.kind))
		return changes->s->registry;
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
		shards[i] = (uint8_t)(c->pending ? change_shard(changes, v, c, stale) : SHARD_NOBODY);
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
	return postgres_apply_at(db, &sp->v->rows[number], true, &sp->copies[begin],
	                         sp->begin[number + 1] - begin);
}

/* Strings of what comes back go from the database's arena to the caller's. */
static int write_own(struct store_write *w)
{
	if (store_write_is_link(w->kind))
		return link_own(w->arena, &w->link);
	int r = user_own(w->arena, &w->user);
	return r == 0 && !str_own(w->arena, &w->key.name) ? ERR_NOMEM : r;
}

static void outcome_take(struct change *c, const struct store_write *copy, int r)
{
	int result = r ? r : copy->result;
	if (result == 0) {
		struct arena *arena = c->write.arena;
		c->write = *copy;
		c->write.arena = arena;
		if (write_own(&c->write) != 0)
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
	to->result = w->result == 0 && c->stranger ? ERR_INVALID : w->result;
	to->replayed = w->replayed;
	bool made = w->kind == STORE_LINK_CREATE && !w->replayed;
	if (made && (w->result == 0 || w->result == ERR_UNCERTAIN))
		to->ref = w->ref; /* as its route said */
	if (to->result != 0)
		return;
	to->link = w->link;
	to->user = w->user;
	to->key = w->key;
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
	int r = postgres_apply_at(shards_registry(s), &v->rows[s->registry], false, w->writes, w->n);
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
	permits_ask(&changes);
	aliases_ask(&changes);
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
