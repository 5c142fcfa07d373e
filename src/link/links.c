#include "link/links_private.h"

#include "link/key_format.h"
#include "os/clock.h"

#include <sodium.h>
#include <stdlib.h>

/* A generated key rarely equals an alias. So many collisions in a row mean that something else is wrong. */
enum { KEY_TRIES = 32 };

/* With a shard down: so many keys in a row are hardly ever all of that shard. */
enum { OUTAGE_TRIES = 16 };

/* For entries without a due time. */
enum { GRACE_MS = 10000 };

static const char *const source_names[] = {"cipher", "pool", "claim", NULL};

#define SETTING(...) CONF_ROW(struct links_settings, __VA_ARGS__)

const struct conf_row links_rows[] = {
    SETTING("keys", "alphabet", CONF_ENUM, alphabet, "base62",
            "The characters of generated keys; base36 ignores case. Fixed when the data folder is created.",
            .choices = key_format_alphabets),
    SETTING("keys", "length", CONF_UINT, key_length, "0",
            "The length of generated keys, 4 to 10. 0: 7 for base62, 8 for the others. Fixed when the data "
            "folder is created.",
            .max = KEY_LENGTH_MAX),
    SETTING("keys", "quarantine", CONF_DURATION, quarantine_ms, "90d",
            "How long the alias of an expired link is reserved before it may be used again. With keys.source "
            "= claim it also applies to generated keys, which are otherwise never used again.",
            .max = 100ULL * 365 * 24 * 3600 * 1000),
    SETTING("keys", "source", CONF_ENUM, source, "cipher",
            "Where the keys of new links come from. cipher: from the store's counter, encrypted. pool: from "
            "Redis (keys.url), which curt keygen and curt keysync fill. claim: from expired links whose "
            "quarantine has ended, and from the counter when there are none; needs PostgreSQL.",
            .choices = source_names),
    SETTING("cache", "memory", CONF_BYTES, cache_bytes, "256m",
            "The most memory for cached links, allocated only as links are used.", .min = 1 << 20,
            .max = 1ULL << 40),
    SETTING("cache", "negative_time", CONF_DURATION, negative_ms, "10s",
            "How long the cache remembers that a key has no link.", .max = 3600000),
    SETTING("cache", "life", CONF_DURATION, life_ms, "10s",
            "How long a cached link is served from a shared store before it is read again in the background, "
            "in case a change was missed. 0ms: never read again. While the store does not answer, cached "
            "links are still served.",
            .max = 24ULL * 3600 * 1000),
    SETTING("cache", "shared_life", CONF_DURATION, shared_life_ms, "10m",
            "How long links stay in the shared cache (cache.url).", .min = 1000,
            .max = 7ULL * 24 * 3600 * 1000),
};
const size_t links_row_count = ARRAY_LEN(links_rows);

int links_new(const struct links_config *config, struct links **ret, struct err *e)
{
	struct links *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory");
	l->store = config->store;
	l->budgets = config->budgets;
	l->render = config->render;
	l->negative_ms = config->settings.negative_ms;
	l->quarantine_ms = config->settings.quarantine_ms;
	l->is_shared = config->store->is_shared;
	l->life_ms = l->is_shared ? config->settings.life_ms : 0;
	l->source = config->source;
	l->tier2 = (struct tier2){
	    .rcache = config->rcache,
	    .life_ms = config->settings.shared_life_ms,
	    .absent_ms = config->settings.negative_ms,
	};
	int r = key_format_fix(l->store, (enum key_alphabet)config->settings.alphabet,
	                       config->settings.key_length, &l->cipher, e);
	if (r == 0 && config->render)
		r = cache_new(config->settings.cache_bytes, config->cache_seed, &l->cache, e);
	if (r == 0 && config->render && !(l->click_limits = click_limits_new()))
		r = err_set(e, ERR_NOMEM, "out of memory");
	if (r < 0) {
		cache_free(l->cache);
		free(l);
		return r;
	}
	pthread_mutex_init(&l->sweep_lock, NULL);
	pthread_mutex_init(&l->source_lock, NULL);
	ids_init(&l->ids, l->store->registry, config->id_block, l->cipher.count);
	pthread_mutex_init(&l->spare_lock, NULL);
	*ret = l;
	return 0;
}

void links_free(struct links *l)
{
	if (!l)
		return;
	cache_free(l->cache);
	click_limits_free(l->click_limits); /* after the cache, whose entries point to them */
	ids_release(&l->ids);
	pthread_mutex_destroy(&l->spare_lock);
	pthread_mutex_destroy(&l->sweep_lock);
	pthread_mutex_destroy(&l->source_lock);
	sodium_memzero(&l->cipher, sizeof(l->cipher));
	free(l);
}

const struct key_cipher *links_cipher(const struct links *l)
{
	return &l->cipher;
}

struct cache *links_cache(struct links *l)
{
	return l->cache;
}

uint64_t links_grace_ms(const struct links *l)
{
	return l->life_ms ? l->life_ms : GRACE_MS;
}

struct link_ref links_ref(const struct links *l, struct str key)
{
	return (struct link_ref){.id = key_decode(&l->cipher, key), .key = key};
}

/* Stores keep a generated key only as its id. */
int links_key_fill(const struct links *l, struct link_record *link, struct arena *arena)
{
	if (link->is_alias)
		return 0;
	if (link->id == 0 || link->id >= l->cipher.count)
		return ERR_CORRUPT;
	char *text = arena_alloc(arena, l->cipher.length);
	if (!text)
		return ERR_NOMEM;
	key_encode(&l->cipher, link->id, text);
	link->key = str_n(text, l->cipher.length);
	return 0;
}

/* Reading */

int links_list(struct links *l, struct store_list *page)
{
	int r = store_list(l->store, page);
	for (size_t i = 0; r == 0 && i < page->count; i++)
		r = links_key_fill(l, &page->links[i], page->arena);
	return r;
}

static bool is_known_as_spent(struct links *l, const struct link_record *link)
{
	struct click_limit *limit = link->max_clicks ? click_limits_get(l->click_limits, link->id) : NULL;
	bool spent = link->max_clicks != 0 &&
	             link->clicks >= link->max_clicks; /* as of the last store_set_clicks */
	if (limit && click_limit_is_counted(limit))
		spent = click_limit_is_spent(limit, link->max_clicks);
	click_limit_unpin(limit);
	return spent;
}

bool links_is_open(struct links *l, const struct link_record *link, int64_t now_ms)
{
	return link->enabled && link->not_before_ms <= now_ms && !link_has_ended(link, now_ms) &&
	       !is_known_as_spent(l, link);
}

/* Writing */

void links_count_commit(struct metrics *m, size_t n, int64_t start_ns, bool failed)
{
	histogram_add(&m->store_commit_duration, (uint64_t)(clock_mono_ns() - start_ns), 1);
	metric_add(&m->store_writes, n);
	metric_add(&m->store_commits, 1);
	if (failed)
		metric_add(&m->store_errors, 1);
}

static int apply_counted(struct links *l, struct store_write *writes, size_t n, struct metrics *m)
{
	int64_t start_ns = clock_mono_ns();
	int r = store_apply(l->store, writes, n);
	bool failed = r < 0;
	for (size_t i = 0; i < n; i++) {
		if (r < 0)
			writes[i].result = r;
		failed |= writes[i].result == ERR_UNAVAILABLE || writes[i].result == ERR_UNCERTAIN;
	}
	links_count_commit(m, n, start_ns, failed);
	return r;
}

/* Also after an uncertain outcome: a possibly changed link must not be served from a cache. */
static bool may_have_changed(const struct store_write *w)
{
	return w->result == 0 || w->result == ERR_UNCERTAIN;
}

/* A change by row id is known by its record. Without one the link had expired, and so has its cache entry. */
static struct str changed_key(const struct store_write *w)
{
	return w->ref.key.ptr || w->result != 0 ? w->ref.key : w->link.key;
}

/* The shared cache before our own: a miss here must not find the old value there. */
static void invalidate_shared(struct links *l, const struct store_write *writes, size_t n)
{
	struct rcache *rcache = l->tier2.rcache;
	CLEANUP(arena_release) struct arena arena = {0};
	struct str *keys = rcache ? arena_alloc(&arena, n * sizeof(*keys)) : NULL;
	size_t count = 0;
	for (size_t i = 0; rcache && i < n; i++) {
		struct str key = may_have_changed(&writes[i]) ? changed_key(&writes[i]) : STR_NULL;
		if (key.ptr && keys)
			keys[count++] = key;
		else if (key.ptr)
			rcache->ops->change(rcache, &key, 1);
	}
	if (count > 0)
		rcache->ops->change(rcache, keys, count);
}

static void count_done(struct links *l, const struct store_write *w, struct metrics *m)
{
	if (w->kind == STORE_LINK_CREATE && !w->replayed) {
		metric_add(&m->links_created, 1);
		if (w->link.max_clicks)
			click_limits_begin(l->click_limits, w->link.id);
	} else if (w->kind == STORE_LINK_DELETE)
		metric_add(&m->links_deleted, 1);
	else if (w->kind == STORE_LINK_SWEEP)
		metric_add(&m->links_swept, 1);
}

static void publish(struct links *l, struct store_write *w, struct metrics *m)
{
	if (!may_have_changed(w))
		return;
	bool done = w->result == 0;
	struct str key = changed_key(w);
	if (l->cache && key.ptr)
		cache_invalidate(l->cache, key);
	if (w->kind == STORE_LINK_UPDATE && (w->fields & LINK_MAX_CLICKS))
		click_limits_uncount(l->click_limits,
		                     done ? w->link.id : 0); /* once no cache has the old limit */
	if (done)
		count_done(l, w, m);
}

static bool has_no_key(const struct store_write *w)
{
	return w->kind == STORE_LINK_CREATE && w->result < 0;
}

/* Applies all but the creates that got no key; they have their result already. */
static int apply_with_keys(struct links *l, struct store_write *writes, size_t n, struct metrics *m)
{
	struct store_write *named = calloc(n, sizeof(*named));
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		if (!named)
			writes[i].result = ERR_NOMEM;
		else if (!has_no_key(&writes[i]))
			named[count++] = writes[i];
	}
	int r = count > 0 ? apply_counted(l, named, count, m) : 0;
	for (size_t i = 0, at = 0; named && i < n; i++) {
		if (!has_no_key(&writes[i]))
			writes[i] = named[at++];
	}
	free(named);
	return r;
}

/* True: the store has answered, though some shards may be down: another key may be of another shard. False
 * also if no ids could be leased. An empty key source says nothing about the store. */
static bool apply_batch(struct links *l, size_t shard, struct store_write *writes, size_t n,
                        struct unused_keys *left, struct metrics *m)
{
	bool some_lack_keys = false, has_no_ids = false;
	links_name(l, shard, writes, n, left, m);
	struct link_name *names = l->source && n > 0 ? calloc(n, sizeof(*names)) : NULL;
	for (size_t i = 0; i < n; i++) {
		some_lack_keys |= has_no_key(&writes[i]);
		has_no_ids |= has_no_key(&writes[i]) && writes[i].result == ERR_UNAVAILABLE;
		if (names && !has_no_key(&writes[i]))
			names[i] = links_name_of(l, &writes[i]);
	}
	int r = some_lack_keys ? apply_with_keys(l, writes, n, m) : apply_counted(l, writes, n, m);
	for (size_t i = 0; names && i < n; i++)
		unused_keys_note(left, &writes[i], &names[i], r < 0);
	free(names);
	return r == 0 && !has_no_ids;
}

static bool wants_another_key(const struct store_write *w, bool used_elsewhere)
{
	return links_key_was_taken(w) || (used_elsewhere && links_shard_was_down(w));
}

/*
 * The creates whose generated key was refused: an alias has it, it was issued before, or its shard is down.
 */
static size_t refused_creates(struct store_write *writes, size_t n, bool used_elsewhere,
                              struct store_write *ret, struct metrics *m)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		if (!wants_another_key(&writes[i], used_elsewhere))
			continue;
		metric_add(&m->keys_skipped, 1);
		ret[count++] = writes[i];
	}
	return count;
}

static void retry_with_other_keys(struct links *l, struct store_write *writes, size_t n, bool answered,
                                  struct unused_keys *left, struct metrics *m)
{
	struct store_write *again = NULL;
	bool wanted = false;
	for (size_t i = 0; i < n; i++)
		wanted |= wants_another_key(&writes[i], answered);
	if (wanted)
		again = calloc(n, sizeof(*again));
	for (int tries = 0; again && tries < KEY_TRIES; tries++) {
		bool used_elsewhere = answered && tries < OUTAGE_TRIES && !links_store_is_down(l);
		size_t count = refused_creates(writes, n, used_elsewhere, again, m);
		if (count == 0)
			break;
		answered = apply_batch(l, (size_t)LINKS_ANY_SHARD, again, count, left, m);
		for (size_t i = 0, at = 0; i < n; i++) {
			if (wants_another_key(&writes[i], used_elsewhere))
				writes[i] = again[at++];
		}
	}
	free(again);
	for (size_t i = 0; i < n; i++) {
		if (links_key_was_taken(&writes[i]))
			writes[i].result = ERR_LIMIT;
	}
}

void links_apply(struct links *l, struct store_write *writes, size_t n, struct metrics *m)
{
	links_apply_in(l, (size_t)LINKS_ANY_SHARD, writes, n, m);
}

void links_apply_in(struct links *l, size_t shard, struct store_write *writes, size_t n, struct metrics *m)
{
	for (size_t i = 0; i < n; i++) {
		if (writes[i].kind == STORE_LINK_CREATE || writes[i].kind == STORE_LINK_SWEEP)
			writes[i].quarantine_ms = l->quarantine_ms;
	}
	struct unused_keys left = {0};
	bool answered = apply_batch(l, shard, writes, n, &left, m);
	retry_with_other_keys(l, writes, n, answered, &left, m);
	unused_keys_return(&left, l);
	links_note_outage(l, writes, n);
	for (size_t i = 0; i < n; i++) {
		struct store_write *w = &writes[i];
		if (w->result == 0 && links_key_fill(l, &w->link, w->arena) < 0)
			w->result = ERR_UNCERTAIN; /* it was applied, but cannot be returned */
	}
	invalidate_shared(l, writes, n);
	for (size_t i = 0; i < n; i++)
		publish(l, &writes[i], m);
}

/* Changes by other servers */

void links_created_elsewhere(struct links *l, struct str key, uint64_t id)
{
	if (l->cache)
		cache_link_created(l->cache, key, id);
}

void links_changed_elsewhere(struct links *l, struct str key)
{
	if (l->cache)
		cache_invalidate(l->cache, key);
}

void links_feed_lost(struct links *l)
{
	if (l->cache)
		cache_expire_all(l->cache, clock_mono_ms());
}
