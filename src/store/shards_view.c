/*
 * What a server knows of the databases' slots, and how it learns more: from the row of each database, which
 * is the truth, and from the map for those that cannot be asked. Whoever meets a move that was not finished
 * finishes it here, so it does not matter where `curt reshard` died.
 */
#include "os/clock.h"
#include "store/shards.h"

#include <stdlib.h>

enum { TRY_MS = 5000, PAUSE_MAX_MS = 10, ORPHAN_TRIES_MAX = 5, MAP_TRIES_MAX = 10 };

/* --- several databases at a time --- */

struct shard_task {
	struct fan_task task;
	shards_call_fn *call;
	void *ctx;
	struct store_postgres *db;
	size_t number;
	int *result;
};

static void shard_task_run(struct fan_task *task)
{
	const struct shard_task *t = container_of(task, struct shard_task, task);
	*t->result = t->call(t->ctx, t->db, t->number);
}

void shards_each(struct store_shards *s, uint64_t set, shards_call_fn *call, void *ctx,
                 int results[SHARD_KINDS])
{
	struct shard_task tasks[SHARDS_MAX];
	struct fan_task *list[SHARDS_MAX];
	size_t count = 0;
	for (size_t i = 0; i < SHARD_KINDS; i++) {
		struct store_postgres *db = shards_has(set, i) ? shard_db(s, i) : NULL;
		results[i] = shards_has(set, i) && !db ? ERR_UNAVAILABLE : 0;
		if (!db)
			continue;
		tasks[count] = (struct shard_task){{.run = shard_task_run}, call, ctx, db, i, &results[i]};
		list[count] = &tasks[count].task;
		count++;
	}
	fan_run(s->fan, list, count);
}

int shards_result(uint64_t set, const int results[SHARD_KINDS], uint64_t *stale)
{
	int worst = 0;
	for (size_t i = 0; i < SHARD_KINDS; i++) {
		if (!shards_has(set, i) || results[i] == 0)
			continue;
		if (results[i] == ERR_CONFLICT)
			*stale |= (uint64_t)1 << i;
		else
			worst = results[i];
	}
	return worst ? worst : *stale ? ERR_CONFLICT : 0;
}

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

/* One that can be changed until it is put. */
static struct shards_view *view_copy(const struct shards_view *from)
{
	struct shards_view *v = calloc(1, sizeof(*v));
	if (v && from) /* all but the references, which others change */
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
	size_t at = map_shards_find(&v->map.shards, name);
	for (size_t i = 0; i < s->count && at < v->map.shards.count; i++) {
		if (!v->is_known[i] && str_eq(s->shards[i].address, str_of(v->map.shards.at[at].address)))
			return i;
	}
	return SHARD_AWAY;
}

/* Of two that say so, the map knows which: the other was restored from a backup, or its row is an old one. */
static void owner_claim(struct shards_view *v, const size_t *numbers, unsigned slot, size_t i)
{
	bool is_first = v->owner[slot] == SHARD_NOBODY;
	if (is_first || (v->map.version > 0 && numbers[v->map.owner[slot]] == i))
		v->owner[slot] = (uint8_t)i;
}

/* Nobody says that the slot is his: who does not answer may. */
static size_t owner_guess(const struct store_shards *s, const struct shards_view *v, const size_t *numbers,
                          unsigned slot)
{
	if (s->is_single || v->map.version == 0)
		return SHARD_AWAY;
	size_t number = numbers[v->map.owner[slot]];
	return number < SHARDS_MAX && v->is_known[number] ? SHARD_NOBODY : number;
}

/* One that was never enrolled still takes itself for the whole. */
static bool row_counts(const struct store_shards *s, const struct shards_view *v, size_t number)
{
	const struct slot_row *row = &v->rows[number];
	if (s->is_single)
		return slot_row_is_whole(row);
	return map_shards_find(&v->map.shards, row->name) < v->map.shards.count &&
	       (row->registry[0] || v->map.shards.count == 1);
}

static void owners_build(const struct store_shards *s, struct shards_view *v)
{
	size_t numbers[SHARDS_MAX];
	const struct slot_row *first = &v->rows[s->registry];
	for (size_t i = 0; i < v->map.shards.count; i++)
		numbers[i] = view_shard_find(s, v, v->map.shards.at[i].name);
	memset(v->owner, SHARD_NOBODY, sizeof(v->owner));
	for (size_t i = 0; i < s->count; i++) {
		bool is_member = row_counts(s, v, i);
		for (unsigned slot = 0; v->is_known[i] && is_member && slot < SLOT_COUNT; slot++) {
			if (slots_have(&v->rows[i].owned, slot))
				owner_claim(v, numbers, slot, i);
		}
	}
	v->owners = 0;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (v->owner[slot] == SHARD_NOBODY)
			v->owner[slot] = (uint8_t)owner_guess(s, v, numbers, slot);
		v->owners |= (uint64_t)1 << v->owner[slot];
	}
	v->is_whole = v->is_known[s->registry] && slot_row_is_whole(first) &&
	              v->owners == (uint64_t)1 << s->registry;
}

/* --- learning --- */

struct rows_load {
	struct slot_row rows[SHARDS_MAX];
};

static int row_load(void *ctx, struct store_postgres *db, size_t number)
{
	struct rows_load *load = ctx;
	return postgres_slots_get(db, &load->rows[number]);
}

/* Bits: who answered. */
static uint64_t rows_load(struct store_shards *s, struct shards_view *v, uint64_t set)
{
	struct rows_load *load = calloc(1, sizeof(*load));
	int results[SHARD_KINDS];
	uint64_t answered = 0;
	if (!load)
		return 0;
	shards_each(s, set, row_load, load, results);
	for (size_t i = 0; i < s->count; i++) {
		if (!shards_has(set, i) || results[i] != 0)
			continue;
		v->rows[i] = load->rows[i];
		v->is_known[i] = true;
		answered |= (uint64_t)1 << i;
	}
	free(load);
	return answered;
}

static void map_load(struct store_shards *s, struct shards_view *v)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct slot_map *map = calloc(1, sizeof(*map));
	struct store_postgres *registry = shards_registry(s);
	uint64_t version = 0;
	struct str text = STR_NULL;
	if (map && registry && postgres_map_get(registry, &arena, &version, &text) == 0 && version > 0 &&
	    slot_map_read(text, version, map) == 0)
		v->map = *map;
	free(map);
}

static uint64_t reachable(struct store_shards *s)
{
	uint64_t set = 0;
	for (size_t i = 0; i < s->count; i++) {
		struct store_postgres *db = shard_db(s, i);
		if (db && !pg_is_sick(db->readers))
			set |= (uint64_t)1 << i;
	}
	return set;
}

static int change_locked(struct store_shards *s, struct shards_view *v, size_t number,
                         const struct slot_change *change)
{
	struct store_postgres *db = shard_db(s, number);
	struct slot_row row;
	int r = db ? postgres_slots_change(db, change, &row) : ERR_UNAVAILABLE;
	if (r == 0)
		v->rows[number] = row;
	if (r == ERR_CONFLICT) /* somebody was faster */
		rows_load(s, v, (uint64_t)1 << number);
	return r;
}

/* Slots go to who has them now, and databases by the addresses that they have now. */
static void map_follow(const struct store_shards *s, const struct shards_view *v, struct slot_map *map)
{
	for (size_t i = 0; i < s->count; i++) {
		size_t at = v->is_known[i] ? map_shards_find(&map->shards, v->rows[i].name)
		                           : map->shards.count;
		struct str address = s->shards[i].address;
		if (at == map->shards.count || address.len >= SHARD_ADDRESS_MAX)
			continue;
		memset(map->shards.at[at].address, 0, SHARD_ADDRESS_MAX);
		memcpy(map->shards.at[at].address, address.ptr, address.len);
	}
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		size_t owner = v->owner[slot];
		if (owner >= SHARDS_MAX || !v->is_known[owner])
			continue;
		size_t at = map_shards_find(&map->shards, v->rows[owner].name);
		if (at < map->shards.count)
			map->owner[slot] = (uint8_t)at;
	}
}

/* 0 also when nothing is to be changed; ERR_CONFLICT: somebody else has changed it. */
static int map_write(struct store_shards *s, struct shards_view *v, struct slot_map *map)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct store_postgres *registry = shards_registry(s);
	if (memcmp(map, &v->map, sizeof(*map)) == 0)
		return 0;
	struct str text = slot_map_write(map, &arena);
	if (!text.ptr)
		return ERR_NOMEM;
	int r = registry ? postgres_map_set(registry, map->version, text) : ERR_UNAVAILABLE;
	if (r == 0) {
		map->version++;
		v->map = *map;
	}
	return r;
}

static int complete_locked(struct store_shards *s, struct shards_view *v, size_t source)
{
	const struct slot_row *row = &v->rows[source];
	struct slot_attempt attempt = {.token = row->out_token};
	size_t target = view_shard_find(s, v, row->out_to);
	if (target == SHARD_AWAY)
		return ERR_UNAVAILABLE;
	int r = change_locked(s, v, target, &(struct slot_change){slot_row_take, attempt});
	if (r == ERR_CONFLICT && v->is_known[target] && slots_include(&v->rows[target].owned, &row->out))
		r = 0;
	struct slot_map *map = calloc(1, sizeof(*map));
	if (r == 0 && map) { /* if it does not follow now, it will when it is next looked at */
		owners_build(s, v);
		*map = v->map;
		map_follow(s, v, map);
		(void)map_write(s, v, map);
	}
	free(map);
	if (r == 0)
		r = change_locked(s, v, source, &(struct slot_change){slot_row_finish, attempt});
	return r == ERR_CONFLICT ? 0 : r;
}

/* What others have left behind. */
static void rows_settle(struct store_shards *s, struct shards_view *v, uint64_t fresh)
{
	for (size_t i = 0; i < s->count; i++) {
		const struct slot_row *row = &v->rows[i];
		if (shards_has(fresh, i) && row->move == MOVE_FREEZE && row->now_ms >= row->until_ms)
			(void)change_locked(s, v, i, &(struct slot_change){.rule = slot_row_thaw});
		if (v->is_known[i] && row->move == MOVE_GIVEN)
			(void)complete_locked(s, v, i);
	}
}

static uint64_t refresh_locked(struct store_shards *s, uint64_t stale)
{
	struct shards_view *v = view_copy(s->view);
	uint64_t answered = 0;
	if (!v)
		return 0;
	for (;;) {
		bool is_all = stale & STALE_ALL;
		if (is_all)
			map_load(s, v);
		answered |= rows_load(s, v, is_all ? reachable(s) : stale);
		rows_settle(s, v, answered);
		owners_build(s, v);
		if (is_all || !(v->owners & STALE_ALL))
			break;
		stale = STALE_ALL;
	}
	unsigned tries = v->owners & STALE_ALL ? atomic_load(&s->orphan_tries) + 1 : 0;
	atomic_store(&s->orphan_tries, tries);
	if (tries > ORPHAN_TRIES_MAX)
		task_wake(&s->opener);
	view_put(s, v);
	return answered;
}

void shards_refresh(struct store_shards *s, const struct shards_view *v, uint64_t stale)
{
	pthread_mutex_lock(&s->refreshing);
	if (s->view == v)
		refresh_locked(s, stale);
	pthread_mutex_unlock(&s->refreshing);
}

uint64_t shards_refresh_all(struct store_shards *s)
{
	pthread_mutex_lock(&s->refreshing);
	uint64_t answered = refresh_locked(s, STALE_ALL);
	pthread_mutex_unlock(&s->refreshing);
	return answered;
}

int shards_change(struct store_shards *s, size_t number, const struct slot_change *change,
                  struct slot_row *ret)
{
	pthread_mutex_lock(&s->refreshing);
	struct shards_view *v = view_copy(s->view);
	int r = v ? change_locked(s, v, number, change) : ERR_NOMEM;
	if (v) {
		owners_build(s, v);
		if (r == 0 && ret)
			*ret = v->rows[number];
		view_put(s, v);
	}
	pthread_mutex_unlock(&s->refreshing);
	return r;
}

int shards_complete(struct store_shards *s, size_t source)
{
	pthread_mutex_lock(&s->refreshing);
	struct shards_view *v = view_copy(s->view);
	int r = v ? 0 : ERR_NOMEM;
	if (v && v->rows[source].move == MOVE_GIVEN)
		r = complete_locked(s, v, source);
	if (v) {
		owners_build(s, v);
		view_put(s, v);
	}
	pthread_mutex_unlock(&s->refreshing);
	return r;
}

int shards_map_change(struct store_shards *s, bool (*change)(struct slot_map *map, void *ctx), void *ctx,
                      struct err *e)
{
	struct slot_map *map = calloc(1, sizeof(*map));
	int r = map ? ERR_CONFLICT : ERR_NOMEM;
	pthread_mutex_lock(&s->refreshing);
	for (int i = 0; r == ERR_CONFLICT && i < MAP_TRIES_MAX; i++) {
		refresh_locked(s, STALE_ALL);
		struct shards_view *v = view_copy(s->view);
		if (!v) {
			r = ERR_NOMEM;
			break;
		}
		*map = v->map;
		map_follow(s, v, map);
		r = !change || change(map, ctx) ? map_write(s, v, map) : 0;
		owners_build(s, v);
		view_put(s, v);
	}
	pthread_mutex_unlock(&s->refreshing);
	free(map);
	return r ? err_set(e, r, "%.*s does not take the new map (%s)",
	                   STR_ARG(s->shards[s->registry].address), err_name(r))
	         : 0;
}

/* --- trying again --- */

int shards_try(struct store_shards *s, shards_once_fn *once, void *ctx)
{
	int64_t end_ms = 0;
	bool again;
	int r;
	unsigned tries = 0;
	calls_enter(&s->calls);
	do {
		struct shards_view *v = shards_view_get(s);
		uint64_t stale = 0;
		r = once(s, v, &stale, ctx);
		if (r == ERR_CONFLICT && stale == STALE_ALL &&
		    atomic_load(&s->orphan_tries) > ORPHAN_TRIES_MAX)
			r = ERR_UNAVAILABLE; /* the opener looks for owners now and then */
		if (r == ERR_CONFLICT && end_ms == 0)
			end_ms = clock_mono_ms() + TRY_MS;
		again = r == ERR_CONFLICT && clock_mono_ms() < end_ms;
		if (again)
			shards_refresh(s, v, stale);
		shards_view_unref(v);
		if (again && ++tries > 1) {
			long pause_ms = MIN(tries, PAUSE_MAX_MS);
			nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
		}
	} while (again);
	calls_leave(&s->calls);
	return r == ERR_CONFLICT ? ERR_UNAVAILABLE : r;
}

/* --- what is wrong --- */

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
	const struct map_shards *shards = &v->map.shards;
	if (v->is_whole)
		return 0;
	const char *with = v->rows[0].registry;
	for (size_t i = 0; i < shards->count; i++) {
		if (!str_eq(str_of(shards->at[i].address), s->shards[0].address))
			with = shards->at[i].address;
	}
	return err_set(e, ERR_INVALID,
	               "%.*s is one of several databases that links are spread over, with %s: store.url must "
	               "list all of them, separated by commas",
	               STR_ARG(s->shards[0].address), with);
}

int shards_check(struct store_shards *s, const struct shards_view *v, struct err *e)
{
	if (s->is_single)
		return single_check(s, v, e);
	for (size_t i = 0; i < v->map.shards.count; i++) {
		const char *address = v->map.shards.at[i].address;
		if (view_shard_find(s, v, v->map.shards.at[i].name) != SHARD_AWAY)
			continue;
		if (is_listed(s, address))
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "the database at %s is not the one that links were spread over; put that "
			    "one back, from a backup if need be, or give it up: 'curt reshard --forget %s'",
			    address, address);
		return err_set(
		    e, ERR_INVALID,
		    "links are spread over a database at %s, too, which store.url does not list; add "
		    "its URL",
		    address);
	}
	size_t orphans = 0;
	const char *address = "";
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (v->owner[slot] != SHARD_NOBODY)
			continue;
		address = v->map.shards.at[v->map.owner[slot]].address;
		orphans++;
	}
	if (orphans > 0)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%zu slots have no owner; was %s restored from a backup that is older than they "
		    "came there? 'curt reshard --forget %s' gives them back, empty",
		    orphans, address, address);
	return 0;
}
