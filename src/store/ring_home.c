/*
 * What the home knows for all parts: users, the counter of ids, and where creates with an idempotency key
 * went.
 *
 * Routes. A create with an idempotency key writes down at the home which key it will have, before it goes to
 * that key's part, where the link and the memory of the idempotency key are made in one transaction. A retry
 * has chosen another key, but finds the first one's route and goes to the same part: there it is repeated, or
 * made now under the first one's key if the first never arrived. They lie at the home, and not spread over
 * the parts, since the home stays the same when the ring changes.
 *
 * A route may lead to a create that was not like this one (an alias of another name): then that part is asked
 * only whether it happened. If not, the route is forgotten and this one takes its place.
 */
#include "store/ring_change.h"
#include "store/rules_memory.h"

#include <stdlib.h>

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
static void permits_ask(struct store_ring *s, struct changes *changes)
{
	uint64_t asked = 0;
	int r = 0;
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		struct user_record user;
		if (c->write.kind != STORE_PERMIT)
			continue;
		if (asked == 0 || asked != c->write.user.id)
			r = store_user(ring_home(s), c->write.user.id, STR_NULL, c->write.arena, &user);
		asked = c->write.user.id;
		permit_take(c, r);
	}
}

/* --- keys that were given out --- */

static int counter_ask(struct store_ring *s)
{
	struct store *home = ring_home(s);
	uint64_t next;
	int r = home->ops->part->counter(home, STORE_LINK_COUNTER, &next);
	if (r == 0)
		atomic_store(&s->counter_seen, next); /* it only grows; an older answer is asked again */
	return r;
}

static bool is_asked(const struct change *c)
{
	return c->write.kind == STORE_LINK_CREATE && alias_decodes(&c->write) && !c->write.reuse;
}

/* Has the counter passed an id of theirs that it had not when it was last asked? */
static int aliases_counter(struct store_ring *s, const struct changes *changes)
{
	uint64_t highest = 0;
	for (size_t i = 0; i < changes->count; i++) {
		if (is_asked(&changes->all[i]))
			highest = MAX(highest, changes->all[i].write.ref.id);
	}
	return highest > 0 && highest >= atomic_load(&s->counter_seen) ? counter_ask(s) : 0;
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

static bool is_passed(const struct change *c, uint64_t counter)
{
	return c->pending && is_asked(c) && c->write.ref.id < counter;
}

static void aliases_look(struct store_ring *s, struct changes *changes)
{
	uint64_t counter = atomic_load(&s->counter_seen);
	struct store_lookup *reads = calloc(changes->count + 1, sizeof(*reads));
	size_t count = 0, at = 0;
	for (size_t i = 0; reads && i < changes->count; i++) {
		const struct store_write *w = &changes->all[i].write;
		if (is_passed(&changes->all[i], counter))
			reads[count++] = (struct store_lookup){.ref = {.id = w->ref.id}, .arena = w->arena};
	}
	int r = reads ? ring_lookup(&s->base, reads, count) : ERR_NOMEM;
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		if (!is_passed(c, counter))
			continue;
		if (reads)
			given_take(c, &reads[at++], r);
		else
			change_end(c, r);
	}
	free(reads);
}

static void aliases_ask(struct store_ring *s, struct changes *changes)
{
	bool any = false;
	for (size_t i = 0; i < changes->count; i++)
		any |= is_asked(&changes->all[i]);
	if (!any)
		return;
	int r = aliases_counter(s, changes);
	if (r == 0) {
		aliases_look(s, changes);
		return;
	}
	for (size_t i = 0; i < changes->count; i++) {
		if (is_asked(&changes->all[i]))
			change_end(&changes->all[i], r);
	}
}

void ring_home_ask(struct store_ring *s, struct changes *changes)
{
	permits_ask(s, changes);
	aliases_ask(s, changes);
}

/* --- routes --- */

static bool wants_route(const struct change *c)
{
	return c->pending && c->write.kind == STORE_LINK_CREATE && c->write.idempotency_key.ptr;
}

/* Follows the route. A generated key is as good as any other; a name that somebody chose is not. */
static void route_follow(struct change *c, const struct part_route *route)
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

static struct part_route route_of(const struct change *c)
{
	const struct store_write *w = c->from;
	return (struct part_route){.owner = w->idempotency_owner,
	                           .idempotency_key = w->idempotency_key,
	                           .now_ms = w->now_ms,
	                           .arena = w->arena,
	                           .ref = w->ref,
	                           .link_id = w->link.id,
	                           .is_alias = w->link.is_alias};
}

void ring_home_route(struct store_ring *s, struct changes *changes)
{
	struct store *home = ring_home(s);
	struct part_route *routes = calloc(changes->count + 1, sizeof(*routes));
	size_t count = 0, at = 0;
	for (size_t i = 0; routes && i < changes->count; i++) {
		if (wants_route(&changes->all[i]))
			routes[count++] = route_of(&changes->all[i]);
	}
	int r = routes ? 0 : ERR_NOMEM;
	if (r == 0 && count > 0)
		r = home->ops->part->route(home, routes, count);
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

static void route_drop(struct store_ring *s, const struct change *c)
{
	struct store *home = ring_home(s);
	(void)home->ops->part->route_drop(home, &c->route); /* left behind, it is asked again */
}

/* What the answer means for a create that was only to be repeated if it happened before. */
static bool nothing_to_repeat(const struct change *c)
{
	return c->write.replay_only && c->write.result == ERR_LIMIT && !c->from->replay_only;
}

static void create_restart(struct change *c)
{
	c->write = *c->from;
	c->routed = c->foreign = false;
	c->pending = true;
}

bool ring_home_settle(struct store_ring *s, struct changes *changes)
{
	bool again = false;
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		if (!c->routed)
			continue;
		bool nothing = nothing_to_repeat(c);
		if (nothing && !c->foreign)
			c->write.result = ERR_CONFLICT; /* somebody's key reads so */
		if (nothing || c->write.result == ERR_CONFLICT)
			route_drop(s, c);
		if (nothing && c->foreign) {
			create_restart(c);
			again = true;
		}
	}
	return again;
}
