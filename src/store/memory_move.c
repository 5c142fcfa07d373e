/* Keys that move from the store in memory to another part. */
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

int memory_move_begin(struct store *base, uint64_t epoch, const struct str *keys, size_t n,
                      struct part_move **ret)
{
	struct store_memory *s = self(base);
	struct part_move *move = move_new(keys, n);
	if (!move)
		return ERR_NOMEM;
	memory_enter(s);
	other_moves_wait(s, move);
	int r = memory_epoch_fits(s, epoch) ? 0 : ERR_CONFLICT;
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

/* Another link here has the id of one that comes. */
static bool ids_collide(const struct store_memory *s, const struct part_move *move)
{
	for (size_t i = 0; i < move->link_count; i++) {
		const struct link_node *here = memory_link_by_id(s, move->links[i].link.id);
		if (here && !str_eq(here->name, move->links[i].name))
			return true;
	}
	return false;
}

/* What is here under keys that something comes for. */
static void keys_give_way(struct store_memory *s, const struct part_move *move)
{
	for (size_t i = 0; i < move->link_count; i++)
		key_remove(s, move->links[i].name);
	for (size_t i = 0; i < move->rest_count; i++)
		key_remove(s, move->rests[i]->name);
	for (size_t i = 0; i < move->replay_count; i++)
		key_remove(s, move->replays[i].name);
}

/* Stopped in the middle it leaves what it has put: `from` has all of it still, and the next one goes on. */
int memory_move_put(struct store *base, struct part_move *move)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	int r = ids_collide(s, move) ? ERR_CORRUPT : 0;
	if (r == 0)
		keys_give_way(s, move);
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

int memory_move_end(struct store *base, struct part_move *move, bool done)
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
