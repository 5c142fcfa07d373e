/*
 * One task, the prefetcher, talks to the shards; who takes a key or gives one back only ever waits for it,
 * and not for long. Keys that are given back go to those at hand, if there is room, or to a shard: to the
 * front of its list, or aside when they are for later. Of those aside each fetch brings a few, so that they
 * are used up when their time has come, and do little harm before.
 */
#include "keys/pool.h"

#include "keys/redis_key_list.h"
#include "link/key_row.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/task.h"
#include "os/thread.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
	LOOK_MS = 1000,
	PATIENCE_MS = 750, /* of who wants a key: a shard may be found to be stopped, and another asked */
	DRY_MS =
	    50, /* a dry pool answers by itself for so long, or every refused create would ask all shards */
	BACK_MAX = 16384,    /* keys on their way to a shard, of each kind */
	ASIDE_MAX = 1000000, /* keys aside on one shard; some 10 MB there */
	ASIDE_SHARE = 16,    /* a fetch brings at least one of those for so many others */
	QUIET_MS = 10000,
};

struct shard {
	struct redis_key_list *list;
	_Atomic uint64_t left;  /* as last seen; 0 when it does not answer */
	_Atomic uint64_t aside; /* likewise */
	uint64_t brought;       /* likewise, by the prefetcher alone */
	bool seen;              /* since the start */
};

struct key_pool {
	struct key_source base;
	struct arena arena;
	struct redis_key_list **lists;
	struct shard *shards;
	size_t shard_count;
	size_t batch;                /* what a fetch brings */
	size_t share_min, share_max; /* and of those aside */
	_Atomic uint64_t refilled;
	_Atomic uint64_t lost;

	/* The prefetcher's own. */
	struct source_key *moving; /* on their way from or to a shard */
	size_t *order;             /* the shards by what they have */
	size_t share;              /* of those aside: more and more, until some come back for later again */
	size_t look_next;
	int64_t look_ms; /* when to look at that one */

	pthread_mutex_t lock;   /* of what follows; nobody holds it while talking to a shard */
	pthread_cond_t arrived; /* who waits for keys */
	struct key_row hand;
	struct key_row back, aside; /* on their way to a shard: to the front, and aside */
	bool back_waits;            /* no shard takes them: not before the next look at all of them */
	bool later_came;            /* some were given back for later, since the last fetch */
	uint64_t taken;
	uint64_t pending;  /* of `taken` so many were given back: the next ones are not counted */
	int64_t dry_ms;    /* when the last fetch found nothing; 0: it found some */
	int64_t wanted_ms; /* since when the prefetcher has been asked to fetch */
	int dry_code;
	struct err dry_why;
	bool wanted;
	int64_t logged_ms; /* when the log was last told that there is no room */

	struct task prefetcher;
};

/* Fetching */

/* Those that answer, the fullest first; how many. */
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

/* Nobody else gets them, and the server may have taken fewer: it is a bound. */
static void note_lost(struct key_pool *p, const struct shard *s, size_t n, const char *why)
{
	atomic_fetch_add(&p->lost, n);
	log_warn("keys", "up to %zu keys of shard %.*s are lost: %s", n, STR_ARG(key_list_name(s->list)),
	         why);
}

/* Asks one shard after another until one gives something, to p->moving. */
static size_t fetch_ready(struct key_pool *p, bool *ret_answered, struct err *e)
{
	size_t count = 0, candidates = order_shards(p);
	for (size_t i = 0; count == 0 && i < candidates; i++) {
		struct shard *s = &p->shards[p->order[i]];
		uint64_t left = 0;
		int r = key_list_take(s->list, KEY_LIST_AVAILABLE, p->batch, p->moving, &count, &left, e);
		if (r < 0)
			count = 0;
		if (r == ERR_UNCERTAIN)
			note_lost(p, s, p->batch, e->text);
		atomic_store(&s->left, r == 0 ? left : 0);
		*ret_answered |= r == 0;
	}
	return count;
}

/* From the shard that has most of them aside. */
static size_t fetch_aside(struct key_pool *p, size_t max, struct source_key *ret)
{
	struct shard *most = &p->shards[0];
	for (size_t i = 1; i < p->shard_count; i++) {
		if (atomic_load(&p->shards[i].aside) > atomic_load(&most->aside))
			most = &p->shards[i];
	}
	if (atomic_load(&most->aside) == 0)
		return 0;
	size_t count = 0;
	uint64_t left = 0;
	struct err e = {""};
	int r = key_list_take(most->list, KEY_LIST_ASIDE, max, ret, &count, &left, &e);
	if (r == ERR_UNCERTAIN)
		note_lost(p, most, max, e.text);
	atomic_store(&most->aside, r == 0 ? left : 0);
	return r == 0 ? count : 0;
}

static void fetch(struct key_pool *p)
{
	struct err why = {""};
	pthread_mutex_lock(&p->lock);
	p->share = p->later_came ? p->share_min : MIN(2 * p->share, p->share_max);
	p->later_came = false;
	pthread_mutex_unlock(&p->lock);
	bool answered = false;
	size_t count = fetch_ready(p, &answered, &why);
	count += fetch_aside(p, count > 0 ? p->share : p->batch, p->moving + count);
	pthread_mutex_lock(&p->lock);
	size_t put = key_row_put(&p->hand, p->moving, count);
	ASSERT(put == count);
	p->dry_ms = count == 0 ? clock_mono_ms() : 0;
	if (count == 0) {
		if (answered)
			p->dry_code = err_set(
			    &p->dry_why, ERR_LIMIT,
			    "no keys are left in stock: start curt keygen and curt keysync, or more "
			    "of them, or set keys.source = cipher");
		else
			p->dry_code = err_set(&p->dry_why, ERR_UNAVAILABLE, "no key shard answers: %.400s",
			                      why.text[0] ? why.text : "all of them failed a moment ago");
	}
	p->wanted = false;
	pthread_cond_broadcast(&p->arrived);
	pthread_mutex_unlock(&p->lock);
}

/* Giving back */

/* One of them takes p->moving: any is as good as the one that they came from. ERR_UNAVAILABLE: none has. */
static int put_to_shard(struct key_pool *p, size_t n, bool aside)
{
	size_t candidates = order_shards(p);
	for (size_t i = 0; i < candidates; i++) {
		struct shard *s = &p->shards[p->order[i]];
		uint64_t length = atomic_load(&s->aside);
		struct err e = {""};
		if (aside && length >= ASIDE_MAX)
			continue;
		int r = key_list_put(s->list, aside ? KEY_LIST_ASIDE : KEY_LIST_AVAILABLE, p->moving, n,
		                     &length, &e);
		if (aside)
			atomic_store(&s->aside, length);
		if (r == ERR_UNCERTAIN)
			note_lost(p, s, n, e.text);
		if (r == 0 || r == ERR_UNCERTAIN)
			return 0;
	}
	return ERR_UNAVAILABLE;
}

/* Whoever gives back does so again and again: one line for all. */
static void note_no_room_locked(struct key_pool *p, size_t n)
{
	int64_t now_ms = clock_mono_ms();
	uint64_t lost = atomic_fetch_add(&p->lost, n) + n;
	if (n == 0 || (p->logged_ms != 0 && now_ms - p->logged_ms < QUIET_MS))
		return;
	p->logged_ms = now_ms;
	log_warn("keys",
	         "keys are lost that were given back: no shard takes them, or too many lie aside; %ju keys "
	         "since the start",
	         (uintmax_t)lost);
}

/* A bounded number, so that a fetch does not wait for long. */
static void put_back(struct key_pool *p, struct key_row *row, bool aside)
{
	pthread_mutex_lock(&p->lock);
	size_t n = key_row_take(row, p->moving, KEY_LIST_KEYS_MAX);
	pthread_mutex_unlock(&p->lock);
	if (n == 0)
		return;
	int r = put_to_shard(p, n, aside);
	pthread_mutex_lock(&p->lock);
	if (r < 0) {
		p->back_waits = true;
		note_no_room_locked(p, n - key_row_put(row, p->moving, n));
	} else {
		p->dry_ms = 0; /* there are some again */
	}
	pthread_mutex_unlock(&p->lock);
}

/* The prefetcher */

static bool has_back_locked(const struct key_pool *p)
{
	return !p->back_waits && (p->back.count > 0 || p->aside.count > 0);
}

/* At one at a time: each may take its time, and a fetch comes first. */
static void look_at_next(struct key_pool *p)
{
	struct shard *s = &p->shards[p->look_next];
	struct key_list_view view = {0};
	int r = key_list_look(s->list, &view, NULL);
	atomic_store(&s->left, view.count);
	atomic_store(&s->aside, view.aside);
	if (r >= 0) {
		if (s->seen) /* fewer than before: the shard has lost its memory */
			atomic_fetch_add(&p->refilled, view.brought < s->brought ? view.brought
			                                                         : view.brought - s->brought);
		s->brought = view.brought;
		s->seen = true;
	}
	if (++p->look_next < p->shard_count)
		return;
	p->look_next = 0;
	p->look_ms = clock_mono_ms() + LOOK_MS;
	pthread_mutex_lock(&p->lock);
	p->back_waits = false;
	pthread_mutex_unlock(&p->lock);
}

/* Until there is no work, nor time to look at a shard. */
static int64_t prefetcher_run(struct task *t)
{
	struct key_pool *p = container_of(t, struct key_pool, prefetcher);
	int64_t left_ms = MAX(p->look_ms - clock_mono_ms(), 0);
	pthread_mutex_lock(&p->lock);
	bool wanted = p->wanted, back = has_back_locked(p);
	pthread_mutex_unlock(&p->lock);
	if (!wanted && !back && left_ms > 0)
		return left_ms;
	if (wanted)
		fetch(p);
	if (back) {
		put_back(p, &p->back, false);
		put_back(p, &p->aside, true);
	}
	if (clock_mono_ms() >= p->look_ms)
		look_at_next(p);
	return 0;
}

/* The source */

static size_t take_at_hand_locked(struct key_pool *p, struct source_key *ret, size_t n)
{
	size_t count = key_row_take(&p->hand, ret, n);
	size_t again = (size_t)MIN(p->pending, count);
	p->pending -= again;
	p->taken += count - again;
	if (p->hand.count <= p->batch / 2 && !p->wanted &&
	    (p->dry_ms == 0 || clock_mono_ms() - p->dry_ms >= DRY_MS)) {
		p->wanted = true;
		p->wanted_ms = clock_mono_ms();
		task_wake(&p->prefetcher);
	}
	return count;
}

/* False: it takes too long. A fetch that is late already is not waited for anew. */
static bool wait_for_fetch_locked(struct key_pool *p, int64_t end_ms)
{
	int64_t left_ms = MIN(end_ms, p->wanted_ms + PATIENCE_MS) - clock_mono_ms();
	if (left_ms <= 0)
		return false;
	struct timespec at = clock_mono_after((uint64_t)left_ms);
	cond_wait_until(&p->arrived, &p->lock, &at);
	return true;
}

static int why_none_locked(const struct key_pool *p, struct err *e)
{
	if (p->wanted)
		return err_set(e, ERR_LIMIT, "no key shard has answered within %d ms; try again",
		               PATIENCE_MS);
	if (p->dry_ms != 0)
		return err_set(e, p->dry_code, "%s", p->dry_why.text);
	return err_set(e, ERR_LIMIT, "others took all keys that were at hand; try again");
}

static int pool_take(struct key_source *base, struct source_key *ret, size_t n, size_t *ret_count,
                     struct err *e)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	int64_t end_ms = clock_mono_ms() + PATIENCE_MS;
	pthread_mutex_lock(&p->lock);
	do { /* others may be faster */
		*ret_count = take_at_hand_locked(p, ret, n);
	} while (*ret_count == 0 && p->wanted && wait_for_fetch_locked(p, end_ms));
	int r = *ret_count > 0 ? 0 : why_none_locked(p, e);
	pthread_mutex_unlock(&p->lock);
	return r;
}

static void pool_give_back(struct key_source *base, const struct source_key *keys, size_t n, bool later)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	pthread_mutex_lock(&p->lock);
	/* Behind those at hand, with room left for what is being fetched. */
	size_t room = p->hand.room - p->batch - p->share_max, at_hand = 0;
	if (!later && p->hand.count < room)
		at_hand = key_row_put(&p->hand, keys, MIN(n, room - p->hand.count));
	size_t put = at_hand + key_row_put(later ? &p->aside : &p->back, keys + at_hand, n - at_hand);
	p->pending += put;
	p->later_came |= later;
	note_no_room_locked(p, n - put);
	if (has_back_locked(p))
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
	    .available = p->hand.count + p->back.count,
	    .aside = p->aside.count,
	    .taken = p->taken,
	    .shards = p->shard_count,
	};
	pthread_mutex_unlock(&p->lock);
	stats.refilled = atomic_load(&p->refilled);
	stats.lost = atomic_load(&p->lost);
	for (size_t i = 0; i < p->shard_count; i++) {
		stats.available += atomic_load(&p->shards[i].left);
		stats.aside += atomic_load(&p->shards[i].aside);
		stats.shards_unhealthy += key_list_is_failing(p->shards[i].list) ? 1 : 0;
	}
	return stats;
}

/* At the end. What finds all shards away is lost. */
static void put_back_all(struct key_pool *p, struct key_row *row, bool aside)
{
	size_t lost = 0;
	for (size_t n; (n = key_row_take(row, p->moving, KEY_LIST_KEYS_MAX)) > 0;)
		lost += put_to_shard(p, n, aside) < 0 ? n : 0;
	if (lost > 0)
		log_warn("keys", "%zu keys that were at hand are lost: no shard takes them", lost);
}

static void pool_free(struct key_source *base)
{
	struct key_pool *p = container_of(base, struct key_pool, base);
	task_stop(&p->prefetcher);
	put_back_all(p, &p->hand, false);
	put_back_all(p, &p->back, false);
	put_back_all(p, &p->aside, true);
	key_lists_free(p->lists, p->shard_count);
	pthread_cond_destroy(&p->arrived);
	pthread_mutex_destroy(&p->lock);
	arena_release(&p->arena);
	free(p);
}

static const struct key_source_ops pool_ops = {
    .free = pool_free,
    .take = pool_take,
    .give_back = pool_give_back,
    .stats = pool_stats,
};

static bool row_make(struct key_row *row, size_t room, struct arena *arena)
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
	/* half of a batch, a fetched one, and what comes back */
	bool made = row_make(&p->hand, 2 * p->batch + fetched, &p->arena) &&
	            row_make(&p->back, BACK_MAX, &p->arena) && row_make(&p->aside, BACK_MAX, &p->arena);
	p->shards = arena_zalloc(&p->arena, p->shard_count * sizeof(*p->shards));
	p->order = arena_zalloc(&p->arena, p->shard_count * sizeof(*p->order));
	p->moving = arena_zalloc(&p->arena, MAX(fetched, (size_t)KEY_LIST_KEYS_MAX) * sizeof(*p->moving));
	if (!made || !p->shards || !p->order || !p->moving)
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
	p->share = p->share_min = MAX(batch / ASIDE_SHARE, (size_t)1);
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
