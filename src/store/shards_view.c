/* What a server knows about slots, and how it learns more: from the row of each database, which is the
 * authority, and from the map for databases that do not answer. Any server that finds an unfinished move
 * completes it here, so it does not matter where `curt reshard` died. */
#include "store/shards.h"

#include <stdlib.h>

enum { MAP_TRIES_MAX = 10 };

/* --- views --- */

struct shards_view *shards_view_get(struct store_shards *s)
{
	pthread_mutex_lock(&s->view_lock);
	struct shards_view *v = s->view;
	atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
	pthread_mutex_unlock(&s->view_lock);
	return v;
}

void shards_view_unref(struct shards_view *v)
{
	if (v && atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) == 1)
		free(v);
}

static void view_put(struct store_shards *s, struct shards_view *v)
{
	pthread_mutex_lock(&s->view_lock);
	struct shards_view *old = s->view;
	s->view = v;
	pthread_mutex_unlock(&s->view_lock);
	shards_view_unref(old);
}

/* A copy that may be changed until view_put. */
static struct shards_view *view_copy(const struct shards_view *from)
{
	struct shards_view *v = calloc(1, sizeof(*v));
	if (v && from) /* all but the reference count, which others change */
		memcpy(&v->map, &from->map, sizeof(*v) - offsetof(struct shards_view, map));
	if (v)
		atomic_init(&v->refs, 1);
	return v;
}

size_t view_shard_find(const struct store_shards *s, const struct shards_view *v, const uint8_t *name)
{
	for (size_t i = 0; i < s->count; i++) {
		if (v->is_known[i] && memcmp(v->rows[i].name, name, SHARD_NAME_BYTES) == 0)
			return i;
	}
	size_t at = slot_map_find(&v->map, name);
	for (size_t i = 0; i < s->count && at < v->map.count; i++) {
		if (!v->is_known[i] && str_eq(s->shards[i].address, str_of(v->map.shards[at].address)))
			return i;
	}
	return SHARD_UNREACHABLE;
}

/* A database that was never enrolled still claims all slots. */
static bool row_is_authoritative(const struct store_shards *s, const struct shards_view *v, size_t number)
{
	const struct slot_row *row = &v->rows[number];
	if (s->is_single)
		return slot_row_owns_all(row);
	return view_is_member(v, number) && (row->registry[0] || v->map.count == 1);
}

/* The owner by the authoritative rows. If two claim a slot, the map decides: the other was restored, or its
 * row is outdated. If none does, the owner may be a database that does not answer. */
static size_t owner_of(const struct store_shards *s, const struct shards_view *v, uint64_t counting,
                       size_t mapped, unsigned slot)
{
	size_t owner = SHARD_NONE;
	for (size_t i = 0; i < s->count; i++) {
		if (shards_has(counting, i) && slots_have(&v->rows[i].owned, slot) &&
		    (owner == SHARD_NONE || i == mapped))
			owner = i;
	}
	if (owner != SHARD_NONE)
		return owner;
	if (s->is_single)
		return SHARD_UNREACHABLE;
	return mapped < SHARDS_MAX && v->is_known[mapped] ? SHARD_NONE : mapped;
}

static void owners_build(const struct store_shards *s, struct shards_view *v)
{
	size_t numbers[SHARDS_MAX] = {0};
	uint64_t counting = 0;
	for (size_t i = 0; i < v->map.count; i++)
		numbers[i] = view_shard_find(s, v, v->map.shards[i].name);
	for (size_t i = 0; i < s->count; i++)
		counting |= (uint64_t)(v->is_known[i] && row_is_authoritative(s, v, i)) << i;
	v->owners = 0;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		size_t mapped = v->map.version > 0 ? numbers[v->map.owner[slot]] : SHARD_UNREACHABLE;
		v->owner[slot] = (uint8_t)owner_of(s, v, counting, mapped, slot);
		v->owners |= (uint64_t)1 << v->owner[slot];
	}
	v->is_unsharded = v->is_known[s->registry] && slot_row_owns_all(&v->rows[s->registry]) &&
	                  v->owners == (uint64_t)1 << s->registry;
}

/* --- refreshing; with the lock `refreshing` held, on a private copy of the view --- */

static int row_load(void *ctx, struct store_postgres *db, const struct slot_row *row, size_t number)
{
	struct shards_view *v = ctx;
	(void)row;
	return postgres_slots_get(db, &v->rows[number]);
}

/* Returns the set that answered. */
static uint64_t rows_load(struct store_shards *s, struct shards_view *v, uint64_t set)
{
	int results[SHARD_OWNERS];
	uint64_t answered = 0;
	shards_each(s, v, set, row_load, v, results);
	for (size_t i = 0; i < s->count; i++) {
		if (!shards_has(set, i) || results[i] != 0)
			continue;
		v->is_known[i] = true;
		answered |= (uint64_t)1 << i;
	}
	return answered;
}

static uint64_t reachable(struct store_shards *s)
{
	uint64_t set = 0;
	for (size_t i = 0; i < s->count; i++) {
		struct store_postgres *db = shard_db(s, i);
		if (db && !pg_is_failing(db->readers))
			set |= (uint64_t)1 << i;
	}
	return set;
}

static int row_change(struct store_shards *s, struct shards_view *v, size_t number, slot_rule_fn *rule,
                      const struct slot_attempt *a)
{
	struct store_postgres *db = shard_db(s, number);
	int r = db ? postgres_slots_change(db, rule, a, &v->rows[number]) : ERR_UNAVAILABLE;
	if (r == ERR_CONFLICT) /* another process was faster */
		rows_load(s, v, (uint64_t)1 << number);
	owners_build(s, v);
	return r;
}

/* Updates owners and addresses in the map. */
static void map_follow(const struct store_shards *s, const struct shards_view *v, struct slot_map *map)
{
	for (size_t i = 0; i < s->count; i++) {
		size_t at = v->is_known[i] ? slot_map_find(map, v->rows[i].name) : map->count;
		struct str address = s->shards[i].address;
		if (at == map->count)
			continue;
		for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
			if (v->owner[slot] == i)
				map->owner[slot] = (uint8_t)at;
		}
		if (address.len >= SHARD_ADDRESS_MAX)
			continue;
		memset(map->shards[at].address, 0, SHARD_ADDRESS_MAX);
		memcpy(map->shards[at].address, address.ptr, address.len);
	}
}

/* 0 also if nothing changed. ERR_CONFLICT: another process changed the map. */
static int map_write(struct store_shards *s, struct shards_view *v, struct slot_map *map)
{
	struct store_postgres *registry = shards_registry(s);
	if (str_eq(slot_map_text(map), slot_map_text(&v->map)))
		return 0;
	int r = registry ? postgres_map_set(registry, map) : ERR_UNAVAILABLE;
	if (r == 0) {
		map->version++;
		v->map = *map;
	}
	return r;
}

static int complete(struct store_shards *s, struct shards_view *v, size_t source)
{
	const struct slot_row *row = &v->rows[source];
	const struct slot_attempt a = {.token = row->out_token};
	size_t target = view_shard_find(s, v, row->out_to);
	if (target == SHARD_UNREACHABLE)
		return ERR_UNAVAILABLE;
	int r = row_change(s, v, target, slot_row_take, &a);
	if (r == ERR_CONFLICT && v->is_known[target] && slots_include(&v->rows[target].owned, &row->out))
		r = 0;
	if (r != 0)
		return r == ERR_CONFLICT ? 0 : r;
	struct slot_map map = v->map;
	map_follow(s, v, &map);
	(void)map_write(s, v, &map); /* a failure is repaired by the next refresh */
	r = row_change(s, v, source, slot_row_finish, &a);
	return r == ERR_CONFLICT ? 0 : r;
}

/* Thaws expired freezes, and completes moves that were given. */
static void moves_finish(struct store_shards *s, struct shards_view *v, uint64_t fresh)
{
	for (size_t i = 0; i < s->count; i++) {
		const struct slot_row *row = &v->rows[i];
		if (shards_has(fresh, i) && row->move == MOVE_FREEZE && row->now_ms >= row->until_ms)
			(void)row_change(s, v, i, slot_row_thaw, &(struct slot_attempt){0});
		if (v->is_known[i] && row->move == MOVE_GIVEN)
			(void)complete(s, v, i);
	}
}

static uint64_t refresh(struct store_shards *s, struct shards_view *v, uint64_t stale)
{
	uint64_t answered = 0;
	for (;;) {
		bool is_all = stale & STALE_ALL;
		struct store_postgres *registry = is_all ? shards_registry(s) : NULL;
		struct slot_map map;
		if (registry && postgres_map_get(registry, &map) == 0 && map.version > 0)
			v->map = map;
		answered |= rows_load(s, v, is_all ? reachable(s) : stale);
		moves_finish(s, v, answered);
		owners_build(s, v);
		if (is_all || !(v->owners & STALE_ALL))
			break;
		stale = STALE_ALL;
	}
	unsigned tries = v->owners & STALE_ALL ? atomic_load(&s->orphan_tries) + 1 : 0;
	atomic_store(&s->orphan_tries, tries);
	if (tries > ORPHAN_TRIES_MAX)
		task_wake(&s->reconnector);
	return answered;
}

/* --- changing the view --- */

/* A copy that may be changed until edit_end; NULL: out of memory. */
static struct shards_view *edit_begin(struct store_shards *s)
{
	pthread_mutex_lock(&s->refreshing);
	return view_copy(s->view);
}

static void edit_end(struct store_shards *s, struct shards_view *v)
{
	if (v)
		view_put(s, v);
	pthread_mutex_unlock(&s->refreshing);
}

void shards_refresh(struct store_shards *s, const struct shards_view *seen, uint64_t stale)
{
	pthread_mutex_lock(&s->refreshing);
	struct shards_view *v = s->view == seen ? view_copy(seen) : NULL;
	if (v)
		refresh(s, v, stale);
	edit_end(s, v);
}

uint64_t shards_refresh_all(struct store_shards *s)
{
	struct shards_view *v = edit_begin(s);
	uint64_t answered = v ? refresh(s, v, STALE_ALL) : 0;
	edit_end(s, v);
	return answered;
}

int shards_change(struct store_shards *s, size_t number, slot_rule_fn *rule, const struct slot_attempt *a,
                  struct slot_row *ret)
{
	struct shards_view *v = edit_begin(s);
	int r = v ? row_change(s, v, number, rule, a) : ERR_NOMEM;
	if (r == 0 && ret)
		*ret = v->rows[number];
	edit_end(s, v);
	return r;
}

int shards_complete(struct store_shards *s, size_t source)
{
	struct shards_view *v = edit_begin(s);
	int r = v ? 0 : ERR_NOMEM;
	if (v && v->rows[source].move == MOVE_GIVEN)
		r = complete(s, v, source);
	edit_end(s, v);
	return r;
}

int shards_map_change(struct store_shards *s, map_change_fn *change, void *ctx, struct err *e)
{
	int r = ERR_CONFLICT;
	for (int i = 0; r == ERR_CONFLICT && i < MAP_TRIES_MAX; i++) {
		struct shards_view *v = edit_begin(s);
		if (v) {
			refresh(s, v, STALE_ALL);
			struct slot_map map = v->map;
			map_follow(s, v, &map);
			change(&map, v, ctx);
			r = map_write(s, v, &map);
			owners_build(s, v);
		} else {
			r = ERR_NOMEM;
		}
		edit_end(s, v);
	}
	return r ? shard_fail(s, s->registry, r, "cannot store the new map", e) : 0;
}

/* --- what is wrong --- */

int shard_fail(const struct store_shards *s, size_t number, int r, const char *what, struct err *e)
{
	return err_set(e, r, "%.*s %s (%s)", STR_ARG(s->shards[number].address), what, err_name(r));
}

static bool is_listed(const struct store_shards *s, const char *address)
{
	for (size_t i = 0; i < s->count; i++) {
		if (str_eq(s->shards[i].address, str_of(address)))
			return true;
	}
	return false;
}

static int single_check(const struct store_shards *s, const struct shards_view *v, struct err *e)
{
	if (v->is_unsharded)
		return 0;
	const char *with = v->rows[0].registry;
	for (size_t i = 0; i < v->map.count; i++) {
		if (!str_eq(str_of(v->map.shards[i].address), s->shards[0].address))
			with = v->map.shards[i].address;
	}
	return err_set(e, ERR_INVALID,
	               "%.*s is one shard of a store, with %s; store.url must "
	               "list all of them, separated by commas",
	               STR_ARG(s->shards[0].address), with);
}

int shards_check(struct store_shards *s, const struct shards_view *v, struct err *e)
{
	if (s->is_single)
		return single_check(s, v, e);
	for (size_t i = 0; i < v->map.count; i++) {
		const char *address = v->map.shards[i].address;
		if (view_shard_find(s, v, v->map.shards[i].name) != SHARD_UNREACHABLE)
			continue;
		if (is_listed(s, address))
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "the database at %s is not the one that the slot map names; restore that "
			    "one, or give it up: 'curt reshard --forget %s'",
			    address, address);
		return err_set(
		    e, ERR_INVALID,
		    "store.url does not list the database at %s, which holds some of the links; add "
		    "its URL",
		    address);
	}
	size_t orphans = 0;
	const char *address = "";
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (v->owner[slot] != SHARD_NONE)
			continue;
		address = v->map.shards[v->map.owner[slot]].address;
		orphans++;
	}
	if (orphans > 0)
		return err_set(e, ERR_UNAVAILABLE,
		               "%zu slots have no owner; if %s was restored from a backup older than their "
		               "move, 'curt reshard --forget %s' returns them, empty",
		               orphans, address, address);
	return 0;
}
