#include "link/cache.h"

#include "base/hash.h"
#include "os/reclaim.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
	EPOCH_SLOTS = 4096,
	ENTRY_BYTES_TYPICAL = 384, /* determines the number of buckets and ghosts */
	RETIRED_BYTES_MAX = 1 << 20,
	USES_MAX = 3,
	AGE_STEP = 512, /* buckets */
};

/* A FIFO: entries enter at `newest` and leave at `oldest`. */
struct entry_queue {
	struct cache_entry *newest;
	struct cache_entry *oldest;
	uint64_t bytes;
};

/* A hash that left the small queue, and when, counted in such events. */
struct ghost {
	uint32_t tag;
	uint32_t when;
};

struct cache {
	uint64_t seed;
	uint64_t mask;
	_Atomic(struct cache_entry *) *buckets;
	_Atomic uint32_t epochs[EPOCH_SLOTS];

	pthread_mutex_t lock; /* guards all below, and all writes to the chains */
	uint64_t bytes_max;
	uint64_t entries;
	struct entry_queue small;
	struct entry_queue main;
	struct ghost *ghosts; /* indexed like the buckets */
	uint32_t ghost_clock;
	struct cache_entry *retired; /* unlinked, but not freed; chained by `older` */
	uint64_t retired_bytes;
	uint64_t main_evictions;
	uint64_t small_evictions;
};

/* Resident only where touched: an idle server pays nothing for a large cache. */
static void *map_zeroed(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
	               0);
	return p == MAP_FAILED ? NULL : p;
}

static size_t buckets_bytes(const struct cache *c)
{
	return (c->mask + 1) * sizeof(*c->buckets);
}

static size_t ghosts_bytes(const struct cache *c)
{
	return (c->mask + 1) * sizeof(*c->ghosts);
}

int cache_new(uint64_t bytes_max, uint64_t seed, struct cache **ret, struct err *e)
{
	struct cache *c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, ERR_NOMEM, "out of memory for the cache");
	uint64_t buckets = 1024;
	while (buckets < bytes_max / ENTRY_BYTES_TYPICAL)
		buckets *= 2;
	c->seed = seed;
	c->mask = buckets - 1;
	c->bytes_max = bytes_max;
	pthread_mutex_init(&c->lock, NULL);
	c->buckets = map_zeroed(buckets_bytes(c));
	c->ghosts = map_zeroed(ghosts_bytes(c));
	if (!c->buckets || !c->ghosts) {
		cache_free(c);
		return err_set(e, ERR_NOMEM, "no address space for a cache of %llu bytes; lower cache.memory",
		               (unsigned long long)bytes_max);
	}
	*ret = c;
	return 0;
}

static void entry_free(struct cache_entry *e)
{
	if (!e)
		return;
	click_limit_unpin(e->limit);
	free(e);
}

static void chain_free(struct cache_entry *e)
{
	while (e) {
		struct cache_entry *older = e->older;
		entry_free(e);
		e = older;
	}
}

void cache_free(struct cache *c)
{
	if (!c)
		return;
	chain_free(c->small.newest);
	chain_free(c->main.newest);
	chain_free(c->retired);
	if (c->buckets)
		munmap(c->buckets, buckets_bytes(c));
	if (c->ghosts)
		munmap(c->ghosts, ghosts_bytes(c));
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Reading */

static bool entry_is(const struct cache_entry *e, uint64_t hash, struct str key)
{
	return e->hash == hash && e->key_len == key.len && memcmp(e->data, key.ptr, key.len) == 0;
}

struct cache_entry *cache_find(struct cache *c, struct str key)
{
	uint64_t hash = hash_str(key, c->seed);
	/* acquire: pairs with the release in chain_push_locked, so the entry's contents are visible */
	struct cache_entry *e = atomic_load_explicit(&c->buckets[hash & c->mask], memory_order_acquire);
	while (e && !entry_is(e, hash, key))
		e = atomic_load_explicit(&e->next, memory_order_acquire);
	if (!e)
		return NULL;
	/* Workers may lose counts to each other; it is a hint. A hot entry is not written at all. */
	uint8_t uses = atomic_load_explicit(&e->uses, memory_order_relaxed);
	if (uses < USES_MAX)
		atomic_store_explicit(&e->uses, uses + 1, memory_order_relaxed);
	return e;
}

uint32_t cache_epoch(struct cache *c, struct str key)
{
	return atomic_load(&c->epochs[hash_str(key, c->seed) % EPOCH_SLOTS]);
}

/* Queues */

static void queue_push(struct entry_queue *q, struct cache_entry *e)
{
	e->newer = NULL;
	e->older = q->newest;
	if (q->newest)
		q->newest->newer = e;
	else
		q->oldest = e;
	q->newest = e;
	q->bytes += e->bytes;
}

static void queue_remove(struct entry_queue *q, struct cache_entry *e)
{
	if (e->newer)
		e->newer->older = e->older;
	else
		q->newest = e->older;
	if (e->older)
		e->older->newer = e->newer;
	else
		q->oldest = e->newer;
	q->bytes -= e->bytes;
}

static struct entry_queue *queue_of(struct cache *c, const struct cache_entry *e)
{
	return e->in_main ? &c->main : &c->small;
}

/* Chains */

static void chain_push_locked(struct cache *c, struct cache_entry *e)
{
	_Atomic(struct cache_entry *) *bucket = &c->buckets[e->hash & c->mask];
	atomic_store_explicit(&e->next, atomic_load_explicit(bucket, memory_order_relaxed),
	                      memory_order_relaxed);
	atomic_store_explicit(bucket, e, memory_order_release); /* pairs with cache_find */
}

static struct cache_entry *chain_find_locked(struct cache *c, uint64_t hash, struct str key)
{
	struct cache_entry *e = atomic_load_explicit(&c->buckets[hash & c->mask], memory_order_relaxed);
	while (e && !entry_is(e, hash, key))
		e = atomic_load_explicit(&e->next, memory_order_relaxed);
	return e;
}

/* Unlinks an entry. A reader on it still continues through `next`. */
static void entry_retire_locked(struct cache *c, struct cache_entry *e)
{
	_Atomic(struct cache_entry *) *at = &c->buckets[e->hash & c->mask];
	struct cache_entry *here;
	while ((here = atomic_load_explicit(at, memory_order_relaxed)) != e)
		at = &here->next;
	atomic_store_explicit(at, atomic_load_explicit(&e->next, memory_order_relaxed), memory_order_release);
	queue_remove(queue_of(c, e), e);
	c->entries--;
	e->older = c->retired;
	c->retired = e;
	c->retired_bytes += e->bytes;
}

/* Frees retired entries, if there are enough to be worth the wait. Without the lock. */
static void reclaim_retired(struct cache *c)
{
	struct cache_entry *victims = NULL;
	pthread_mutex_lock(&c->lock);
	if (c->retired_bytes > RETIRED_BYTES_MAX) {
		victims = steal(c->retired);
		c->retired_bytes = 0;
	}
	pthread_mutex_unlock(&c->lock);
	if (!victims)
		return;
	reclaim_wait();
	chain_free(victims);
}

/* Eviction */

static uint32_t ghost_tag(uint64_t hash)
{
	return (uint32_t)(hash >> 32) | 1; /* never 0, which marks an empty slot */
}

/* A ghost expires after about as many others as the main queue has room for. */
static bool ghost_take_locked(struct cache *c, uint64_t hash)
{
	struct ghost *g = &c->ghosts[hash & c->mask];
	if (g->tag != ghost_tag(hash))
		return false;
	g->tag = 0;
	return c->ghost_clock - g->when <= c->mask;
}

static void evict_small_locked(struct cache *c)
{
	struct cache_entry *e = c->small.oldest;
	if (atomic_load_explicit(&e->uses, memory_order_relaxed) > 1) {
		queue_remove(&c->small, e);
		e->in_main = true;
		atomic_store_explicit(&e->uses, 0, memory_order_relaxed);
		queue_push(&c->main, e);
		return;
	}
	c->ghosts[e->hash & c->mask] = (struct ghost){.tag = ghost_tag(e->hash), .when = ++c->ghost_clock};
	c->small_evictions++;
	entry_retire_locked(c, e);
}

static void evict_main_locked(struct cache *c)
{
	struct cache_entry *e = c->main.oldest;
	uint8_t uses = atomic_load_explicit(&e->uses, memory_order_relaxed);
	if (uses > 0) {
		atomic_store_explicit(&e->uses, uses - 1, memory_order_relaxed);
		queue_remove(&c->main, e);
		queue_push(&c->main, e);
		return;
	}
	c->main_evictions++;
	entry_retire_locked(c, e);
}

static void make_room_locked(struct cache *c, uint64_t bytes)
{
	while (c->small.bytes + c->main.bytes + bytes > c->bytes_max) {
		if (c->small.oldest && (c->small.bytes > c->bytes_max / 10 || !c->main.oldest))
			evict_small_locked(c);
		else if (c->main.oldest)
			evict_main_locked(c);
		else
			break;
	}
}

/* Writing */

static struct cache_entry *entry_new(struct cache *c, const struct cache_fill *fill)
{
	size_t bytes = sizeof(struct cache_entry) + fill->key.len + fill->response.len;
	struct cache_entry *e = malloc(bytes);
	if (!e)
		return NULL;
	*e = (struct cache_entry){
	    .hash = hash_str(fill->key, c->seed),
	    .expires_ms = fill->expires_ms,
	    .due_ms = fill->due_ms ? fill->due_ms : INT64_MAX,
	    .budget = fill->budget,
	    .link = fill->link,
	    .limit = fill->limit,
	    .max_clicks = fill->max_clicks,
	    .late = fill->late,
	    .response_len = (uint32_t)fill->response.len,
	    .response_date_at = fill->response_date_at,
	    .key_len = (uint8_t)fill->key.len,
	    .bytes = (uint32_t)(bytes + 2 * sizeof(void *)), /* with malloc's overhead */
	};
	click_limit_pin(e->limit);
	memcpy(e->data, fill->key.ptr, fill->key.len);
	if (fill->response.len > 0)
		memcpy(e->data + fill->key.len, fill->response.ptr, fill->response.len);
	return e;
}

void cache_insert(struct cache *c, const struct cache_fill *fill, uint32_t epoch)
{
	ASSERT(fill->key.len > 0 && fill->key.len <= UINT8_MAX);
	struct cache_entry *e = entry_new(c, fill);
	if (!e || e->bytes > c->bytes_max / 16) {
		entry_free(e); /* the cache is too small for this entry */
		return;
	}
	pthread_mutex_lock(&c->lock);
	if (atomic_load(&c->epochs[e->hash % EPOCH_SLOTS]) != epoch) {
		pthread_mutex_unlock(&c->lock);
		entry_free(e);
		return;
	}
	struct cache_entry *old = chain_find_locked(c, e->hash, fill->key);
	bool known = ghost_take_locked(c, e->hash);
	e->in_main = known || (old && old->in_main);
	if (old)
		entry_retire_locked(c, old);
	make_room_locked(c, e->bytes);
	queue_push(queue_of(c, e), e);
	chain_push_locked(c, e);
	c->entries++;
	pthread_mutex_unlock(&c->lock);
	reclaim_retired(c);
}

void cache_link_created(struct cache *c, struct str key, uint64_t link)
{
	uint64_t hash = hash_str(key, c->seed);
	pthread_mutex_lock(&c->lock);
	atomic_fetch_add(&c->epochs[hash % EPOCH_SLOTS], 1);
	struct cache_entry *e = chain_find_locked(c, hash, key);
	if (e && (link == 0 || e->link != link))
		entry_retire_locked(c, e);
	pthread_mutex_unlock(&c->lock);
	reclaim_retired(c);
}

void cache_invalidate(struct cache *c, struct str key)
{
	cache_link_created(c, key, 0);
}

void cache_drop(struct cache *c, struct str key)
{
	uint64_t hash = hash_str(key, c->seed);
	pthread_mutex_lock(&c->lock);
	struct cache_entry *e = chain_find_locked(c, hash, key);
	if (e)
		entry_retire_locked(c, e);
	pthread_mutex_unlock(&c->lock);
	reclaim_retired(c);
}

static void bucket_age_locked(struct cache *c, uint64_t bucket, int64_t mono_ms)
{
	struct cache_entry *e = atomic_load_explicit(&c->buckets[bucket], memory_order_relaxed);
	for (; e; e = atomic_load_explicit(&e->next, memory_order_relaxed)) {
		if (atomic_load_explicit(&e->due_ms, memory_order_relaxed) > mono_ms)
			atomic_store_explicit(&e->due_ms, mono_ms, memory_order_relaxed);
	}
}

void cache_expire_all(struct cache *c, int64_t mono_ms)
{
	/* Epochs first: what is inserted from now on was read from now on. */
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < EPOCH_SLOTS; i++)
		atomic_fetch_add(&c->epochs[i], 1);
	pthread_mutex_unlock(&c->lock);
	for (uint64_t bucket = 0; bucket <= c->mask;) {
		pthread_mutex_lock(&c->lock);
		for (unsigned i = 0; i < AGE_STEP && bucket <= c->mask; i++)
			bucket_age_locked(c, bucket++, mono_ms);
		pthread_mutex_unlock(&c->lock);
	}
}

struct cache_stats cache_read_stats(struct cache *c)
{
	pthread_mutex_lock(&c->lock);
	struct cache_stats s = {
	    .entries = c->entries,
	    .bytes = c->small.bytes + c->main.bytes,
	    .bytes_max = c->bytes_max,
	    .main_evictions = c->main_evictions,
	    .small_evictions = c->small_evictions,
	};
	pthread_mutex_unlock(&c->lock);
	return s;
}
