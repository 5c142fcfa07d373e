#include "store/memory.h"

#include <stdlib.h>

size_t table_position(const struct table *t, const void *like)
{
	size_t low = 0, high = t->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (t->order(t->items[middle], like) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void *table_find(const struct table *t, const void *like)
{
	size_t at = table_position(t, like);
	return at < t->count && t->order(t->items[at], like) == 0 ? t->items[at] : NULL;
}

bool table_reserve(struct table *t)
{
	if (t->count < t->cap)
		return true;
	size_t cap = t->cap ? t->cap * 2 : 16;
	void **items = realloc(t->items, cap * sizeof(*items));
	if (!items)
		return false;
	t->items = items;
	t->cap = cap;
	return true;
}

void table_add(struct table *t, void *item)
{
	size_t at = table_position(t, item);
	ASSERT(t->count < t->cap);
	memmove(&t->items[at + 1], &t->items[at], (t->count - at) * sizeof(*t->items));
	t->items[at] = item;
	t->count++;
}

void table_remove(struct table *t, const void *item)
{
	size_t at = table_position(t, item);
	ASSERT(at < t->count && t->items[at] == item);
	t->count--;
	memmove(&t->items[at], &t->items[at + 1], (t->count - at) * sizeof(*t->items));
}

void table_replace(struct table *t, const void *item, void *by)
{
	size_t at = table_position(t, item);
	ASSERT(at < t->count && t->items[at] == item);
	t->items[at] = by;
}

void table_cut(struct table *t, size_t at, size_t count)
{
	for (size_t i = at; i < at + count; i++)
		free(t->items[i]);
	t->count -= count;
	if (t->count > at)
		memmove(&t->items[at], &t->items[at + count], (t->count - at) * sizeof(*t->items));
}

void table_free(struct table *t, bool with_items)
{
	for (size_t i = 0; with_items && i < t->count; i++)
		free(t->items[i]);
	free(t->items);
}

int order_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

int order_i64(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

void str_place(struct str *s, char **at)
{
	if (!s->ptr)
		return;
	if (s->len > 0)
		memcpy(*at, s->ptr, s->len);
	s->ptr = *at;
	*at += s->len;
}
