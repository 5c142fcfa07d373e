/*
 * Leases on Redis: a key with a token and an expiry, and beside it the last fencing number.
 *
 * Redis may lose acknowledged data: by a restart without persistence, or when Sentinel promotes a lagging
 * replica. Then a second holder is possible until the first one's next renewal, a third of the lifetime.
 * The fencing number is the server's time in microseconds, or the last number plus one if that is larger.
 * So it grows even if the stored number was lost, unless clocks were set back by more than the outage.
 *
 * A holder measures the lifetime from before the renewal was sent, minus a tenth for clock drift. What
 * could not be delivered (a release, or the end of a take whose answer was lost) is retried by the renewal
 * task until the lease has expired.
 */
#include "base/list.h"
#include "client/redis_ring.h"
#include "lease/backends.h"
#include "os/clock.h"
#include "os/task.h"

#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	TOKEN_BYTES = 16,
	TOKEN_TEXT_BYTES = 2 * TOKEN_BYTES + 1,
	KEY_TEXT_BYTES = 96,
	NAME_BYTES_MAX = 64,
};

#define NEVER_MS INT64_MAX

static const char take_script[] = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end\n"
                                  "local t = redis.call('TIME')\n"
                                  "local f = t[1] * 1000000 + t[2]\n"
                                  "f = math.max(f, (tonumber(redis.call('GET', KEYS[2])) or 0) + 1)\n"
                                  "redis.call('SET', KEYS[2], string.format('%.0f', f))\n"
                                  "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n"
                                  "return f\n";

static const char renew_script[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
                                   "return redis.call('PEXPIRE', KEYS[1], ARGV[2])\n";

static const char release_script[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
                                     "return redis.call('DEL', KEYS[1])\n";

struct leases_redis {
	struct leases base;
	struct redis *redis;
	struct task task;

	pthread_mutex_t lock; /* guards all below; not held during calls to Redis */
	pthread_cond_t served_one;
	struct list leases;
	struct lease *served; /* the task uses it: do not free */
};

struct lease {
	struct list link;
	char key[KEY_TEXT_BYTES];
	char fence_key[KEY_TEXT_BYTES];
	char token[TOKEN_TEXT_BYTES];
	uint64_t life_ms;
	uint64_t fence;
	_Atomic int64_t held_until_ms; /* 0: lost */
	/* under the lock: */
	int64_t due_ms;     /* next action of the task */
	int64_t expired_ms; /* releasing: when it expires by itself */
	bool leaving;
};

static struct leases_redis *self(struct leases *base)
{
	return container_of(base, struct leases_redis, base);
}

/* --- the server --- */

/* Runs a script for the lease: its number, ERR_UNAVAILABLE if nothing was sent, or ERR_UNCERTAIN. */
static int run_script(struct leases_redis *l, const struct lease *lease, const char *script, int64_t *ret)
{
	char life[24];
	struct redis_reply reply;
	struct redis_conn *c = redis_take(l->redis, NULL);
	if (!c)
		return ERR_UNAVAILABLE;
	snprintf(life, sizeof(life), "%llu", (unsigned long long)lease->life_ms);
	int r = redis_ask(c,
	                  REDIS_ARGS(STR("EVAL"), str_of(script), STR("2"), str_of(lease->key),
	                             str_of(lease->fence_key), str_of(lease->token), str_of(life)),
	                  &reply);
	bool known = r == 0 && reply.type == REDIS_INT;
	if (known)
		*ret = reply.number;
	redis_return(c);
	return known ? 0 : ERR_UNCERTAIN;
}

/* --- holding --- */

static bool redis_is_held(const struct lease *base)
{
	struct lease *lease = (struct lease *)base;
	int64_t until_ms = atomic_load_explicit(&lease->held_until_ms, memory_order_acquire);
	/* The first to see the expiry makes it permanent; otherwise a late renewal would revive it. */
	while (until_ms != 0 && clock_mono_ms() >= until_ms) {
		if (atomic_compare_exchange_weak(&lease->held_until_ms, &until_ms, 0))
			until_ms = 0;
	}
	return until_ms != 0;
}

static uint64_t redis_fence(const struct lease *lease)
{
	return lease->fence;
}

/* Measured from before the call. */
static int64_t held_until(const struct lease *lease, int64_t sent_ms)
{
	return sent_ms + (int64_t)(lease->life_ms - lease->life_ms / 10);
}

static void extend(struct lease *lease, int64_t sent_ms)
{
	int64_t until_ms = atomic_load_explicit(&lease->held_until_ms, memory_order_acquire);
	while (until_ms != 0 && clock_mono_ms() < until_ms) {
		if (atomic_compare_exchange_weak(&lease->held_until_ms, &until_ms,
		                                 held_until(lease, sent_ms)))
			return;
	}
}

/* --- the task --- */

static int64_t soon(const struct lease *lease)
{
	return clock_mono_ms() + (int64_t)MAX(lease->life_ms / 12, 10);
}

/* Returns the next due time. */
static int64_t renew(struct leases_redis *l, struct lease *lease)
{
	int64_t renewed = 0, sent_ms = clock_mono_ms();
	if (!redis_is_held(lease))
		return NEVER_MS;
	if (run_script(l, lease, renew_script, &renewed) != 0)
		return soon(lease);
	if (!renewed) {
		atomic_store_explicit(&lease->held_until_ms, 0, memory_order_release);
		return NEVER_MS;
	}
	extend(lease, sent_ms);
	return sent_ms + (int64_t)lease->life_ms / 3;
}

static int64_t serve(struct task *t)
{
	struct leases_redis *l = container_of(t, struct leases_redis, task);
	pthread_mutex_lock(&l->lock);
	struct lease *first = NULL;
	for (struct list *i = l->leases.next; i != &l->leases; i = i->next) {
		struct lease *lease = container_of(i, struct lease, link);
		if (!first || lease->due_ms < first->due_ms)
			first = lease;
	}
	struct lease *lease = first && first->due_ms != NEVER_MS ? first : NULL;
	int64_t left_ms = lease ? MAX(lease->due_ms - clock_mono_ms(), 0) : TASK_ON_WAKE;
	if (left_ms == 0) {
		bool leaving = lease->leaving, gone = false;
		int64_t due_ms, removed;
		l->served = lease;
		pthread_mutex_unlock(&l->lock);
		if (leaving) {
			gone = run_script(l, lease, release_script, &removed) == 0 ||
			       clock_mono_ms() >= lease->expired_ms;
			due_ms = soon(lease);
		} else {
			due_ms = renew(l, lease);
		}
		pthread_mutex_lock(&l->lock);
		l->served = NULL;
		lease->due_ms = due_ms;
		if (gone) {
			list_remove(&lease->link);
			free(lease);
		}
		pthread_cond_broadcast(&l->served_one);
	}
	pthread_mutex_unlock(&l->lock);
	return left_ms;
}

/* --- operations --- */

static bool is_name(struct str name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_:.";
	for (size_t i = 0; i < name.len; i++) {
		if (!memchr(allowed, name.ptr[i], sizeof(allowed) - 1))
			return false;
	}
	return name.len > 0 && name.len <= NAME_BYTES_MAX;
}

static struct lease *lease_new(struct str name, uint64_t life_ms)
{
	struct lease *lease = calloc(1, sizeof(*lease));
	if (!lease)
		return NULL;
	unsigned char random[TOKEN_BYTES];
	randombytes_buf(random, sizeof(random));
	sodium_bin2hex(lease->token, sizeof(lease->token), random, sizeof(random));
	snprintf(lease->key, sizeof(lease->key), "curt:lease:%.*s", STR_ARG(name));
	snprintf(lease->fence_key, sizeof(lease->fence_key), "curt:fence:%.*s", STR_ARG(name));
	lease->life_ms = life_ms;
	lease->due_ms = NEVER_MS;
	list_init(&lease->link);
	return lease;
}

/* Passes the lease to the task, to renew or to release it. */
static void hand_over(struct leases_redis *l, struct lease *lease, bool leaving)
{
	pthread_mutex_lock(&l->lock);
	lease->leaving = leaving;
	lease->expired_ms = clock_mono_ms() + (int64_t)lease->life_ms;
	lease->due_ms = leaving ? soon(lease) : clock_mono_ms() + (int64_t)lease->life_ms / 3;
	list_push(&l->leases, &lease->link);
	pthread_mutex_unlock(&l->lock);
	task_wake(&l->task);
}

static int redis_lease_take(struct leases *base, struct str name, uint64_t life_ms, struct lease **ret)
{
	struct leases_redis *l = self(base);
	ASSERT(is_name(name) && life_ms > 0);
	struct lease *lease = lease_new(name, life_ms);
	if (!lease)
		return ERR_NOMEM;
	int64_t fence = 0, sent_ms = clock_mono_ms();
	int r = run_script(l, lease, take_script, &fence);
	if (r == ERR_UNCERTAIN) {
		hand_over(l, lease, true); /* it may be ours, but nobody will use it */
		return ERR_UNAVAILABLE;
	}
	if (r || fence <= 0) {
		free(lease);
		return r ? r : ERR_BUSY;
	}
	lease->fence = (uint64_t)fence;
	atomic_init(&lease->held_until_ms, held_until(lease, sent_ms));
	hand_over(l, lease, false);
	*ret = lease;
	return 0;
}

static void redis_release(struct leases *base, struct lease *lease)
{
	struct leases_redis *l = self(base);
	atomic_store_explicit(&lease->held_until_ms, 0, memory_order_release);
	pthread_mutex_lock(&l->lock);
	while (l->served == lease)
		pthread_cond_wait(&l->served_one, &l->lock);
	list_remove(&lease->link);
	pthread_mutex_unlock(&l->lock);
	int64_t removed;
	if (run_script(l, lease, release_script, &removed) == 0)
		free(lease);
	else
		hand_over(l, lease, true);
}

static int redis_lease_ping(struct leases *base, struct err *e)
{
	return redis_ping(self(base)->redis, e);
}

static void redis_leases_free(struct leases *base)
{
	struct leases_redis *l = self(base);
	task_stop(&l->task);
	struct list *node;
	while ((node = list_pop(&l->leases))) {
		struct lease *lease = container_of(node, struct lease, link);
		ASSERT(lease->leaving);
		free(lease);
	}
	pthread_cond_destroy(&l->served_one);
	pthread_mutex_destroy(&l->lock);
	redis_free(l->redis);
	free(l);
}

static const struct leases_ops redis_ops = {
    .free = redis_leases_free,
    .take = redis_lease_take,
    .is_held = redis_is_held,
    .fence = redis_fence,
    .release = redis_release,
    .ping = redis_lease_ping,
};

/* Several servers could each grant the same lease. */
static int refuse_several(const char *url, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct str *each;
	size_t count;
	int r = redis_urls_cut(str_of(url), &arena, &each, &count, e);
	if (r == 0 && count > 1)
		r = err_set(e, ERR_INVALID,
		            "it lists several Redis servers; use one: redis://HOST:PORT, or a primary "
		            "with its replicas as redis+sentinel://HOST:PORT,HOST:PORT/NAME");
	return r;
}

int leases_redis_open(const char *url, struct leases **ret, struct err *e)
{
	int refused = refuse_several(url, e);
	if (refused < 0)
		return refused;
	struct leases_redis *l = calloc(1, sizeof(*l));
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory");
	l->base.ops = &redis_ops;
	list_init(&l->leases);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->served_one, NULL);
	int r = redis_new(str_of(url), &l->redis, e);
	if (r == 0)
		r = task_start(&l->task, &(struct task_config){.name = "leases", .run = serve}, e);
	if (r) {
		redis_leases_free(&l->base);
		return r;
	}
	*ret = &l->base;
	return 0;
}
