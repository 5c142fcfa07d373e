#include "keys/pool.h"

#include "keys/shelf.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/thread.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
	LOOK_MS = 1000,
	TRIES = 8,
	DRY_MS =
	    50, /* a dry pool answers by itself for so long, or every refused create would ask all shards */
};

struct shard {
	struct shelf *shelf;
	_Atomic uint64_t left; /* as last seen; 0 when it does not answer */
	uint64_t brought;      /* likewise, by the prefetcher alone */
	bool seen;             /* since the start */
};

struct pool_hand { /* keys at hand, first in first out */
	struct source_key *keys;
	size_t room, count, first;
	size_t *shards; /* from which shard each of them came */
};

struct key_pool {
	struct key_source base;
	struct arena arena;
	struct shelf **shelves;
	struct shard *shards;
	size_t shard_count;
	size_t batch;
	_Atomic uint64_t taken;
	_Atomic uint64_t refilled;
	_Atomic uint64_t lost;

	pthread_mutex_t fetch_lock; /* one fetches at a time; taken before `lock` */
	struct source_key *fetched; /* under fetch_lock */
	size_t *order;              /* likewise: the shards by what they have */

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t wake;
	struct pool_hand hand;
	int64_t dry_ms; /* when the last fetch found nothing; 0: it found some */
	int dry_code;
	struct err dry_why;
	bool wanted; /* the prefetcher has work */
	bool stopping;

	pthread_t prefetcher;
	bool prefetcher_started;
};

/* The hand */

static void hand_put(struct pool_hand *h, const struct source_key *keys, size_t n, size_t shard)
{
	ASSERT(h->count + n <= h->room);
	for (size_t i = 0; i < n; i++) {
		size_t at = (h->first + h->count++) % h->room;
		h->keys[at] = keys[i];
		h->shards[at] = shard;
	}
}

static size_t hand_take(struct pool_hand *h, struct source_key *ret, size_t n)
{
	size_t count = MIN(n, h->count);
	for (size_t i = 0; i < count; i++) {
		ret[i] = h->keys[h->first];
		h->first = (h->first + 1) % h->room;
	}
	h->count -= count;
	return count;
}

/* Fetching */

/* Those that answer, the fullest first; how many. */
static size_t order_shards(struct key_pool *p)
{
	size_t count = 0;
	for (size_t i = 0; i < p->shard_count; i++) {
		if (shelf_is_sick(p->shards[i].shelf))
			continue;
		size_t at = count++;
		uint64_t left = atomic_load(&p->shards[i].left);
		for (; at > 0 && atomic_load(&p->shards[p->order[at - 1]].left) < left; at--)
			p->order[at] = p->order[at - 1];
		p->order[at] = i;
	}
	return count;
}

/* Nobody else gets them, and the server may have taken fewer: it is a bound. */
static void note_lost(struct key_pool *p, size_t shard, size_t n, const char *why)
{
	atomic_fetch_add(&p->lost, n);
	log_warn("keys", "up to %zu keys of shard %.*s are lost: %s", n,
	         STR_ARG(shelf_name(p->shards[shard].shelf)), why);
}

static int fetch_one(struct key_pool *p, size_t shard, size_t *ret_count, struct err *e)
{
	struct shard *s = &p->shards[shard];
	uint64_t left = 0;
	*ret_count = 0;
	int r = shelf_take(s->shelf, p->batch, p->fetched, ret_count, &left, e);
	if (r == ERR_UNCERTAIN)
		note_lost(p, shard, p->batch, e->text);
	atomic_store(&s->left, r == 0 ? left : 0);
	return r;
}

static void settle_dry_locked(struct key_pool *p, bool answered, const struct err *why)
{
	p->dry_ms = clock_mono_ms();
	if (answered)
		p->dry_code = err_set(
		    &p->dry_why, ERR_LIMIT,
		    "no keys are left in stock: start curt keygen and curt keysync, or more "
		    "of them, or set keys.source = cipher");
	else
		p->dry_code = err_set(&p->dry_why, ERR_UNAVAILABLE, "no key shard answers: %.400s",
		                      why->text[0] ? why->text : "all of them failed a moment ago");
}

/* Asks one shard after another until one gives something. */
static void fetch(struct key_pool *p)
{
	struct err why = {""};
	bool answered = false;
	size_t count = 0, shard = 0;
	size_t candidates = order_shards(p);
	for (size_t i = 0; count == 0 && i < candidates; i++) {
		shard = p->order[i];
		if (fetch_one(p, shard, &count, &why) == 0)
			answered = true;
	}
	pthread_mutex_lock(&p->lock);
	if (count > 0) {
		hand_put(&p->hand, p->fetched, count, shard);
		p->dry_ms = 0;
	} else {
		settle_dry_locked(p, answered, &why);
	}
	pthread_mutex_unlock(&p->lock);
}

static bool runs_low_locked(const struct key_pool *p)
{
	return p->hand.count <= p->batch / 2;
}

static bool is_dry_locked(const struct key_pool *p)
{
	return p->dry_ms != 0 && clock_mono_ms() - p->dry_ms < DRY_MS;
}

/* Unless somebody else has done it meanwhile. */
static void fetch_if_low(struct key_pool *p)
{
	pthread_mutex_lock(&p->fetch_lock);
	pthread_mutex_lock(&p->lock);
	bool needed = runs_low_locked(p) && !is_dry_locked(p);
	pthread_mutex_unlock(&p->lock);
	if (needed)
		fetch(p);
	pthread_mutex_unlock(&p->fetch_lock);
}

static void look_at_all(struct key_pool *p)
{
	for (size_t i = 0; i < p->shard_count; i++) {
		struct shard *s = &p->shards[i];
		uint64_t left = 0, brought = 0;
		if (shelf_look(s->shelf, &left, &brought, NULL) < 0) {
			atomic_store(&s->left, 0);
			continue;
		}
		atomic_store(&s->left, left);
		if (s->seen) /* fewer than before: the shard has lost its memory */
			atomic_fetch_add(&p->refilled, brought < s->brought ? brought : brought - s->brought);
		s->brought = brought;
		s->seen = true;
	}
}

/* Until it is wanted or time to look at the shards again; false: it shall end. */
static bool prefetcher_wait(struct key_pool *p, int64_t look_ms, bool *ret_wanted)
{
	int64_t left_ms = MAX(look_ms - clock_mono_ms(), 0);
	struct timespec at = clock_mono_after((uint64_t)left_ms);
	pthread_mutex_lock(&p->lock);
	while (!p->stopping && !p->wanted && left_ms > 0 &&
	       pthread_cond_timedwait(&p->wake, &p->lock, &at) != ETIMEDOUT)
		;
	*ret_wanted = p->wanted;
	p->wanted = false;
	bool go_on = !p->stopping;
	pthread_mutex_unlock(&p->lock);
	return go_on;
}

static void *prefetcher_run(void *arg)
{
	struct key_pool *p = arg;
	int64_t look_ms = 0;
	bool wanted;
	while (prefetcher_wait(p, look_ms, &wanted)) {
		if (clock_mono_ms() >= look_ms) {
			look_at_all(p);
			look_ms = clock_mono_ms() + LOOK_MS;
		}
		if (wanted)
			fetch_if_low(p);
	}
	return NULL;
}

/* The source */

static size_t take_at_hand(struct key_pool *p, struct source_key *ret, size_t n)
{
	pthread_mutex_lock(&p->lock);
	size_t count = hand_take(&p->hand, ret, n);
	if (runs_low_locked(p) && !p->wanted && !is_dry_locked(p)) {
		p->wanted = true;
		pthread_cond_signal(&p->wake);
	}
	pthread_mutex_unlock(&p->lock);
	return count;
}

static int pool_take(struct key_source *base, struct source_key *ret, size_t n, size_t *ret_count,
                     struct err *e)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	*ret_count = take_at_hand(p, ret, n);
	for (int i = 0; i < TRIES && *ret_count == 0; i++) { /* others may be faster */
		fetch_if_low(p);
		*ret_count = take_at_hand(p, ret, n);
	}
	if (*ret_count > 0) {
		atomic_fetch_add(&p->taken, *ret_count);
		return 0;
	}
	pthread_mutex_lock(&p->lock);
	int r = p->dry_ms != 0 ? err_set(e, p->dry_code, "%s", p->dry_why.text)
	                       : err_set(e, ERR_LIMIT, "others took all keys that were at hand; try again");
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* Behind those at hand, with room left for what is being fetched. Any shard is as good as the one that it
 * came from. */
static void pool_give_back(struct key_source *base, const struct source_key *keys, size_t n)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	pthread_mutex_lock(&p->lock);
	size_t room = p->hand.room - p->batch;
	hand_put(&p->hand, keys, p->hand.count < room ? MIN(n, room - p->hand.count) : 0, 0);
	pthread_mutex_unlock(&p->lock);
}

static struct source_stats pool_stats(struct key_source *base)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	pthread_mutex_lock(&p->lock);
	struct source_stats stats = {.stock = p->hand.count, .shards = p->shard_count};
	pthread_mutex_unlock(&p->lock);
	stats.taken = atomic_load(&p->taken);
	stats.refilled = atomic_load(&p->refilled);
	stats.lost = atomic_load(&p->lost);
	for (size_t i = 0; i < p->shard_count; i++) {
		stats.stock += atomic_load(&p->shards[i].left);
		stats.shards_sick += shelf_is_sick(p->shards[i].shelf) ? 1 : 0;
	}
	return stats;
}

/* Each key to where it came from, in runs. One that finds its shard away is lost: there are others. */
static void give_back_all(struct key_pool *p)
{
	struct err e = {""};
	struct pool_hand *h = &p->hand;
	while (h->count > 0) {
		size_t shard = h->shards[h->first], run = 0;
		while (run < p->batch && h->count > 0 && h->shards[h->first] == shard)
			run += hand_take(h, &p->fetched[run], 1);
		if (shelf_return(p->shards[shard].shelf, p->fetched, run, &e) < 0)
			note_lost(p, shard, run, e.text);
	}
}

static void pool_free(struct key_source *base)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	if (p->prefetcher_started)
		pthread_join(p->prefetcher, NULL);
	give_back_all(p);
	shelves_free(p->shelves, p->shard_count);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->fetch_lock);
	arena_release(&p->arena);
	free(p);
}

static const struct key_source_ops pool_ops = {
    .free = pool_free,
    .take = pool_take,
    .give_back = pool_give_back,
    .stats = pool_stats,
};

static int pool_make(struct key_pool *p, const char *urls, struct err *e)
{
	int r = shelves_new(str_of(urls), &p->arena, &p->shelves, &p->shard_count, e);
	if (r < 0)
		return r;
	p->hand.room = 3 * p->batch; /* half of a batch, a fetched one, and what comes back */
	p->hand.keys = arena_zalloc(&p->arena, p->hand.room * sizeof(*p->hand.keys));
	p->hand.shards = arena_zalloc(&p->arena, p->hand.room * sizeof(*p->hand.shards));
	p->shards = arena_zalloc(&p->arena, p->shard_count * sizeof(*p->shards));
	p->order = arena_zalloc(&p->arena, p->shard_count * sizeof(*p->order));
	p->fetched = arena_zalloc(&p->arena, p->batch * sizeof(*p->fetched));
	if (!p->hand.keys || !p->hand.shards || !p->shards || !p->order || !p->fetched)
		return err_set(e, ERR_NOMEM, "out of memory");
	for (size_t i = 0; i < p->shard_count; i++)
		p->shards[i].shelf = p->shelves[i];
	r = thread_start(&p->prefetcher, "key-pool", prefetcher_run, p, e);
	p->prefetcher_started = r == 0;
	return r;
}

int key_pool_open(const char *urls, size_t batch, struct key_source **ret, struct err *e)
{
	ASSERT(batch > 0 && batch <= POOL_BATCH_MAX);
	struct key_pool *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	p->base.ops = &pool_ops;
	p->batch = batch;
	pthread_mutex_init(&p->fetch_lock, NULL);
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->wake, &attr);
	pthread_condattr_destroy(&attr);
	int r = pool_make(p, urls, e);
	if (r < 0) {
		pool_free(&p->base);
		return r;
	}
	*ret = &p->base;
	return 0;
}
