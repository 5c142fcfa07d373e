/* Rules as the memory backend and rings ask them. For these only. */
#pragma once

#include "store/rules.h"

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

static inline bool replay_is_dead(int64_t created_ms, int64_t now_ms)
{
	return now_ms - created_ms >= REPLAY_MS;
}

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
