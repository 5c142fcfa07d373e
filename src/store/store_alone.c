/*
 * A store that others may make one of several while we have it alone. Calls go straight to it, under the
 * epoch that it had when it was last seen alone, or PART_ALONE while it has never been in a ring; what
 * another epoch means is found out before anything else is done.
 */
#include "store/backends.h"
#include "store/part.h"
#include "store/ring_plan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { TRIES_MAX = 5 };

struct store_alone {
	struct store base;
	struct store_ops ops; /* without what the inner one cannot do */
	struct store *inner;
	pthread_mutex_t checking; /* guards `why` */
	_Atomic uint64_t epoch;   /* PART_ALONE: it was never in a ring */
	atomic_bool is_lost;      /* it is one of several: nothing is right any more */
	struct err why;
};

static struct store_alone *self(struct store *base)
{
	return container_of(base, struct store_alone, base);
}

static int alone_check(struct store *store, uint64_t *ret_epoch, struct err *e)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct ring_plan plan = {.epoch = 0};
	struct str text = STR_NULL;
	uint64_t epoch = 0;
	int r = store->ops->part->ring_get(store, &arena, &epoch, &text);
	if (r == 0 && epoch > 0)
		r = ring_plan_read(text, epoch, &arena, &plan);
	if (r != 0)
		return err_set(e, r, "cannot read whether the database is part of a ring (%s)", err_name(r));
	*ret_epoch = epoch == 0 ? PART_ALONE : epoch;
	if (epoch == 0 || (plan.members.count == 1 && plan.target.count == 0))
		return 0;
	const struct plan_parts *parts = plan.target.count > 0 ? &plan.target : &plan.members;
	return err_set(
	    e, ERR_INVALID,
	    "the database is one of a ring of %zu, with %.*s and %.*s in it: store.url must list all of "
	    "them, separated by commas",
	    parts->count, STR_ARG(parts->at[0].address), STR_ARG(parts->at[parts->count - 1].address));
}

/* 0 when it is alone, as far as can be seen. */
static int check_now(struct store_alone *s)
{
	uint64_t epoch;
	pthread_mutex_lock(&s->checking);
	int r = atomic_load(&s->is_lost) ? ERR_INVALID : alone_check(s->inner, &epoch, &s->why);
	if (r == 0)
		atomic_store(&s->epoch, epoch);
	if (r == ERR_INVALID)
		atomic_store(&s->is_lost, true);
	pthread_mutex_unlock(&s->checking);
	return r == 0 ? 0 : ERR_UNAVAILABLE;
}

static int enter(const struct store_alone *s)
{
	return atomic_load(&s->is_lost) ? ERR_UNAVAILABLE : 0;
}

/* --- links, under the epoch --- */

static int alone_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	struct store_alone *s = self(base);
	int r = enter(s);
	for (int tries = 0; r == 0 && tries < TRIES_MAX; tries++) {
		int done = s->inner->ops->part->lookup(s->inner, atomic_load(&s->epoch), reads, n);
		if (done != ERR_CONFLICT)
			return done;
		r = check_now(s);
	}
	return ERR_UNAVAILABLE;
}

static int alone_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_alone *s = self(base);
	int r = enter(s);
	for (int tries = 0; r == 0 && tries < TRIES_MAX; tries++) {
		int done = s->inner->ops->part->apply_whole(s->inner, atomic_load(&s->epoch), writes, n);
		if (done != ERR_CONFLICT)
			return done;
		r = check_now(s);
	}
	return ERR_UNAVAILABLE;
}

/* These carry no epoch: it is asked afterwards whether it was alone. */
static int confirm(struct store_alone *s, int r)
{
	CLEANUP(arena_release) struct arena arena = {0};
	uint64_t epoch = 0;
	struct str text = STR_NULL;
	if (r == 0)
		r = s->inner->ops->part->ring_get(s->inner, &arena, &epoch, &text);
	return r == 0 && epoch != part_epoch_number(atomic_load(&s->epoch)) ? check_now(s) : r;
}

static int alone_list(struct store *base, struct store_list *page)
{
	struct store_alone *s = self(base);
	int r = enter(s);
	return r ? r : confirm(s, store_list(s->inner, page));
}

static int alone_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	struct store_alone *s = self(base);
	int r = enter(s);
	return r ? r : confirm(s, store_tagged(s->inner, tag, max, ret_ids, ret_count));
}

static int alone_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct store_alone *s = self(base);
	int r = enter(s);
	return r ? r : confirm(s, store_set_clicks(s->inner, node, counts, n));
}

static int alone_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                           size_t *ret_count)
{
	struct store_alone *s = self(base);
	int r = enter(s);
	return r ? r : confirm(s, store_permitted(s->inner, link, arena, ret, ret_count));
}

static int alone_over(struct store *base, struct store_over *over)
{
	struct store_alone *s = self(base);
	int r = enter(s);
	return r ? r : confirm(s, store_over(s->inner, over));
}

/* What was claimed as a move began is lost, never given twice. */
static int alone_claim(struct store *base, int64_t now_ms, uint64_t rest_ms, size_t max, uint64_t *ret_ids,
                       size_t *ret_count)
{
	struct store_alone *s = self(base);
	int r = enter(s);
	return r ? r : confirm(s, s->inner->ops->claim(s->inner, now_ms, rest_ms, max, ret_ids, ret_count));
}

/* --- what does not move --- */

static int alone_users(struct store *base, struct store_users *page)
{
	return store_users(self(base)->inner, page);
}

static int alone_keys(struct store *base, struct store_keys *page)
{
	return store_keys(self(base)->inner, page);
}

static int alone_accounts(struct store *base, struct store_account *reads, size_t n, struct arena *arena)
{
	return store_accounts(self(base)->inner, reads, n, arena);
}

static int alone_lease(struct store *base, struct str counter, uint64_t count, uint64_t *ret_first)
{
	return store_lease(self(base)->inner, counter, count, ret_first);
}

static int alone_constant(struct store *base, struct str name, void *value, size_t len)
{
	return store_constant(self(base)->inner, name, value, len);
}

static int alone_version(struct store *base, uint64_t *ret)
{
	struct store *inner = self(base)->inner;
	return inner->ops->version(inner, ret);
}

static int alone_forget(struct store *base, struct str from, struct str before)
{
	struct store *inner = self(base)->inner;
	return inner->ops->forget(inner, from, before);
}

static int alone_ping(struct store *base, struct err *e)
{
	struct store_alone *s = self(base);
	(void)check_now(s);
	if (!atomic_load(&s->is_lost))
		return store_ping(s->inner, e);
	pthread_mutex_lock(&s->checking);
	int r = err_set(e, ERR_UNAVAILABLE, "%s", s->why.text);
	pthread_mutex_unlock(&s->checking);
	return r;
}

static void alone_free(struct store *base)
{
	struct store_alone *s = self(base);
	store_free(s->inner);
	pthread_mutex_destroy(&s->checking);
	free(s);
}

static int alone_feed(struct store *base, bool accounts, struct feed_page *page)
{
	struct store_alone *s = self(base);
	return s->inner->ops->feed(s->inner, accounts, page);
}

static int alone_feed_prune(struct store *base, int64_t until_ms, size_t *ret)
{
	struct store_alone *s = self(base);
	return s->inner->ops->feed_prune(s->inner, until_ms, ret);
}

static const struct store_ops alone_ops = {
    .free = alone_free,
    .lookup = alone_lookup,
    .apply = alone_apply,
    .list = alone_list,
    .tagged = alone_tagged,
    .set_clicks = alone_set_clicks,
    .permitted = alone_permitted,
    .over = alone_over,
    .users = alone_users,
    .keys = alone_keys,
    .accounts = alone_accounts,
    .lease = alone_lease,
    .constant = alone_constant,
    .feed = alone_feed,
    .feed_prune = alone_feed_prune,
    .ping = alone_ping,
};

int store_alone_open(struct store *inner, struct store **ret, struct err *e)
{
	uint64_t epoch;
	int r = alone_check(inner, &epoch, e);
	if (r != 0)
		return r;
	struct store_alone *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->inner = inner;
	s->ops = alone_ops;
	s->ops.claim = inner->ops->claim ? alone_claim : NULL;
	s->ops.version = inner->ops->version ? alone_version : NULL;
	s->ops.forget = inner->ops->forget ? alone_forget : NULL;
	s->base.ops = &s->ops;
	pthread_mutex_init(&s->checking, NULL);
	atomic_init(&s->epoch, epoch);
	*ret = &s->base;
	return 0;
}
