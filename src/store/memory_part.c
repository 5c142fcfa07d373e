/* The store in memory as one of several parts: the ring's epoch, where creates went, and pages. */
#include "store/memory.h"
#include "store/part.h"
#include "store/rules_memory.h"

#include <stdlib.h>

static struct store_memory *self(struct store *base)
{
	return container_of(base, struct store_memory, base);
}

/* --- under an epoch --- */

bool memory_epoch_fits(const struct store_memory *s, uint64_t epoch)
{
	return epoch == 0 || part_epoch_number(epoch) == s->epoch;
}

static int part_lookup(struct store *base, uint64_t epoch, struct store_lookup *reads, size_t n)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	int r = memory_epoch_fits(s, epoch) ? 0 : ERR_CONFLICT;
	if (r == 0)
		memory_links_read(s, reads, n);
	memory_leave(s);
	return r;
}

static int apply(struct store *base, uint64_t epoch, bool in_ring, struct store_write *writes, size_t n)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	memory_moves_wait(s, writes, n);
	int r = memory_epoch_fits(s, epoch) ? 0 : ERR_CONFLICT;
	if (r == 0)
		memory_change(s, writes, n, in_ring);
	memory_leave(s);
	return r;
}

static int part_apply(struct store *base, uint64_t epoch, struct store_write *writes, size_t n)
{
	return apply(base, epoch, true, writes, n);
}

static int part_apply_whole(struct store *base, uint64_t epoch, struct store_write *writes, size_t n)
{
	return apply(base, epoch, false, writes, n);
}

static int part_ring_get(struct store *base, struct arena *arena, uint64_t *ret_epoch, struct str *ret_text)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	struct str text = arena_str(arena, str_of(s->ring));
	int r = text.ptr || !s->ring ? 0 : ERR_NOMEM;
	if (r == 0) {
		*ret_epoch = s->epoch;
		*ret_text = text;
	}
	memory_leave(s);
	return r;
}

static int routes_fill(struct store_memory *s);

static int ring_set(struct store_memory *s, uint64_t epoch, struct str text, bool was_whole)
{
	char *copy = strndup(text.ptr, text.len);
	if (!copy)
		return ERR_NOMEM;
	memory_enter(s);
	while (!list_empty(&s->moves))
		pthread_cond_wait(&s->moved, &s->lock);
	int r = epoch > s->epoch ? 0 : ERR_CONFLICT;
	if (r == 0 && was_whole)
		r = routes_fill(s);
	if (r == 0) {
		s->epoch = epoch;
		char *old = s->ring;
		s->ring = copy;
		copy = old;
	}
	memory_leave(s);
	free(copy);
	return r;
}

static int part_ring_set(struct store *base, uint64_t epoch, struct str text)
{
	return ring_set(self(base), epoch, text, false);
}

static int part_ring_set_whole(struct store *base, uint64_t epoch, struct str text)
{
	return ring_set(self(base), epoch, text, true);
}

static int part_counter(struct store *base, struct str counter, uint64_t *ret_next)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	*ret_next = memory_counter_next(s, counter);
	memory_leave(s);
	return 0;
}

static int part_link_id_last(struct store *base, uint64_t *ret)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	const struct table *t = &s->links; /* by id */
	*ret = t->count > 0 ? ((const struct link_node *)t->items[t->count - 1])->link.id : 0;
	memory_leave(s);
	return 0;
}

/* --- routes of creates with an idempotency key --- */

static int order_route(const void *a, const void *b)
{
	const struct route_node *x = a, *y = b;
	int order = order_u64(x->owner, y->owner);
	return order ? order : str_order(x->key, y->key);
}

static int order_route_age(const void *a, const void *b)
{
	int order = order_i64(((const struct route_node *)a)->created_ms,
	                      ((const struct route_node *)b)->created_ms);
	return order ? order : order_route(a, b);
}

static struct route_node *route_find(const struct store_memory *s, const struct part_route *route)
{
	struct route_node like = {.owner = route->owner, .key = route->idempotency_key};
	return table_find(&s->routes, &like);
}

static void route_remove(struct store_memory *s, struct route_node *node)
{
	table_remove(&s->routes, node);
	table_remove(&s->routes_by_age, node);
	free(node);
}

static int route_add(struct store_memory *s, const struct part_route *route)
{
	struct route_node *node = malloc(sizeof(*node) + route->idempotency_key.len + route->ref.key.len);
	if (!node || !table_reserve(&s->routes) || !table_reserve(&s->routes_by_age)) {
		free(node);
		return ERR_NOMEM;
	}
	*node = (struct route_node){.owner = route->owner,
	                            .key = route->idempotency_key,
	                            .ref = route->ref,
	                            .link = route->link_id,
	                            .is_alias = route->is_alias,
	                            .created_ms = route->now_ms};
	char *at = node->text;
	str_place(&node->key, &at);
	str_place(&node->ref.key, &at);
	table_add(&s->routes, node);
	table_add(&s->routes_by_age, node);
	return 0;
}

static void routes_purge(struct store_memory *s, int64_t now_ms)
{
	for (int i = 0; i < REPLAY_PURGE_PER_CREATE && s->routes_by_age.count > 0; i++) {
		struct route_node *oldest = s->routes_by_age.items[0];
		if (!replay_is_dead(oldest->created_ms, now_ms))
			return;
		route_remove(s, oldest);
	}
}

static int route(struct store_memory *s, struct part_route *route)
{
	routes_purge(s, route->now_ms);
	struct route_node *node = route_find(s, route);
	if (node && replay_is_dead(node->created_ms, route->now_ms)) {
		route_remove(s, node);
		node = NULL;
	}
	if (!node)
		return route_add(s, route);
	struct str key = arena_str(route->arena, node->ref.key);
	if (!key.ptr)
		return ERR_NOMEM;
	route->ref = (struct link_ref){.id = node->ref.id, .key = key};
	route->link_id = node->link;
	route->is_alias = node->is_alias;
	return 0;
}

/* What is remembered of creates, as routes to where they went. */
static int routes_fill(struct store_memory *s)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < s->replays.count; i++) {
		const struct replay_node *replay = s->replays.items[i];
		const struct link_node *link = table_find(&s->names,
		                                          &(struct link_node){.name = replay->name});
		bool is_alias = !link || link->link.is_alias;
		struct part_route route = {.owner = replay->owner,
		                           .idempotency_key = replay->key,
		                           .now_ms = replay->created_ms,
		                           .ref = {.id = is_alias ? 0 : replay->link, .key = replay->name},
		                           .link_id = replay->link,
		                           .is_alias = is_alias};
		struct route_node *older = route_find(s, &route);
		if (older && older->created_ms >= replay->created_ms)
			continue;
		if (older)
			route_remove(s, older);
		r = route_add(s, &route);
	}
	return r;
}

static int part_route(struct store *base, struct part_route *routes, size_t n)
{
	struct store_memory *s = self(base);
	int r = 0;
	memory_enter(s);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = route(s, &routes[i]);
	memory_leave(s);
	return r;
}

static int part_route_drop(struct store *base, const struct part_route *route)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	struct route_node *node = route_find(s, route);
	if (node && node->link == route->link_id && str_eq(node->ref.key, route->ref.key))
		route_remove(s, node);
	memory_leave(s);
	return 0;
}

/* --- pages --- */

static struct str part_cursor(struct arena *arena, const struct link_record *last)
{
	return cursor_format(arena, last->id);
}

static bool part_before(const struct link_record *a, const struct link_record *b)
{
	return a->id > b->id;
}

static struct str link_name(const void *node)
{
	return ((const struct link_node *)node)->name;
}

static struct str rest_name(const void *node)
{
	return ((const struct rest_node *)node)->name;
}

static struct str replay_name(const void *node)
{
	return ((const struct replay_node *)node)->name;
}

/* The first name above `after` in a table whose order begins with the name, or STR_NULL. */
static struct str name_after(const struct table *t, const void *like, struct str after,
                             struct str (*name_of)(const void *node))
{
	for (size_t at = table_position(t, like); at < t->count; at++) {
		struct str name = name_of(t->items[at]);
		if (str_order(name, after) > 0)
			return name;
	}
	return STR_NULL;
}

static struct str first_of(struct str a, struct str b)
{
	if (!a.ptr || !b.ptr)
		return a.ptr ? a : b;
	return str_order(a, b) <= 0 ? a : b;
}

static int part_keys_after(struct store *base, struct str after, size_t max, struct arena *arena,
                           struct str *ret, size_t *ret_count)
{
	struct store_memory *s = self(base);
	size_t count = 0;
	int r = 0;
	memory_enter(s);
	while (r == 0 && count < max) {
		const struct link_node link = {.name = after};
		const struct rest_node rest = {.name = after};
		const struct replay_node replay = {.name = after};
		struct str name = first_of(name_after(&s->names, &link, after, link_name),
		                           name_after(&s->rests, &rest, after, rest_name));
		name = first_of(name, name_after(&s->replays_by_name, &replay, after, replay_name));
		if (!name.ptr)
			break;
		ret[count] = after = arena_str(arena, name);
		r = ret[count++].ptr ? 0 : ERR_NOMEM;
	}
	memory_leave(s);
	if (r == 0)
		*ret_count = count;
	return r;
}

const struct store_part_ops memory_part_ops = {
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
    .cursor = part_cursor,
    .before = part_before,
    .keys_after = part_keys_after,
    .move_begin = memory_move_begin,
    .move_put = memory_move_put,
    .move_end = memory_move_end,
};

void memory_part_init(struct store_memory *s)
{
	list_init(&s->moves);
	pthread_cond_init(&s->moved, NULL);
	s->routes.order = order_route;
	s->routes_by_age.order = order_route_age;
}

void memory_part_release(struct store_memory *s)
{
	ASSERT(list_empty(&s->moves));
	pthread_cond_destroy(&s->moved);
	table_free(&s->routes, true);
	table_free(&s->routes_by_age, false);
	free(s->ring);
}
