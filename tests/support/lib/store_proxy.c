#include "lib/store_proxy.h"

static struct store_proxy *self(struct store *base)
{
	return container_of(base, struct store_proxy, base);
}

static bool away(struct store *base)
{
	return atomic_load(&self(base)->is_away);
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
	};
	p->base.ops = &p->ops;
}
