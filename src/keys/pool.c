/*
 * One task, the prefetcher, talks to the shards. A request only waits for it, and only briefly. Keys that
 * are put back become ready again if there is room. Otherwise the prefetcher returns them to a shard: to
 * the front of its list, or to its deferred list. Each fetch brings a few deferred keys, so that they are
 * used up once their shard is back, and do little harm before. That holds for an empty list, too: a batch of
 * deferred keys only would make a store with one dead shard look dead.
 */
#include "keys/pool.h"

#include "keys/redis_key_list.h"
#include "link/key_fifo.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/task.h"
#include "os/thread.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
	POLL_MS = 1000,
	WAIT_MS = 750, /* of a request: long enough to find one shard dead and ask another */
	/* An empty pool refuses without asking for so long; otherwise every refused create asks all shards. */
	EMPTY_MS = 50,
	RETURNING_MAX = 16384,  /* keys to be returned, of each kind */
	DEFERRED_MAX = 1000000, /* deferred keys on one shard; about 10 MB there */
	DEFERRED_SHARE = 16,    /* a fetch brings at least one deferred key per so many others */
	QUIET_MS = 10000,
};

struct pool_shard {
	struct redis_key_list *list;
	_Atomic uint64_t left;     /* at the last poll; 0 if it does not answer */
	_Atomic uint64_t deferred; /* likewise */
	uint64_t pushed;           /* likewise; prefetcher only */
	bool seen;                 /* polled since the start */
};

struct key_pool {
	struct key_source base;
	struct arena arena;
	struct redis_key_list **lists;
	struct pool_shard *shards;
	size_t shard_count;
	size_t batch;                /* keys per fetch */
	size_t share_min, share_max; /* bounds of `share` */
	_Atomic uint64_t refilled;
	_Atomic uint64_t lost;

	/* Prefetcher only. */
	struct source_key *buffer; /* keys from or to a shard */
	size_t *order;             /* shards by their number of keys */
	size_t share;              /* deferred keys per fetch: doubles until some are deferred again */
	size_t poll_next;
	int64_t poll_ms; /* when to poll that one */

	pthread_mutex_t lock;   /* guards all below; never held during a call to a shard */
	pthread_cond_t arrived; /* signaled when keys arrive */
	struct key_fifo ready;
	/* to be returned to a shard: to the front of its list, and to its deferred list */
	struct key_fifo returning, deferred;
	bool returns_blocked; /* no shard accepts them: wait until all were polled */
	bool deferred_seen;   /* keys were put back as deferred since the last fetch */
	uint64_t taken;
	uint64_t uncounted; /* keys put back are already in `taken`: so many takes are not counted */
	int64_t empty_ms;   /* when the last fetch found none; 0: it found some */
	int64_t wanted_ms;  /* when the prefetcher was asked to fetch */
	int empty_code;
	struct err empty_why;
	bool wanted;
	int64_t logged_ms; /* when a loss was last logged */

	struct task prefetcher;
};

/* Fetching */

/* Orders the shards that answer, fullest first; returns how many. */
static size_t order_shards(struct key_pool *p)
{
	size_t count = 0;
	for (size_t i = 0; i < p->shard_count; i++) {
		if (key_list_is_failing(p->shards[i].list))
			continue;
		size_t at = count++;
		uint64_t left = atomic_load(&p->shards[i].left);
		for (; at > 0 && atomic_load(&p->shards[p->order[at - 1]].left) < left; at--)
			p->order[at] = p->order[at - 1];
		p->order[at] = i;
	}
	return count;
}

/* An upper bound: the server may have taken fewer. */
static void log_lost(struct key_pool *p, const struct pool_shard *s, size_t n, const char *why)
{
	atomic_fetch_add(&p->lost, n);
	log_warn("keys", "keys lost count_max=%zu shard=%.*s error=\"%s\"", n,
	         STR_ARG(key_list_name(s->list)), why);
}

/* Asks one shard after another until one yields keys, into p->buffer. */
static size_t fetch_ready(struct key_pool *p, bool *ret_answered, struct err *e)
{
	size_t count = 0, candidates = order_shards(p);
	for (size_t i = 0; count == 0 && i < candidates; i++) {
		struct pool_shard *s = &p->shards[p->order[i]];
		uint64_t left = 0;
		int r = key_list_take(s->list, KEY_LIST_AVAILABLE, p->batch, p->buffer, &count, &left, e);
		if (r < 0)
			count = 0;
		if (r == ERR_UNCERTAIN)
			log_lost(p, s, p->batch, e->text);
		atomic_store(&s->left, r == 0 ? left : 0);
		*ret_answered |= r == 0;
	}
	return count;
}

/* From the shard with the most deferred keys. */
static size_t fetch_deferred(struct key_pool *p, size_t max, struct source_key *ret)
{
	struct pool_shard *most = &p->shards[0];
	for (size_t i = 1; i < p->shard_count; i++) {
		if (atomic_load(&p->shards[i].deferred) > atomic_load(&most->deferred))
			most = &p->shards[i];
	}
	if (atomic_load(&most->deferred) == 0)
		return 0;
	size_t count = 0;
	uint64_t left = 0;
	struct err e = {""};
	int r = key_list_take(most->list, KEY_LIST_DEFERRED, max, ret, &count, &left, &e);
	if (r == ERR_UNCERTAIN)
		log_lost(p, most, max, e.text);
	atomic_store(&most->deferred, r == 0 ? left : 0);
	return r == 0 ? count : 0;
}

static void fetch(struct key_pool *p)
{
	struct err why = {""};
	pthread_mutex_lock(&p->lock);
	p->share = p->deferred_seen ? p->share_min : MIN(2 * p->share, p->share_max);
	p->deferred_seen = false;
	pthread_mutex_unlock(&p->lock);
	bool answered = false;
	size_t count = fetch_ready(p, &answered, &why);
	count += fetch_deferred(p, p->share, p->buffer + count);
	pthread_mutex_lock(&p->lock);
	size_t put = key_fifo_put(&p->ready, p->buffer, count);
	ASSERT(put == count);
	p->empty_ms = count == 0 ? clock_mono_ms() : 0;
	if (count == 0) {
		if (answered)
			p->empty_code = err_set(
			    &p->empty_why, ERR_LIMIT,
			    "the key pool is empty; start more curt keygen and curt keysync, "
			    "or set keys.source = cipher");
		else
			p->empty_code = err_set(&p->empty_why, ERR_UNAVAILABLE,
			                        "no key shard answers: %.400s",
			                        why.text[0] ? why.text : "all failed a moment ago");
	}
	p->wanted = false;
	pthread_cond_broadcast(&p->arrived);
	pthread_mutex_unlock(&p->lock);
}

/* Returning keys */

/* Returns p->buffer to any shard. ERR_UNAVAILABLE: none accepts it. */
static int put_to_shard(struct key_pool *p, size_t n, bool deferred)
{
	size_t candidates = order_shards(p);
	for (size_t i = 0; i < candidates; i++) {
		struct pool_shard *s = &p->shards[p->order[i]];
		uint64_t length = atomic_load(&s->deferred);
		struct err e = {""};
		if (deferred && length >= DEFERRED_MAX)
			continue;
		int r = key_list_put(s->list, deferred ? KEY_LIST_DEFERRED : KEY_LIST_AVAILABLE, p->buffer, n,
		                     &length, &e);
		if (deferred)
			atomic_store(&s->deferred, length);
		if (r == ERR_UNCERTAIN)
			log_lost(p, s, n, e.text);
		if (r == 0 || r == ERR_UNCERTAIN)
			return 0;
	}
	return ERR_UNAVAILABLE;
}

/* One log line per QUIET_MS. */
static void count_lost_locked(struct key_pool *p, size_t n)
{
	int64_t now_ms = clock_mono_ms();
	uint64_t lost = atomic_fetch_add(&p->lost, n) + n;
	if (n == 0 || (p->logged_ms != 0 && now_ms - p->logged_ms < QUIET_MS))
		return;
	p->logged_ms = now_ms;
	log_warn("keys", "returned keys lost, no shard accepts them, or too many are deferred total=%ju",
	         (uintmax_t)lost);
}

/* A bounded number, so that a fetch does not wait for long. */
static void return_some(struct key_pool *p, struct key_fifo *row, bool deferred)
{
	pthread_mutex_lock(&p->lock);
	size_t n = key_fifo_take(row, p->buffer, KEY_LIST_KEYS_MAX);
	pthread_mutex_unlock(&p->lock);
	if (n == 0)
		return;
	int r = put_to_shard(p, n, deferred);
	pthread_mutex_lock(&p->lock);
	if (r < 0) {
		p->returns_blocked = true;
		count_lost_locked(p, n - key_fifo_put(row, p->buffer, n));
	} else {
		p->empty_ms = 0; /* there are keys again */
	}
	pthread_mutex_unlock(&p->lock);
}

/* The prefetcher */

static bool has_returns_locked(const struct key_pool *p)
{
	return !p->returns_blocked && (p->returning.count > 0 || p->deferred.count > 0);
}

/* One shard per call: each may be slow, and a fetch comes first. */
static void poll_shard(struct key_pool *p)
{
	struct pool_shard *s = &p->shards[p->poll_next];
	struct key_list_view view = {0};
	int r = key_list_look(s->list, &view, NULL);
	atomic_store(&s->left, view.count);
	atomic_store(&s->deferred, view.deferred);
	if (r >= 0) {
		if (s->seen) /* fewer than before: the shard has lost its data */
			atomic_fetch_add(&p->refilled,
			                 view.pushed < s->pushed ? view.pushed : view.pushed - s->pushed);
		s->pushed = view.pushed;
		s->seen = true;
	}
	if (++p->poll_next < p->shard_count)
		return;
	p->poll_next = 0;
	p->poll_ms = clock_mono_ms() + POLL_MS;
	pthread_mutex_lock(&p->lock);
	p->returns_blocked = false;
	pthread_mutex_unlock(&p->lock);
}

/* Returns when there is no work, and no poll is due. */
static int64_t prefetcher_run(struct task *t)
{
	struct key_pool *p = container_of(t, struct key_pool, prefetcher);
	int64_t left_ms = MAX(p->poll_ms - clock_mono_ms(), 0);
	pthread_mutex_lock(&p->lock);
	bool wanted = p->wanted, returning = has_returns_locked(p);
	pthread_mutex_unlock(&p->lock);
	if (!wanted && !returning && left_ms > 0)
		return left_ms;
	if (wanted)
		fetch(p);
	if (returning) {
		return_some(p, &p->returning, false);
		return_some(p, &p->deferred, true);
	}
	if (clock_mono_ms() >= p->poll_ms)
		poll_shard(p);
	return 0;
}

/* The source */

static size_t take_ready_locked(struct key_pool *p, struct source_key *ret, size_t n)
{
	size_t count = key_fifo_take(&p->ready, ret, n);
	size_t again = (size_t)MIN(p->uncounted, count);
	p->uncounted -= again;
	p->taken += count - again;
	if (p->ready.count <= p->batch / 2 && !p->wanted &&
	    (p->empty_ms == 0 || clock_mono_ms() - p->empty_ms >= EMPTY_MS)) {
		p->wanted = true;
		p->wanted_ms = clock_mono_ms();
		task_wake(&p->prefetcher);
	}
	return count;
}

/* False: timeout. A fetch that is late already is not waited for again. */
static bool wait_for_fetch_locked(struct key_pool *p, int64_t end_ms)
{
	int64_t left_ms = MIN(end_ms, p->wanted_ms + WAIT_MS) - clock_mono_ms();
	if (left_ms <= 0)
		return false;
	struct timespec at = clock_mono_after((uint64_t)left_ms);
	cond_wait_until(&p->arrived, &p->lock, &at);
	return true;
}

static int why_none_locked(const struct key_pool *p, struct err *e)
{
	if (p->wanted)
		return err_set(e, ERR_LIMIT, "no key shard has answered within %d ms; try again", WAIT_MS);
	if (p->empty_ms != 0)
		return err_set(e, p->empty_code, "%s", p->empty_why.text);
	return err_set(e, ERR_LIMIT, "other requests took all ready keys; try again");
}

static int pool_take(struct key_source *base, struct source_key *ret, size_t n, size_t *ret_count,
                     struct err *e)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	int64_t end_ms = clock_mono_ms() + WAIT_MS;
	pthread_mutex_lock(&p->lock);
	do { /* other requests may take the keys first */
		*ret_count = take_ready_locked(p, ret, n);
	} while (*ret_count == 0 && p->wanted && wait_for_fetch_locked(p, end_ms));
	int r = *ret_count > 0 ? 0 : why_none_locked(p, e);
	pthread_mutex_unlock(&p->lock);
	return r;
}

static void pool_put_back(struct key_source *base, const struct source_key *keys, size_t n, bool is_deferred)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	pthread_mutex_lock(&p->lock);
	/* At the end of the ready keys, leaving room for a running fetch. */
	size_t room = p->ready.room - p->batch - p->share_max, at_hand = 0;
	if (!is_deferred && p->ready.count < room)
		at_hand = key_fifo_put(&p->ready, keys, MIN(n, room - p->ready.count));
	size_t put = at_hand +
	             key_fifo_put(is_deferred ? &p->deferred : &p->returning, keys + at_hand, n - at_hand);
	p->uncounted += put;
	p->deferred_seen |= is_deferred;
	count_lost_locked(p, n - put);
	if (has_returns_locked(p))
		task_wake(&p->prefetcher);
	if (at_hand > 0)
		pthread_cond_broadcast(&p->arrived);
	pthread_mutex_unlock(&p->lock);
}

static struct source_stats pool_stats(struct key_source *base)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	pthread_mutex_lock(&p->lock);
	struct source_stats stats = {
	    .available = p->ready.count + p->returning.count,
	    .deferred = p->deferred.count,
	    .taken = p->taken,
	    .shards = p->shard_count,
	};
	pthread_mutex_unlock(&p->lock);
	stats.refilled = atomic_load(&p->refilled);
	stats.lost = atomic_load(&p->lost);
	for (size_t i = 0; i < p->shard_count; i++) {
		stats.available += atomic_load(&p->shards[i].left);
		stats.deferred += atomic_load(&p->shards[i].deferred);
		stats.shards_unhealthy += key_list_is_failing(p->shards[i].list) ? 1 : 0;
	}
	return stats;
}

/* On close. Keys that no shard accepts are lost. */
static void return_all(struct key_pool *p, struct key_fifo *row, bool deferred)
{
	size_t lost = 0;
	for (size_t n; (n = key_fifo_take(row, p->buffer, KEY_LIST_KEYS_MAX)) > 0;)
		lost += put_to_shard(p, n, deferred) < 0 ? n : 0;
	if (lost > 0)
		log_warn("keys", "ready keys lost, no shard accepts them count=%zu", lost);
}

static void pool_free(struct key_source *base)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	task_stop(&p->prefetcher);
	return_all(p, &p->ready, false);
	return_all(p, &p->returning, false);
	return_all(p, &p->deferred, true);
	key_lists_free(p->lists, p->shard_count);
	pthread_cond_destroy(&p->arrived);
	pthread_mutex_destroy(&p->lock);
	arena_release(&p->arena);
	free(p);
}

static const struct key_source_ops pool_ops = {
    .free = pool_free,
    .take = pool_take,
    .put_back = pool_put_back,
    .stats = pool_stats,
};

static bool fifo_init(struct key_fifo *row, size_t room, struct arena *arena)
{
	row->keys = arena_zalloc(arena, room * sizeof(*row->keys));
	row->room = row->keys ? room : 0;
	return row->keys;
}

static int pool_make(struct key_pool *p, const char *urls, struct err *e)
{
	int r = key_lists_new(str_of(urls), &p->arena, &p->lists, &p->shard_count, e);
	if (r < 0)
		return r;
	size_t fetched = p->batch + p->share_max;
	/* half a batch, a fetched batch, and returned keys */
	bool made = fifo_init(&p->ready, 2 * p->batch + fetched, &p->arena) &&
	            fifo_init(&p->returning, RETURNING_MAX, &p->arena) &&
	            fifo_init(&p->deferred, RETURNING_MAX, &p->arena);
	p->shards = arena_zalloc(&p->arena, p->shard_count * sizeof(*p->shards));
	p->order = arena_zalloc(&p->arena, p->shard_count * sizeof(*p->order));
	p->buffer = arena_zalloc(&p->arena, MAX(fetched, (size_t)KEY_LIST_KEYS_MAX) * sizeof(*p->buffer));
	if (!made || !p->shards || !p->order || !p->buffer)
		return err_set(e, ERR_NOMEM, "out of memory");
	for (size_t i = 0; i < p->shard_count; i++)
		p->shards[i].list = p->lists[i];
	return task_start(&p->prefetcher, &(struct task_config){.name = "key-pool", .run = prefetcher_run},
	                  e);
}

int key_pool_open(const char *urls, size_t batch, struct key_source **ret, struct err *e)
{
	ASSERT(batch > 0 && batch <= POOL_BATCH_MAX);
	struct key_pool *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	p->base.ops = &pool_ops;
	p->batch = batch;
	p->share = p->share_min = MAX(batch / DEFERRED_SHARE, (size_t)1);
	p->share_max = MAX(batch / 2, (size_t)1);
	pthread_mutex_init(&p->lock, NULL);
	cond_init_mono(&p->arrived);
	int r = pool_make(p, urls, e);
	if (r < 0) {
		pool_free(&p->base);
		return r;
	}
	*ret = &p->base;
	return 0;
}
