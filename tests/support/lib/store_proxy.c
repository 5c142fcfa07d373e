#include "lib/store_proxy.h"

#include "lib/until.h"

#include <stdlib.h>
#include <time.h>

static struct store_proxy *self(struct store *base)
{
	return container_of(base, struct store_proxy, base);
}

static bool away(struct store *base)
{
	return atomic_load(&self(base)->is_away);
}

static const struct store_part_ops *part_of(struct store *base)
{
	return self(base)->inner->ops->part;
}

static void pause_here(struct store *base)
{
	static _Thread_local unsigned seed;
	unsigned max_us = atomic_load(&self(base)->pause_us_max);
	if (seed == 0)
		seed = (unsigned)(uintptr_t)&seed;
	unsigned pause_us = max_us ? (unsigned)rand_r(&seed) % (4 * max_us) : 0;
	if (pause_us > 0 && pause_us < max_us) /* one time in four */
		nanosleep(&(struct timespec){.tv_nsec = pause_us * 1000L}, NULL);
}

static void proxy_free(struct store *base)
{
	(void)base;
}

static int proxy_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	return away(base) ? ERR_UNAVAILABLE : store_lookup(self(base)->inner, reads, n);
}

static int proxy_apply(struct store *base, struct store_write *writes, size_t n)
{
	return away(base) ? ERR_UNAVAILABLE : store_apply(self(base)->inner, writes, n);
}

static int proxy_list(struct store *base, struct store_list *page)
{
	pause_here(base);
	return away(base) ? ERR_UNAVAILABLE : store_list(self(base)->inner, page);
}

static int proxy_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	return away(base) ? ERR_UNAVAILABLE : store_tagged(self(base)->inner, tag, max, ret_ids, ret_count);
}

static int proxy_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	return away(base) ? ERR_UNAVAILABLE : store_set_clicks(self(base)->inner, node, counts, n);
}

static int proxy_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                           size_t *ret_count)
{
	return away(base) ? ERR_UNAVAILABLE : store_permitted(self(base)->inner, link, arena, ret, ret_count);
}

static int proxy_over(struct store *base, struct store_over *over)
{
	return away(base) ? ERR_UNAVAILABLE : store_over(self(base)->inner, over);
}

static int proxy_users(struct store *base, struct store_users *page)
{
	return away(base) ? ERR_UNAVAILABLE : store_users(self(base)->inner, page);
}

static int proxy_keys(struct store *base, struct store_keys *page)
{
	return away(base) ? ERR_UNAVAILABLE : store_keys(self(base)->inner, page);
}

static int proxy_accounts(struct store *base, struct store_account *reads, size_t n, struct arena *arena)
{
	return away(base) ? ERR_UNAVAILABLE : store_accounts(self(base)->inner, reads, n, arena);
}

static int proxy_lease(struct store *base, struct str counter, uint64_t count, uint64_t *ret_first)
{
	return away(base) ? ERR_UNAVAILABLE : store_lease(self(base)->inner, counter, count, ret_first);
}

static int proxy_constant(struct store *base, struct str name, void *value, size_t len)
{
	return away(base) ? ERR_UNAVAILABLE : store_constant(self(base)->inner, name, value, len);
}

static int proxy_ping(struct store *base, struct err *e)
{
	return away(base) ? err_set(e, ERR_UNAVAILABLE, "it is away") : store_ping(self(base)->inner, e);
}

/* --- as a part --- */

static int part_lookup(struct store *base, uint64_t epoch, struct store_lookup *reads, size_t n)
{
	if (away(base) || atomic_load(&self(base)->loses_lookups))
		return ERR_UNAVAILABLE;
	atomic_fetch_add(&self(base)->lookups, 1);
	for (size_t i = 0; i < n; i++)
		atomic_fetch_add(&self(base)->fresh, reads[i].fresh);
	pause_here(base);
	int r = part_of(base)->lookup(self(base)->inner, epoch, reads, n);
	for (size_t i = 0; i < n; i++)
		reads[i].old = atomic_load(&self(base)->is_old);
	pause_here(base);
	return r;
}

static int part_apply(struct store *base, uint64_t epoch, struct store_write *writes, size_t n)
{
	if (away(base))
		return ERR_UNAVAILABLE;
	pause_here(base);
	int r = part_of(base)->apply(self(base)->inner, epoch, writes, n);
	return r == 0 && atomic_load(&self(base)->loses_commits) ? ERR_UNCERTAIN : r;
}

static int part_apply_whole(struct store *base, uint64_t epoch, struct store_write *writes, size_t n)
{
	return away(base) ? ERR_UNAVAILABLE : part_of(base)->apply_whole(self(base)->inner, epoch, writes, n);
}

static int part_ring_get(struct store *base, struct arena *arena, uint64_t *ret_epoch, struct str *ret_text)
{
	int r = away(base) ? ERR_UNAVAILABLE
	                   : part_of(base)->ring_get(self(base)->inner, arena, ret_epoch, ret_text);
	void (*then)(void) = atomic_load(&self(base)->ring_was_asked);
	if (then)
		then();
	return r;
}

/* 0 when it may be set. */
static int ring_set_begin(struct store *base)
{
	pause_here(base);
	for (int64_t end_ms = until_now_ms() + UNTIL_MS;
	     atomic_load(&self(base)->holds_rings) && until_now_ms() < end_ms;)
		until_pause();
	if (atomic_load(&self(base)->refuses_rings))
		return ERR_BUSY;
	return away(base) ? ERR_UNAVAILABLE : 0;
}

static int part_ring_set(struct store *base, uint64_t epoch, struct str text)
{
	int r = ring_set_begin(base);
	return r ? r : part_of(base)->ring_set(self(base)->inner, epoch, text);
}

static int part_ring_set_whole(struct store *base, uint64_t epoch, struct str text)
{
	int r = ring_set_begin(base);
	return r ? r : part_of(base)->ring_set_whole(self(base)->inner, epoch, text);
}

static int part_link_id_last(struct store *base, uint64_t *ret)
{
	return away(base) ? ERR_UNAVAILABLE : part_of(base)->link_id_last(self(base)->inner, ret);
}

static int part_counter(struct store *base, struct str counter, uint64_t *ret_next)
{
	return away(base) ? ERR_UNAVAILABLE : part_of(base)->counter(self(base)->inner, counter, ret_next);
}

static int part_route(struct store *base, struct part_route *routes, size_t n)
{
	return away(base) ? ERR_UNAVAILABLE : part_of(base)->route(self(base)->inner, routes, n);
}

static int part_route_drop(struct store *base, const struct part_route *route)
{
	return away(base) ? ERR_UNAVAILABLE : part_of(base)->route_drop(self(base)->inner, route);
}

static int part_keys_after(struct store *base, struct str after, size_t max, struct arena *arena,
                           struct str *ret, size_t *ret_count)
{
	return away(base) ? ERR_UNAVAILABLE
	                  : part_of(base)->keys_after(self(base)->inner, after, max, arena, ret, ret_count);
}

static int part_move_begin(struct store *base, uint64_t epoch, const struct str *keys, size_t n,
                           struct part_move **ret)
{
	if (away(base))
		return ERR_UNAVAILABLE;
	pause_here(base);
	atomic_fetch_add(&self(base)->moves, 1);
	return part_of(base)->move_begin(self(base)->inner, epoch, keys, n, ret);
}

static int part_move_put(struct store *base, struct part_move *move)
{
	if (away(base))
		return ERR_UNAVAILABLE;
	pause_here(base);
	int r = part_of(base)->move_put(self(base)->inner, move);
	pause_here(base);
	return r;
}

static int part_move_end(struct store *base, struct part_move *move, bool done)
{
	bool dies = away(base) || atomic_load(&self(base)->forgets_moves);
	pause_here(base);
	int r = part_of(base)->move_end(self(base)->inner, move, done && !dies);
	return dies ? ERR_UNAVAILABLE : r;
}

void store_proxy_behave(struct store_proxy *p)
{
	atomic_bool *const faults[] = {&p->is_away,       &p->loses_commits, &p->forgets_moves, &p->is_old,
	                               &p->loses_lookups, &p->holds_rings,   &p->refuses_rings};
	for (size_t i = 0; i < ARRAY_LEN(faults); i++)
		atomic_store(faults[i], false);
	atomic_store(&p->ring_was_asked, NULL);
}

void store_proxy_init(struct store_proxy *p, struct store *inner)
{
	*p = (struct store_proxy){
	    .inner = inner,
	    .ops = {.free = proxy_free,
	            .lookup = proxy_lookup,
	            .apply = proxy_apply,
	            .list = proxy_list,
	            .tagged = proxy_tagged,
	            .set_clicks = proxy_set_clicks,
	            .permitted = proxy_permitted,
	            .over = proxy_over,
	            .users = proxy_users,
	            .keys = proxy_keys,
	            .accounts = proxy_accounts,
	            .lease = proxy_lease,
	            .constant = proxy_constant,
	            .ping = proxy_ping},
	    .part_ops = {.lookup = part_lookup,
	                 .apply = part_apply,
	                 .apply_whole = part_apply_whole,
	                 .ring_get = part_ring_get,
	                 .ring_set = part_ring_set,
	                 .ring_set_whole = part_ring_set_whole,
	                 .counter = part_counter,
	                 .link_id_last = part_link_id_last,
	                 .route = part_route,
	                 .route_drop = part_route_drop,
	                 .cursor = inner->ops->part->cursor,
	                 .before = inner->ops->part->before,
	                 .keys_after = part_keys_after,
	                 .move_begin = part_move_begin,
	                 .move_put = part_move_put,
	                 .move_end = part_move_end},
	};
	p->ops.part = &p->part_ops;
	p->base.ops = &p->ops;
}
