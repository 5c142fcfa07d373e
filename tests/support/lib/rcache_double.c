#include "lib/rcache_double.h"

#include <stdlib.h>

static size_t find(struct rcache_double *d, struct str key)
{
	size_t i = 0;
	while (i < d->count && !str_eq(str_of(d->slots[i].key), key))
		i++;
	return i;
}

static size_t find_or_add(struct rcache_double *d, struct str key)
{
	size_t i = find(d, key);
	if (i == d->count) {
		ASSERT(d->count < ARRAY_LEN(d->slots) && key.len < sizeof(d->slots[i].key));
		memset(&d->slots[i], 0, sizeof(d->slots[i]));
		memcpy(d->slots[i].key, key.ptr, key.len);
		d->count++;
	}
	return i;
}

static void empty(struct rcache_double *d, size_t i)
{
	free((char *)d->slots[i].value.ptr);
	d->slots[i].value = STR_NULL;
}

static void set(struct rcache_double *d, size_t i, struct str value, uint64_t life_ms)
{
	char *copy = malloc(value.len + 1);
	ASSERT(copy);
	memcpy(copy, value.ptr, value.len);
	empty(d, i);
	d->slots[i].value = str_n(copy, value.len);
	d->slots[i].life_ms = life_ms;
}

static struct rcache_double *self(struct rcache *r)
{
	return container_of(r, struct rcache_double, base);
}

static void get(struct rcache *r, struct rcache_get *gets, size_t n)
{
	struct rcache_double *d = self(r);
	d->gets++;
	for (size_t i = 0; i < n; i++) {
		size_t at = find(d, gets[i].key);
		gets[i].state = RCACHE_MISS;
		if (d->is_sick || at == d->count)
			continue;
		if (d->slots[at].is_mark)
			gets[i].state = RCACHE_CHANGED;
		else if (d->slots[at].value.ptr) {
			gets[i].state = RCACHE_HIT;
			gets[i].value = arena_str(gets[i].arena, d->slots[at].value);
		}
	}
	if (d->on_get)
		d->on_get(d->ctx);
}

static void fill(struct rcache *r, const struct rcache_fill *fills, size_t n, int64_t began_ms)
{
	struct rcache_double *d = self(r);
	(void)began_ms;
	d->fills++;
	for (size_t i = 0; !d->is_sick && i < n; i++) {
		size_t at = find_or_add(d, fills[i].key);
		if (!d->slots[at].is_mark && !d->slots[at].value.ptr)
			set(d, at, fills[i].value, fills[i].life_ms);
	}
}

static void change(struct rcache *r, const struct str *keys, size_t n)
{
	struct rcache_double *d = self(r);
	d->changes++;
	if (d->on_change)
		d->on_change(d->ctx);
	for (size_t i = 0; i < n; i++) {
		size_t at = find_or_add(d, keys[i]);
		empty(d, at);
		d->slots[at].is_mark = true;
	}
}

static void tell(struct rcache *r, struct str topic)
{
	(void)topic;
	self(r)->tells++;
}

static const struct rcache_ops ops = {.get = get, .fill = fill, .change = change, .tell = tell};

void rcache_double_init(struct rcache_double *d)
{
	memset(d, 0, sizeof(*d));
	d->base.ops = &ops;
}

void rcache_double_release(struct rcache_double *d)
{
	for (size_t i = 0; i < d->count; i++)
		empty(d, i);
	d->count = 0;
}

struct str rcache_double_value(struct rcache_double *d, struct str key, uint64_t *ret_life_ms)
{
	size_t at = find(d, key);
	if (at == d->count)
		return STR_NULL;
	if (ret_life_ms)
		*ret_life_ms = d->slots[at].life_ms;
	return d->slots[at].value;
}

void rcache_double_put(struct rcache_double *d, struct str key, struct str value)
{
	set(d, find_or_add(d, key), value, 1);
}

bool rcache_double_is_marked(struct rcache_double *d, struct str key)
{
	size_t at = find(d, key);
	return at < d->count && d->slots[at].is_mark;
}

void rcache_double_settle(struct rcache_double *d)
{
	for (size_t i = 0; i < d->count; i++)
		d->slots[i].is_mark = false;
}
