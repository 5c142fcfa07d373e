#include "store/feed.h"

#include "store/rules.h"

#include <endian.h>

enum { HEAD_BYTES = 1 + 8 + 8 + 2 + 4 };

static void number_put(char **at, uint64_t v, unsigned bytes)
{
	uint64_t wire = htobe64(v);
	memcpy(*at, (const char *)&wire + sizeof(wire) - bytes, bytes);
	*at += bytes;
}

static uint64_t number_take(const char **at, unsigned bytes)
{
	uint64_t wire = 0;
	memcpy((char *)&wire + sizeof(wire) - bytes, *at, bytes);
	*at += bytes;
	return be64toh(wire);
}

struct str feed_entry_bytes(struct arena *arena, const struct feed_entry *e)
{
	ASSERT(e->name.len <= UINT16_MAX && e->changes.len <= UINT32_MAX);
	size_t len = HEAD_BYTES + e->name.len + e->changes.len;
	char *bytes = arena_alloc(arena, len), *at = bytes;
	if (!bytes)
		return STR_NULL;
	number_put(&at, e->kind, 1);
	number_put(&at, e->actor, 8);
	number_put(&at, e->id, 8);
	number_put(&at, e->name.len, 2);
	number_put(&at, e->changes.len, 4);
	if (e->name.len > 0) /* users have no name */
		memcpy(at, e->name.ptr, e->name.len);
	if (e->changes.len > 0)
		memcpy(at + e->name.len, e->changes.ptr, e->changes.len);
	return str_n(bytes, len);
}

int feed_entry_take(struct str *row, struct feed_entry *ret)
{
	if (row->len == 0)
		return 0;
	if (row->len < HEAD_BYTES)
		return ERR_CORRUPT;
	const char *at = row->ptr;
	*ret = (struct feed_entry){.kind = (enum feed_kind)number_take(&at, 1),
	                           .actor = number_take(&at, 8),
	                           .id = number_take(&at, 8)};
	ret->name.len = number_take(&at, 2);
	ret->changes.len = number_take(&at, 4);
	size_t left = row->len - HEAD_BYTES;
	if (left < ret->name.len || left - ret->name.len < ret->changes.len)
		return ERR_CORRUPT;
	ret->name.ptr = at;
	at += ret->name.len;
	ret->changes.ptr = ret->changes.len > 0 ? at : NULL;
	at += ret->changes.len;
	*row = str_n(at, (size_t)(row->ptr + row->len - at));
	return 1;
}

int feed_page_add(struct feed_page *page, size_t *room, struct str row, int64_t at_ms)
{
	if (!row.ptr)
		return 0;
	row = arena_str(page->arena, row);
	if (!row.ptr)
		return ERR_NOMEM;
	for (;;) {
		struct feed_entry entry;
		int r = feed_entry_take(&row, &entry);
		if (r <= 0)
			return r;
		page->entries = array_room(page->arena, page->entries, page->count, room, sizeof(entry));
		if (!page->entries)
			return ERR_NOMEM;
		entry.at_ms = at_ms;
		page->entries[page->count++] = entry;
	}
}
