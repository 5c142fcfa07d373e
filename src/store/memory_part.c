/* The store in memory as one of several parts: the ring's epoch, and keys that move to another part. */
#include "store/memory.h"
#include "store/part.h"
#include "store/rules.h"

#include <stdlib.h>

static struct store_memory *self(struct store *base)
{
	return container_of(base, struct store_memory, base);
}

/* --- keys that are on their way --- */

struct moved_link {
	struct link_record link;
	struct str name;
	uint64_t *users;
	size_t user_count;
};

/* A copy of all that lies under the keys. */
struct part_move {
	struct list list; /* in the moves of the store that they leave */
	struct arena arena;
	struct str *keys;
	size_t key_count;
	struct moved_link *links;
	size_t link_count;
	const struct rest_node **rests;
	size_t rest_count;
	struct replay_node *replays;
	size_t replay_count, replay_cap;
};

static bool moves_have(const struct part_move *move, struct str key)
{
	for (size_t i = 0; i < move->key_count; i++) {
		if (str_eq(move->keys[i], key))
			return true;
	}
	return false;
}

static bool is_moving(const struct store_memory *s, struct str key)
{
	for (const struct list *at = s->moves.next; at != &s->moves; at = at->next) {
		if (moves_have(container_of(at, struct part_move, list), key))
			return true;
	}
	return false;
}

static bool row_is_moving(const struct store_memory *s, uint64_t id)
{
	const struct link_node *node = memory_link_by_id(s, id);
	return node && is_moving(s, node->name);
}

static bool change_must_wait(const struct store_memory *s, const struct store_write *w)
{
	if (!store_write_is_link(w->kind))
		return false;
	return w->ref.key.ptr ? is_moving(s, w->ref.key) : row_is_moving(s, w->ref.id);
}

void memory_moves_wait(struct store_memory *s, const struct store_write *writes, size_t n)
{
	for (size_t i = 0; i < n && !list_empty(&s->moves);) {
		if (!change_must_wait(s, &writes[i])) {
			i++;
			continue;
		}
		pthread_cond_wait(&s->moved, &s->lock);
		i = 0; /* others may have begun */
	}
}

void memory_moves_wait_rows(struct store_memory *s, const struct store_count *rows, size_t n)
{
	for (size_t i = 0; i < n && !list_empty(&s->moves);) {
		if (!row_is_moving(s, rows[i].id)) {
			i++;
			continue;
		}
		pthread_cond_wait(&s->moved, &s->lock);
		i = 0;
	}
}

/* --- under an epoch --- */

static bool epoch_fits(const struct store_memory *s, uint64_t epoch)
{
	return epoch == 0 || epoch == s->epoch;
}

static int part_lookup(struct store *base, uint64_t epoch, struct store_lookup *reads, size_t n)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	int r = epoch_fits(s, epoch) ? 0 : ERR_CONFLICT;
	if (r == 0)
		memory_links_read(s, reads, n);
	memory_leave(s);
	return r;
}

static int part_apply(struct store *base, uint64_t epoch, struct store_write *writes, size_t n)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	memory_moves_wait(s, writes, n);
	int r = epoch_fits(s, epoch) ? 0 : ERR_CONFLICT;
	if (r == 0)
		memory_change(s, writes, n, true);
	memory_leave(s);
	return r;
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

static int part_ring_set(struct store *base, uint64_t epoch, struct str text)
{
	struct store_memory *s = self(base);
	char *copy = strndup(text.ptr, text.len);
	if (!copy)
		return ERR_NOMEM;
	memory_enter(s);
	while (!list_empty(&s->moves))
		pthread_cond_wait(&s->moved, &s->lock);
	int r = epoch > s->epoch ? 0 : ERR_CONFLICT;
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

static int part_counter(struct store *base, struct str counter, uint64_t *ret_next)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	*ret_next = memory_counter_next(s, counter);
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

/* --- moving --- */

static int link_take_copy(const struct store_memory *s, struct part_move *move, const struct link_node *node)
{
	struct moved_link *to = &move->links[move->link_count];
	*to = (struct moved_link){.name = arena_str(&move->arena, node->name)};
	struct permit_node first = {.link = node->link.id}, after = {.link = node->link.id + 1};
	size_t at = table_position(&s->permits, &first);
	to->user_count = table_position(&s->permits, &after) - at;
	to->users = arena_alloc(&move->arena, (to->user_count + 1) * sizeof(*to->users));
	if (!to->name.ptr || !to->users || memory_link_give(node, &move->arena, &to->link) != 0)
		return ERR_NOMEM;
	for (size_t i = 0; i < to->user_count; i++)
		to->users[i] = ((const struct permit_node *)s->permits.items[at + i])->user;
	move->link_count++;
	return 0;
}

static int rest_take_copy(struct part_move *move, const struct rest_node *node)
{
	struct rest_node *copy = arena_alloc(&move->arena, sizeof(*copy));
	if (!copy)
		return ERR_NOMEM;
	*copy = (struct rest_node){
	    .name = arena_str(&move->arena, node->name), .owner = node->owner, .until_ms = node->until_ms};
	move->rests[move->rest_count++] = copy;
	return copy->name.ptr ? 0 : ERR_NOMEM;
}

static int replay_take_copy(struct part_move *move, const struct replay_node *node)
{
	move->replays = array_room(&move->arena, move->replays, move->replay_count, &move->replay_cap,
	                           sizeof(*move->replays));
	if (!move->replays)
		return ERR_NOMEM;
	struct replay_node *to = &move->replays[move->replay_count++];
	*to = *node;
	to->key = arena_str(&move->arena, node->key);
	to->name = arena_str(&move->arena, node->name);
	return to->key.ptr && to->name.ptr ? 0 : ERR_NOMEM;
}

/* The replays of links of that name stand side by side. */
static struct replay_node *replay_at(const struct store_memory *s, struct str name, size_t number)
{
	struct replay_node like = {.name = name};
	size_t at = table_position(&s->replays_by_name, &like) + number;
	struct replay_node *node = at < s->replays_by_name.count ? s->replays_by_name.items[at] : NULL;
	return node && str_eq(node->name, name) ? node : NULL;
}

static int key_copy(const struct store_memory *s, struct part_move *move, struct str key)
{
	const struct link_node *link = table_find(&s->names, &(struct link_node){.name = key});
	const struct rest_node *rest = table_find(&s->rests, &(struct rest_node){.name = key});
	const struct replay_node *replay;
	int r = link ? link_take_copy(s, move, link) : 0;
	if (r == 0 && rest)
		r = rest_take_copy(move, rest);
	for (size_t i = 0; r == 0 && (replay = replay_at(s, key, i)) != NULL; i++)
		r = replay_take_copy(move, replay);
	return r;
}

static struct part_move *move_new(const struct str *keys, size_t n)
{
	struct part_move *move = calloc(1, sizeof(*move));
	if (!move)
		return NULL;
	list_init(&move->list);
	move->keys = arena_alloc(&move->arena, (n + 1) * sizeof(*move->keys));
	move->links = arena_alloc(&move->arena, (n + 1) * sizeof(*move->links));
	move->rests = arena_alloc(&move->arena, (n + 1) * sizeof(struct rest_node *));
	bool done = move->keys && move->links && move->rests;
	for (size_t i = 0; done && i < n; i++) {
		move->keys[i] = arena_str(&move->arena, keys[i]);
		done = move->keys[i].ptr;
	}
	move->key_count = n;
	if (done)
		return move;
	arena_release(&move->arena);
	free(move);
	return NULL;
}

static void move_free(struct part_move *move)
{
	arena_release(&move->arena);
	free(move);
}

static void other_moves_wait(struct store_memory *s, const struct part_move *move)
{
	for (size_t i = 0; i < move->key_count;) {
		if (!is_moving(s, move->keys[i])) {
			i++;
			continue;
		}
		pthread_cond_wait(&s->moved, &s->lock);
		i = 0;
	}
}

static int part_move_begin(struct store *base, uint64_t epoch, const struct str *keys, size_t n,
                           struct part_move **ret)
{
	struct store_memory *s = self(base);
	struct part_move *move = move_new(keys, n);
	if (!move)
		return ERR_NOMEM;
	memory_enter(s);
	other_moves_wait(s, move);
	int r = epoch_fits(s, epoch) ? 0 : ERR_CONFLICT;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = key_copy(s, move, move->keys[i]);
	if (r == 0)
		list_push(&s->moves, &move->list);
	memory_leave(s);
	if (r == 0)
		*ret = move;
	else
		move_free(move);
	return r;
}

/* Stopped in the middle it leaves what it has put: `from` has all of it still, and the next one goes on. */
static int part_move_put(struct store *base, struct part_move *move)
{
	struct store_memory *s = self(base);
	int r = 0;
	memory_enter(s);
	for (size_t i = 0; r == 0 && i < move->link_count; i++) {
		const struct moved_link *from = &move->links[i];
		r = memory_link_put(s, &from->link, from->name, from->users, from->user_count);
	}
	for (size_t i = 0; r == 0 && i < move->rest_count; i++)
		r = memory_rest_put(s, move->rests[i]);
	for (size_t i = 0; r == 0 && i < move->replay_count; i++)
		r = memory_replay_put(s, &move->replays[i]);
	memory_leave(s);
	return r;
}

static void key_remove(struct store_memory *s, struct str key)
{
	struct link_node *link = table_find(&s->names, &(struct link_node){.name = key});
	struct rest_node *rest = table_find(&s->rests, &(struct rest_node){.name = key});
	struct replay_node *replay;
	if (link)
		memory_link_remove(s, link);
	if (rest)
		memory_rest_remove(s, rest);
	while ((replay = replay_at(s, key, 0)) != NULL)
		memory_replay_remove(s, replay);
}

static int part_move_end(struct store *base, struct part_move *move, bool done)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	for (size_t i = 0; done && i < move->key_count; i++)
		key_remove(s, move->keys[i]);
	list_remove(&move->list);
	pthread_cond_broadcast(&s->moved);
	memory_leave(s);
	move_free(move);
	return 0;
}

const struct store_part_ops memory_part_ops = {
    .lookup = part_lookup,
    .apply = part_apply,
    .ring_get = part_ring_get,
    .ring_set = part_ring_set,
    .counter = part_counter,
    .route = part_route,
    .route_drop = part_route_drop,
    .cursor = part_cursor,
    .before = part_before,
    .keys_after = part_keys_after,
    .move_begin = part_move_begin,
    .move_put = part_move_put,
    .move_end = part_move_end,
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
