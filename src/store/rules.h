/* Rules and helpers that all store backends share. */
#pragma once

#include "store/fields.h"
#include "store/store.h"

#include <sched.h>
#include <stdatomic.h>

enum {
	REPLAY_MS = 24 * 3600 * 1000, /* lifetime of an idempotency key */
	/* Each write that may add a row purges more than it adds. */
	REPLAY_PURGE_PER_CREATE = 2,
	QUARANTINE_PURGE_PER_SWEEP = 2,
	SESSION_PURGE_PER_CREATE = 2,
	USER_GENERATION_FIRST = 1,
	COUNTER_FIRST = 1,
	FEED_PRUNE_MAX = 1000, /* rows of a feed per call */
};

/* Counts running calls, including those that wait for a lock, so that `free` can wait for them. */
static inline void calls_enter(atomic_uint *calls)
{
	atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);
}

static inline void calls_leave(atomic_uint *calls) /* must not touch the store afterwards */
{
	atomic_fetch_sub_explicit(calls, 1, memory_order_release); /* pairs with calls_wait */
}

static inline void calls_wait(atomic_uint *calls)
{
	while (atomic_load_explicit(calls, memory_order_acquire) > 0)
		sched_yield();
}

/* Ids must fit a signed 64-bit column. */
static inline bool id_is_valid(uint64_t id)
{
	return id != 0 && id <= INT64_MAX;
}

/* --- links --- */

/* Applies an UPDATE to a record. Strings stay borrowed. */
static inline void fields_take(const struct store_write *w, struct link_record *to)
{
	ASSERT(!(w->fields & LINK_URL) || w->link.url.ptr);
	fields_copy(&link_fields, w->fields, &w->link, to);
	to->updated_ms = w->now_ms;
}

static inline bool str_own(struct arena *arena, struct str *s)
{
	struct str copy = arena_str(arena, *s);
	bool done = copy.ptr || !s->ptr;
	*s = copy;
	return done;
}

/* Copies a link's strings into the arena: 0 or ERR_NOMEM. */
static inline int link_own(struct arena *arena, struct link_record *link)
{
	return fields_own(&link_fields, arena, link);
}

/* What a link adds to store_list.bytes_max. */
static inline size_t link_bytes(const struct link_record *link)
{
	return fields_bytes(&link_fields, link);
}

/* --- users and API keys --- */

static inline int user_own(struct arena *arena, struct user_record *user)
{
	return fields_own(&user_fields, arena, user);
}

/* --- pages --- */

/* The cursor of a list is the decimal id of the last link of the page. The next page has smaller ids only,
 * so concurrent creates and deletes do not disturb it. */
static inline struct str cursor_format(struct arena *arena, uint64_t last_id)
{
	return arena_printf(arena, "%llu", (unsigned long long)last_id);
}

/* STR_NULL: start at the newest. False: cursor_format never writes such a text. */
static inline bool cursor_parse(struct str cursor, uint64_t *ret_id_max)
{
	uint64_t last_id;
	if (!cursor.ptr) {
		*ret_id_max = INT64_MAX;
		return true;
	}
	if (!str_u64(cursor, &last_id) || last_id > INT64_MAX || cursor.ptr[0] == '0')
		return false;
	*ret_id_max = last_id - 1;
	return true;
}

static inline bool page_is_full(const struct store_list *page, size_t count, size_t bytes)
{
	return count == page->limit || (page->bytes_max > 0 && count > 0 && bytes >= page->bytes_max);
}

/* Grows an array in the arena by doubling, so that a short page under a large limit stays small. NULL: out
 * of memory. */
static inline void *array_room(struct arena *arena, void *items, size_t count, size_t *cap, size_t item_bytes)
{
	if (count < *cap)
		return items;
	size_t more = *cap ? *cap * 2 : 16;
	void *larger = arena_alloc(arena, more * item_bytes);
	if (!larger)
		return NULL;
	if (count > 0)
		memcpy(larger, items, count * item_bytes);
	*cap = more;
	return larger;
}
