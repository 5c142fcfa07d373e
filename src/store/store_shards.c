/*
 * The store over PostgreSQL databases (slots.h). What belongs to no link (the registry, the slot map,
 * routes of idempotency keys) is in one of them, the registry: the first URL of the list when the databases
 * became one store.
 *
 * A database that is down fails only operations on its own slots. Each call runs on the caller's thread,
 * and on others only if it needs several databases (fanout.h).
 */
#include "obs/log.h"
#include "store/postgres_feed.h"
#include "store/shards.h"

#include <stdlib.h>

enum { THREADS_PER_SHARD = 4, THREADS_MAX = 32, OPEN_PAUSE_MS = 1000 };

/* --- feeds --- */

static int shards_feed(struct store *base, struct feed_page *page)
{
	struct store_postgres *db = shard_db(shards_of(base), page->shard);
	return db ? POSTGRES_READ(db, postgres_feed_read(c, db->kind.has_advisory_locks, false, page))
	          : ERR_UNAVAILABLE;
}

static int shards_feed_prune(struct store *base, int64_t until_ms, size_t *ret)
{
	struct store_shards *s = shards_of(base);
	int r = 0;
	*ret = 0;
	for (size_t i = 0; i < s->count; i++) {
		struct store_postgres *db = shard_db(s, i);
		size_t count = 0;
		int failed = db ? POSTGRES_WRITE_ON(db, postgres_feed_prune(c, false, until_ms, &count))
		                : ERR_UNAVAILABLE;
		r = failed ? failed : r;
		*ret += count;
	}
	return r;
}

/* --- health --- */

static int ping_call(void *ctx, struct store_postgres *db, const struct slot_row *row, size_t number)
{
	struct err *sentences = ctx;
	int r = postgres_ping(db, &sentences[number]);
	return r == 0 && !row ? err_set(&sentences[number], ERR_UNAVAILABLE,
	                                "its slots are not known yet; wait a second")
	                      : r;
}

static int ping_all(struct store_shards *s, const struct shards_view *v, struct err *e)
{
	struct err sentences[SHARDS_MAX] = {0};
	int results[SHARD_OWNERS];
	uint64_t asked = v->owners | (uint64_t)1 << s->registry;
	shards_each(s, v, asked & SHARDS_ALL, ping_call, sentences, results);
	for (size_t i = 0; i < s->count; i++) {
		const char *why = sentences[i].text;
		if (results[i] != 0)
			return err_set(e, results[i], "%.*s: %s", STR_ARG(s->shards[i].address),
			               why[0] ? why : err_name(results[i]));
	}
	return 0;
}

static int shards_ping(struct store *base, struct err *e)
{
	struct store_shards *s = shards_of(base);
	calls_enter(&s->calls);
	struct shards_view *v = shards_view_get(s);
	int r = ping_all(s, v, e) ?: shards_check(s, v, e);
	if (r != 0)
		task_wake(&s->reconnector);
	shards_view_unref(v);
	calls_leave(&s->calls);
	return r == 0 ? 0 : ERR_UNAVAILABLE;
}

/* --- shards --- */

static size_t shard_count(struct store *base)
{
	return shards_of(base)->count;
}

static size_t shard_of(struct store *base, struct str name)
{
	struct store_shards *s = shards_of(base);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	size_t owner = v->owner[slot_of(name)];
	return owner < s->count ? owner : s->registry;
}

/* --- opening --- */

static int shard_open(struct store_shards *s, size_t number, struct err *e)
{
	struct shard *shard = &s->shards[number];
	int r = postgres_connect(shard->db, e);
	if (r == 0 && !postgres_can_be_shard(shard->db) && (s->count > 1 || s->is_admin))
		r = err_set(e, ERR_INVALID, "%.*s cannot be a shard; use PostgreSQL without Citus",
		            STR_ARG(shard->address));
	if (r == 0)
		atomic_store_explicit(&shard->is_open, true, memory_order_release); /* pairs with shard_db */
	return r;
}

/* Runs once a second while something is missing. */
static int64_t reconnect_run(struct task *t)
{
	struct store_shards *s = container_of(t, struct store_shards, reconnector);
	for (size_t i = 0; i < s->count && !task_is_stopping(t); i++) {
		struct err e = {""};
		if (!atomic_load(&s->shards[i].is_open) && shard_open(s, i, &e) == ERR_INVALID)
			log_error("store", "%s", e.text);
	}
	if (!task_is_stopping(t))
		shards_refresh_all(s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	bool is_complete = shards_check(s, v, NULL) == 0;
	for (size_t i = 0; i < s->count; i++)
		is_complete &= v->is_known[i];
	return is_complete ? TASK_ON_WAKE : OPEN_PAUSE_MS;
}

/* --- how databases become one store --- */

static int has_map(struct store_postgres *db, bool *ret)
{
	struct slot_map map;
	int r = postgres_map_get(db, &map);
	*ret = r == 0 && map.version > 0;
	return r;
}

/* Finds the single database for which `ask` says yes; s->count: none. With two it fails, and `two` says
 * why. */
static int find_one(struct store_shards *s, int (*ask)(struct store_postgres *db, bool *ret), const char *two,
                    size_t *ret, struct err *e)
{
	*ret = s->count;
	for (size_t i = 0; i < s->count; i++) {
		struct store_postgres *db = shard_db(s, i);
		bool is_one = false;
		int r = db ? ask(db, &is_one) : 0;
		if (r != 0)
			return shard_fail(s, i, r, "does not answer", e);
		if (is_one && *ret < s->count)
			return err_set(e, ERR_INVALID, "%.*s and %.*s %s", STR_ARG(s->shards[*ret].address),
			               STR_ARG(s->shards[i].address), two);
		*ret = is_one ? i : *ret;
	}
	return 0;
}

/* Servers that start at the same time, with lists in different orders, must choose the same registry. The
 * database with the smallest name stores the first choice. */
static int registry_choose(struct store_shards *s, struct err *e)
{
	struct store_postgres *judge = s->shards[0].db;
	uint8_t name[SHARD_NAME_BYTES];
	memcpy(name, judge->name, sizeof(name));
	for (size_t i = 1; i < s->count; i++) {
		if (memcmp(s->shards[i].db->name, judge->name, SHARD_NAME_BYTES) < 0)
			judge = s->shards[i].db;
	}
	int r = registry_constant(&judge->registry, STR("registry"), name, sizeof(name));
	if (r != 0)
		return err_set(e, r, "a database does not answer (%s)", err_name(r));
	for (s->registry = 0; s->registry < s->count; s->registry++) {
		if (memcmp(s->shards[s->registry].db->name, name, SHARD_NAME_BYTES) == 0)
			return 0;
	}
	return err_set(e, ERR_INVALID,
	               "another server uses these databases together with some that store.url does not "
	               "list; use the same list on all servers");
}

/* If all databases are empty, slots are spread over all. If one has been in use, it owns all slots, and the
 * others wait for `curt reshard`. */
static int map_make(struct store_shards *s, struct err *e)
{
	const uint8_t *names[SHARDS_MAX] = {NULL};
	struct slot_map map = {.version = 0};
	bool done = true;
	int r = find_one(s, postgres_is_used,
	                 "both have links or accounts, but are not one store; list only one of them, or "
	                 "empty the other",
	                 &s->registry, e);
	bool is_used = s->registry < s->count;
	if (r == 0 && !is_used)
		r = registry_choose(s, e);
	if (r != 0)
		return r;
	for (size_t i = 0; done && i < s->count; i++) {
		if (!is_used || i == s->registry)
			done = slot_map_add(&map, s->shards[i].db->name, s->shards[i].address);
	}
	for (size_t i = 0; i < map.count; i++)
		names[i] = map.shards[i].name;
	if (!done || !slots_place(names, map.owner))
		return err_set(e, ERR_NOMEM, "out of memory");
	r = postgres_map_set(s->shards[s->registry].db, &map);
	return r == 0 || r == ERR_CONFLICT /* another process made it at the same time */
	           ? 0
	           : shard_fail(s, s->registry, r, "cannot store the slot map", e);
}

/* Enrolls the databases of the map that still claim all slots. */
static int members_enroll(struct store_shards *s, struct err *e)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	for (size_t i = 0; i < s->count; i++) {
		size_t at = slot_map_find(&v->map, v->rows[i].name);
		if (!v->is_known[i] || at == v->map.count || v->rows[i].registry[0])
			continue;
		struct slot_set share = slots_none;
		for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
			if (v->map.owner[slot] == at)
				slots_add(&share, slot);
		}
		const struct slot_attempt a = {.slots = &share,
		                               .registry = s->shards[s->registry].address,
		                               .if_empty = !slots_include(&share, &slots_all)};
		int r = shards_change(s, i, slot_row_enroll, &a, NULL);
		if (r != 0 && r != ERR_CONFLICT)
			return shard_fail(s, i, r, "cannot take its slots", e);
	}
	return 0;
}

static int last_id_call(void *ctx, struct store_postgres *db, const struct slot_row *row, size_t number)
{
	uint64_t *last = ctx;
	(void)row;
	return postgres_link_id_last(db, &last[number]);
}

/* A registry restored from a backup would issue ids again. */
static int counter_raise(struct store_shards *s, struct err *e)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	uint64_t last[SHARDS_MAX] = {0}, highest = 0, next, first;
	int results[SHARD_OWNERS];
	shards_each(s, v, v->owners & SHARDS_ALL, last_id_call, last, results);
	for (size_t i = 0; i < s->count; i++)
		highest = MAX(highest, last[i]);
	struct registry *registry = &shards_registry(s)->registry;
	int r = registry_counter(registry, STORE_LINK_COUNTER, &next);
	if (r == 0 && next <= highest)
		r = registry_lease(registry, STORE_LINK_COUNTER, highest - next + 1, &first);
	return r ? shard_fail(s, s->registry, r, "does not answer", e) : 0;
}

static int map_find_or_make(struct store_shards *s, struct err *e)
{
	int r = find_one(s, has_map, "belong to different stores; list the databases of one store",
	                 &s->registry, e);
	if (r != 0 || s->registry < s->count)
		return r;
	s->registry = 0;
	for (size_t i = 0; i < s->count; i++) {
		if (!shard_db(s, i))
			return err_set(e, ERR_UNAVAILABLE,
			               "%.*s does not answer; start it: until the slot map exists, all "
			               "databases must answer",
			               STR_ARG(s->shards[i].address));
	}
	if (s->is_admin)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the databases are not one store yet, and a server that uses only one of them "
		    "would lose links that move; restart all servers with the whole list in store.url "
		    "first");
	return map_make(s, e);
}

static int names_check(struct store_shards *s, struct err *e)
{
	for (size_t i = 0; i < s->count; i++) {
		for (size_t k = 0; k < i; k++) {
			struct store_postgres *a = shard_db(s, i), *b = shard_db(s, k);
			if (a && b && memcmp(a->name, b->name, SHARD_NAME_BYTES) == 0)
				return err_set(e, ERR_INVALID,
				               "store.url names one database twice: %.*s and %.*s",
				               STR_ARG(s->shards[k].address), STR_ARG(s->shards[i].address));
		}
	}
	return 0;
}

static int join(struct store_shards *s, struct err *e)
{
	int r = names_check(s, e);
	if (r == 0 && !s->is_single)
		r = map_find_or_make(s, e);
	if (r != 0)
		return r;
	if (!shards_has(shards_refresh_all(s), s->registry))
		return err_set(e, ERR_UNAVAILABLE, "%.*s does not answer",
		               STR_ARG(s->shards[s->registry].address));
	if (s->is_admin)
		return 0;
	r = s->is_single ? 0 : members_enroll(s, e);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	if (r == 0 && shards_check(s, v, e) == ERR_INVALID)
		r = ERR_INVALID;
	return r ? r : counter_raise(s, e);
}

static int open_all(struct store_shards *s, const struct store_shards_config *config, struct err *e)
{
	struct postgres_config of = {.replicas = config->replicas,
	                             .replica_count = config->replica_count,
	                             .readers = config->readers,
	                             .writers = config->writers};
	const struct task_config reconnector = {
	    .name = "shard-conn", .run = reconnect_run, .first_ms = OPEN_PAUSE_MS};
	int r = 0;
	for (; r == 0 && s->count < config->count; s->count += r == 0) {
		struct shard *shard = &s->shards[s->count];
		of.url = config->urls[s->count];
		r = postgres_new(&of, &shard->db, e);
		if (r == 0)
			shard->address = pg_pool_address(shard->db->writers);
	}
	for (size_t i = 0; r == 0 && i < s->count; i++) {
		r = shard_open(s, i, e);
		if (r == ERR_UNAVAILABLE && s->count > 1)
			r = 0;
	}
	if (r == 0)
		r = fanout_new(s->count > 1 ? (unsigned)MIN(s->count * THREADS_PER_SHARD, THREADS_MAX) : 0,
		               &s->fanout, e);
	if (r == 0)
		r = join(s, e);
	return r ? r : task_start(&s->reconnector, &reconnector, e);
}

static void shards_free(struct store *base)
{
	struct store_shards *s = shards_of(base);
	task_stop(&s->reconnector);
	calls_wait(&s->calls);
	for (size_t i = 0; i < s->count; i++)
		postgres_close(s->shards[i].db);
	fanout_free(s->fanout);
	shards_view_unref(s->view);
	pthread_mutex_destroy(&s->refreshing);
	pthread_mutex_destroy(&s->view_lock);
	free(s);
}

static const struct store_ops shards_ops = {
    .free = shards_free,
    .lookup = shards_lookup,
    .apply = shards_apply,
    .list = shards_list,
    .tagged = shards_tagged,
    .set_clicks = shards_set_clicks,
    .permitted = shards_permitted,
    .expired = shards_expired,
    .feed = shards_feed,
    .feed_prune = shards_feed_prune,
    .ping = shards_ping,
    .claim = shards_claim,
    .shard_count = shard_count,
    .shard_of = shard_of,
};

int store_shards_open(const struct store_shards_config *config, struct store **ret, struct err *e)
{
	if (config->count == 0 || config->count > SHARDS_MAX)
		return err_set(e, ERR_INVALID, "store.url lists %zu databases; 1 to %d are supported",
		               config->count, SHARDS_MAX);
	struct store_shards *s = calloc(1, sizeof(*s));
	struct shards_view *v = calloc(1, sizeof(*v));
	if (!s || !v) {
		free(s);
		free(v);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	atomic_init(&v->refs, 1);
	s->view = v;
	s->base.ops = &shards_ops;
	s->base.is_shared = true;
	s->is_admin = config->is_admin;
	s->is_single = config->count == 1 && !config->is_admin;
	pthread_mutex_init(&s->refreshing, NULL);
	pthread_mutex_init(&s->view_lock, NULL);
	int r = open_all(s, config, e);
	if (r != 0) {
		shards_free(&s->base);
		return r;
	}
	s->base.registry = &shards_registry(s)->registry;
	*ret = &s->base;
	return 0;
}
