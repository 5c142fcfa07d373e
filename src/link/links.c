#include "link/links_private.h"

#include "link/key_format.h"
#include "os/clock.h"

#include <sodium.h>
#include <stdlib.h>

/* A generated key meets an alias about once in as many tries as there are keys per alias; this many times in
 * a row means that something else is wrong. */
enum { KEY_TRIES = 32 };

/* With a part of the store away: as many keys in a row hardly ever all lie there. */
enum { SHARD_TRIES = 16 };

/* For entries that have no life of their own. */
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
	int r = key_format_settle(l->store, (enum key_alphabet)config->settings.alphabet,
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
	pthread_mutex_init(&l->stash_lock, NULL);
	*ret = l;
	return 0;
}

void links_free(struct links *l)
{
	if (!l)
		return;
	cache_free(l->cache);
	click_limits_free(l->click_limits); /* cache entries point at them */
	ids_release(&l->ids);
	pthread_mutex_destroy(&l->stash_lock);
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

/* Stores keep a generated key as its id alone. */
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
	             link->clicks >= link->max_clicks; /* as the store was last told */
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
	histogram_record(&m->store_commit_us, (uint64_t)(clock_mono_ns() - start_ns) / 1000);
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

/* Also after an uncertain outcome: what may have changed must not be served from a cache. */
static bool has_touched(const struct store_write *w)
{
	return w->result == 0 || w->result == ERR_UNCERTAIN;
}

/* A link that was named by its row alone is known by its record; if there is none, it was over, and so is
 * what a cache has of it. */
static struct str touched_key(const struct store_write *w)
{
	return w->ref.key.ptr || w->result != 0 ? w->ref.key : w->link.key;
}

/* The shared cache before our own: whoever misses here afterwards must not find the old one there. */
static void tell_others(struct links *l, const struct store_write *writes, size_t n)
{
	struct rcache *rcache = l->tier2.rcache;
	CLEANUP(arena_release) struct arena arena = {0};
	struct str *keys = rcache ? arena_alloc(&arena, n * sizeof(*keys)) : NULL;
	size_t count = 0;
	for (size_t i = 0; rcache && i < n; i++) {
		struct str key = has_touched(&writes[i]) ? touched_key(&writes[i]) : STR_NULL;
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

static void settle(struct links *l, struct store_write *w, struct metrics *m)
{
	if (!has_touched(w))
		return;
	bool done = w->result == 0;
	struct str key = touched_key(w);
	if (l->cache && key.ptr)
		cache_invalidate(l->cache, key);
	if (w->kind == STORE_LINK_UPDATE && (w->fields & LINK_MAX_CLICKS))
		click_limits_uncount(l->click_limits,
		                     done ? w->link.id : 0); /* when no cache has the old limit any more */
	if (done)
		count_done(l, w, m);
}

static bool is_nameless(const struct store_write *w)
{
	return w->kind == STORE_LINK_CREATE && w->result < 0;
}

/* Without those that have no name; they have their result already. */
static int apply_named(struct links *l, struct store_write *writes, size_t n, struct metrics *m)
{
	struct store_write *named = calloc(n, sizeof(*named));
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		if (!named)
			writes[i].result = ERR_NOMEM;
		else if (!is_nameless(&writes[i]))
			named[count++] = writes[i];
	}
	int r = count > 0 ? apply_counted(l, named, count, m) : 0;
	for (size_t i = 0, at = 0; named && i < n; i++) {
		if (!is_nameless(&writes[i]))
			writes[i] = named[at++];
	}
	free(named);
	return r;
}

/* True: the store has answered, though a part of it may be away. Another key may lie in another part. Not so
 * while there are no ids to make keys of; that a source has none now says nothing of the store. */
static bool apply_batch(struct links *l, size_t shard, struct store_write *writes, size_t n,
                        struct leftovers *left, struct metrics *m)
{
	bool nameless = false, has_no_ids = false;
	links_name(l, shard, writes, n, left, m);
	struct link_name *names = l->source && n > 0 ? calloc(n, sizeof(*names)) : NULL;
	for (size_t i = 0; i < n; i++) {
		nameless |= is_nameless(&writes[i]);
		has_no_ids |= is_nameless(&writes[i]) && writes[i].result == ERR_UNAVAILABLE;
		if (names && !is_nameless(&writes[i]))
			names[i] = links_name_of(l, &writes[i]);
	}
	int r = nameless ? apply_named(l, writes, n, m) : apply_counted(l, writes, n, m);
	for (size_t i = 0; names && i < n; i++)
		leftovers_note(left, &writes[i], &names[i], r < 0);
	free(names);
	return r == 0 && !has_no_ids;
}

static bool wants_another_key(const struct store_write *w, bool elsewhere)
{
	return links_met_another(w) || (elsewhere && links_may_lie_elsewhere(w));
}

/* Those that the store refused a key which nobody chose: because somebody's alias reads the same, it was
 * given out before, or the part of the store where it would lie is away. */
static size_t refused_ones(struct store_write *writes, size_t n, bool elsewhere, struct store_write *ret,
                           struct metrics *m)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		if (!wants_another_key(&writes[i], elsewhere))
			continue;
		metric_add(&m->keys_skipped, 1);
		ret[count++] = writes[i];
	}
	return count;
}

static void retry_with_other_keys(struct links *l, struct store_write *writes, size_t n, bool answered,
                                  struct leftovers *left, struct metrics *m)
{
	struct store_write *again = NULL;
	bool wanted = false;
	for (size_t i = 0; i < n; i++)
		wanted |= wants_another_key(&writes[i], answered);
	if (wanted)
		again = calloc(n, sizeof(*again));
	for (int tries = 0; again && tries < KEY_TRIES; tries++) {
		bool elsewhere = answered && tries < SHARD_TRIES && !links_is_dark(l);
		size_t count = refused_ones(writes, n, elsewhere, again, m);
		if (count == 0)
			break;
		answered = apply_batch(l, (size_t)LINKS_ANY_SHARD, again, count, left, m);
		for (size_t i = 0, at = 0; i < n; i++) {
			if (wants_another_key(&writes[i], elsewhere))
				writes[i] = again[at++];
		}
	}
	free(again);
	for (size_t i = 0; i < n; i++) {
		if (links_met_another(&writes[i]))
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
	struct leftovers left = {0};
	bool answered = apply_batch(l, shard, writes, n, &left, m);
	retry_with_other_keys(l, writes, n, answered, &left, m);
	leftovers_return(&left, l);
	links_note_shards(l, writes, n);
	for (size_t i = 0; i < n; i++) {
		struct store_write *w = &writes[i];
		if (w->result == 0 && links_key_fill(l, &w->link, w->arena) < 0)
			w->result = ERR_UNCERTAIN; /* it happened, but cannot be told whole */
	}
	tell_others(l, writes, n);
	for (size_t i = 0; i < n; i++)
		settle(l, &writes[i], m);
}

/* What others say */

void links_made(struct links *l, struct str key, uint64_t id)
{
	if (l->cache)
		cache_made(l->cache, key, id);
}

void links_changed(struct links *l, struct str key)
{
	if (l->cache)
		cache_invalidate(l->cache, key);
}

void links_lost(struct links *l)
{
	if (l->cache)
		cache_age(l->cache, clock_mono_ms());
}
