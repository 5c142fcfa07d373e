/* Rules of the role `store` that every backend follows alike. For backends only. */
#pragma once

#include "store/fields.h"
#include "store/store.h"

#include <sched.h>
#include <stdatomic.h>

enum {
	REPLAY_MS = 24 * 3600 * 1000, /* how long an idempotency key is remembered */
	/* What has died is removed in small portions, each by a write that may add one: always more than it
	 * adds. */
	REPLAY_PURGE_PER_CREATE = 2,
	REST_PURGE_PER_REAP = 2,
	SESSION_PURGE_PER_END = 2,
	USER_GENERATION_FIRST = 1,
	COUNTER_FIRST = 1,
};

static inline bool replay_is_dead(int64_t created_ms, int64_t now_ms)
{
	return now_ms - created_ms >= REPLAY_MS;
}

/* How many calls are under way, also those that wait for a lock, so that `free` can let them end. */
static inline void calls_enter(atomic_uint *calls)
{
	atomic_fetch_add_explicit(calls, 1, memory_order_relaxed);
}

static inline void calls_leave(atomic_uint *calls) /* touches nothing of the store afterwards */
{
	atomic_fetch_sub_explicit(calls, 1, memory_order_release); /* pairs with calls_wait */
}

static inline void calls_wait(atomic_uint *calls)
{
	while (atomic_load_explicit(calls, memory_order_acquire) > 0)
		sched_yield();
}

/* Ids fit a signed number in every database. */
static inline bool id_is_valid(uint64_t id)
{
	return id != 0 && id <= INT64_MAX;
}

/* --- links --- */

/* A create that contradicts itself is a bug of the caller: it would put a link where nobody finds it. */
static inline void create_check(const struct store_write *w)
{
	ASSERT(id_is_valid(w->link.id) && w->link.url.ptr);
	ASSERT(w->link.key.len > 0 && str_eq(w->ref.key, w->link.key));
	ASSERT(w->link.is_alias || (w->ref.id == w->link.id && !w->reuse));
}

/* The owner's right to it, and for REAP its age: 0, ERR_NOT_FOUND or ERR_CONFLICT. */
static inline int target_check(const struct store_write *w, const struct link_record *link)
{
	if (w->owner != 0 && w->owner != link->owner)
		return ERR_NOT_FOUND;
	if (w->kind == STORE_LINK_REAP && !link_is_over(link, w->now_ms))
		return ERR_CONFLICT;
	return 0;
}

/* Until when the alias of a link that was over at `over_ms` rests. */
static inline int64_t rest_until_ms(int64_t over_ms, uint64_t rest_ms)
{
	int64_t until_ms;
	return __builtin_add_overflow(over_ms, rest_ms, &until_ms) ? INT64_MAX : until_ms;
}

/* May the CREATE have a name that rests for `owner` until then? */
static inline bool rest_allows(uint64_t owner, int64_t until_ms, const struct store_write *w)
{
	return w->reuse || owner == w->link.owner || until_ms <= w->now_ms;
}

/* Must the link that has the name give way to the CREATE? A generated key is its link's for good. */
static inline bool holder_yields(const struct link_record *holder, const struct store_write *w)
{
	return holder->is_alias && link_is_over(holder, w->now_ms) &&
	       rest_allows(holder->owner, rest_until_ms(link_over_ms(holder), w->rest_ms), w);
}

/* Might the name that the CREATE wants be a key that was generated? */
static inline bool alias_decodes(const struct store_write *w)
{
	return w->link.is_alias && id_is_valid(w->ref.id);
}

/* The name reads like a key that has no row: was it given out before? `next` is what the counter gives next.
 */
static inline bool key_is_spent(const struct store_write *w, uint64_t next)
{
	return !w->reuse && w->ref.id < next;
}

/* Sets what an UPDATE sets. Strings stay the update's own. */
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

/* Moves a link's strings into the arena: 0 or ERR_NOMEM. */
static inline int link_own(struct arena *arena, struct link_record *link)
{
	return fields_own(&link_fields, arena, link);
}

/* What a link takes of a page's bytes. */
static inline size_t link_bytes(const struct link_record *link)
{
	return fields_bytes(&link_fields, link);
}

/* --- users and API keys --- */

/* An admin who may act as one. */
static inline bool user_is_admin(const struct user_record *user)
{
	return user->enabled && user->role == ROLE_ADMIN;
}

static inline bool user_signs_in(const struct user_record *user)
{
	return user->email.ptr && user->password.ptr;
}

/* Does the change shut out an admin who could get in? `has_key`: with an API key, before and after. */
static inline bool admin_is_shut_out(const struct user_record *before, const struct user_record *after,
                                     bool has_key)
{
	bool could = user_is_admin(before) && (has_key || user_signs_in(before));
	bool can = user_is_admin(after) && (has_key || user_signs_in(after));
	return could && !can;
}

/* A role that is none is a bug of the caller. */
static inline void user_check_role(enum user_role role)
{
	ASSERT(role >= ROLE_VIEWER && role <= ROLE_ADMIN);
}

/* Sets what a USER_UPDATE sets. Strings stay the update's own. */
static inline void user_fields_take(const struct store_write *w, struct user_record *to)
{
	unsigned fields = w->user_fields;
	fields_copy(&user_fields, fields, &w->user, to);
	user_check_role(to->role);
	if (fields & (USER_PASSWORD | USER_SESSIONS) || (fields & USER_ENABLED && !w->user.enabled))
		to->generation++;
	to->updated_ms = w->now_ms;
}

/* Moves a user's strings into the arena: 0 or ERR_NOMEM. */
static inline int user_own(struct arena *arena, struct user_record *user)
{
	return fields_own(&user_fields, arena, user);
}

/* One with which an admin could act. */
static inline bool key_is_for_admins(const struct key_record *key, int64_t now_ms)
{
	return key->revoked_ms == 0 && (key->expires_ms == 0 || key->expires_ms > now_ms) &&
	       key->rights & RIGHT_ADMIN;
}

/* A REVOKE may say whose key it must be. */
static inline bool key_is_of(const struct key_record *key, uint64_t user)
{
	return user == 0 || user == key->user;
}

/* --- pages --- */

/*
 * The cursor of a list: the id of the last link that was handed out, in plain decimal. The next page holds
 * smaller ids only, so it stays right when links come and go in between.
 */
static inline struct str cursor_format(struct arena *arena, uint64_t last_id)
{
	return arena_printf(arena, "%llu", (unsigned long long)last_id);
}

/* STR_NULL is the start: every id counts. False when this is no text that cursor_format makes. */
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

/* Room for one more item in a growing array of the arena; NULL when memory ran out. It doubles, so that a
 * short page under a large limit stays small. */
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
