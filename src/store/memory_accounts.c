/* Users, their sessions and API keys in the store in memory. */
#include "store/memory.h"
#include "store/rules_memory.h"

#include <stdlib.h>

/* --- orders --- */

static int order_user(const void *a, const void *b)
{
	return order_u64(((const struct user_node *)a)->user.id, ((const struct user_node *)b)->user.id);
}

static int order_user_email(const void *a, const void *b)
{
	return str_order(((const struct user_node *)a)->user.email,
	                 ((const struct user_node *)b)->user.email);
}

static int order_session(const void *a, const void *b)
{
	return memcmp(((const struct session_node *)a)->session.id,
	              ((const struct session_node *)b)->session.id, SESSION_ID_BYTES);
}

static int order_session_end(const void *a, const void *b)
{
	int order = order_i64(((const struct session_node *)a)->session.expires_ms,
	                      ((const struct session_node *)b)->session.expires_ms);
	return order ? order : order_session(a, b);
}

static int order_key(const void *a, const void *b)
{
	return order_u64(((const struct key_node *)a)->key.id, ((const struct key_node *)b)->key.id);
}

void memory_accounts_init(struct store_memory *s)
{
	s->users.order = order_user;
	s->users_by_email.order = order_user_email;
	s->sessions.order = order_session;
	s->sessions_by_end.order = order_session_end;
	s->keys.order = order_key;
}

void memory_accounts_release(struct store_memory *s)
{
	table_free(&s->users, true);
	table_free(&s->users_by_email, false);
	table_free(&s->sessions, true);
	table_free(&s->sessions_by_end, false);
	table_free(&s->keys, true);
}

/* --- users --- */

struct user_node *memory_user_by_id(const struct store_memory *s, uint64_t id)
{
	struct user_node like = {.user.id = id};
	return table_find(&s->users, &like);
}

struct user_node *memory_user_by_email(const struct store_memory *s, struct str email)
{
	struct user_node like = {.user.email = email};
	return email.ptr ? table_find(&s->users_by_email, &like) : NULL;
}

int memory_user_give(const struct user_node *node, struct arena *arena, struct user_record *ret)
{
	struct user_record user = node->user;
	int r = user_own(arena, &user);
	if (r == 0)
		*ret = user;
	return r;
}

static struct user_node *user_node_new(const struct user_record *user)
{
	struct user_node *node = malloc(sizeof(*node) + user->email.len + user->first_name.len +
	                                user->middle_name.len + user->last_name.len + user->password.len);
	if (!node)
		return NULL;
	node->user = *user;
	char *at = node->text;
	str_place(&node->user.email, &at);
	str_place(&node->user.first_name, &at);
	str_place(&node->user.middle_name, &at);
	str_place(&node->user.last_name, &at);
	str_place(&node->user.password, &at);
	return node;
}

/* A node for a new user, not yet among the others, and room for it: 0, ERR_CONFLICT or ERR_NOMEM. */
static int user_make(struct store_memory *s, const struct user_record *from, struct user_node **ret)
{
	user_check_role(from->role);
	if (memory_user_by_email(s, from->email))
		return ERR_CONFLICT;
	struct user_record user = *from;
	user.id = s->users.count + 1; /* users are never removed */
	user.generation = USER_GENERATION_FIRST;
	if (table_reserve(&s->users) && table_reserve(&s->users_by_email))
		*ret = user_node_new(&user);
	return *ret ? 0 : ERR_NOMEM;
}

static void user_add(struct store_memory *s, struct user_node *node, struct store_write *w)
{
	table_add(&s->users, node);
	if (node->user.email.ptr)
		table_add(&s->users_by_email, node);
	w->user.id = node->user.id;
	w->user.generation = node->user.generation;
}

static int user_create(struct store_memory *s, struct store_write *w)
{
	struct user_node *node = NULL;
	int r = user_make(s, &w->user, &node);
	if (r == 0)
		user_add(s, node, w);
	return r;
}

static bool is_admins(const struct store_memory *s, const struct key_node *node, int64_t now_ms)
{
	const struct user_node *user = memory_user_by_id(s, node->key.user);
	return user && user_is_admin(&user->user) && key_is_for_admins(&node->key, now_ms);
}

static bool has_admin_key(const struct store_memory *s, uint64_t user, int64_t now_ms)
{
	for (size_t i = 0; i < s->keys.count; i++) {
		const struct key_node *node = s->keys.items[i];
		if (node->key.user == user && key_is_for_admins(&node->key, now_ms))
			return true;
	}
	return false;
}

/* One who can get in. */
static bool other_admin_exists(const struct store_memory *s, uint64_t id, int64_t now_ms)
{
	for (size_t i = 0; i < s->users.count; i++) {
		const struct user_record *user = &((const struct user_node *)s->users.items[i])->user;
		if (user->id != id && user_is_admin(user) && user_signs_in(user))
			return true;
	}
	for (size_t i = 0; i < s->keys.count; i++) {
		const struct key_node *node = s->keys.items[i];
		if (node->key.user != id && is_admins(s, node, now_ms))
			return true;
	}
	return false;
}

static int user_check(const struct store_memory *s, const struct user_record *before,
                      const struct user_record *after, int64_t now_ms)
{
	const struct user_node *namesake = memory_user_by_email(s, after->email);
	if (namesake && namesake->user.id != after->id)
		return ERR_CONFLICT;
	bool shut_out = admin_is_shut_out(before, after, has_admin_key(s, before->id, now_ms));
	return shut_out && !other_admin_exists(s, before->id, now_ms) ? ERR_BUSY : 0;
}

static int user_update(struct store_memory *s, struct store_write *w)
{
	struct user_node *node = memory_user_by_id(s, w->user.id);
	if (!node)
		return ERR_NOT_FOUND;
	struct user_record user = node->user;
	user_fields_take(w, &user);
	int r = user_check(s, &node->user, &user, w->now_ms);
	if (r != 0)
		return r;
	struct user_node *changed = user_node_new(&user);
	if (!changed || !table_reserve(&s->users_by_email) ||
	    memory_user_give(changed, w->arena, &w->user) != 0) {
		free(changed);
		return ERR_NOMEM;
	}
	table_replace(&s->users, node, changed);
	if (node->user.email.ptr)
		table_remove(&s->users_by_email, node);
	if (changed->user.email.ptr)
		table_add(&s->users_by_email, changed);
	free(node);
	return 0;
}

/* --- sessions --- */

static void sessions_purge(struct store_memory *s, int64_t now_ms)
{
	for (int i = 0; i < SESSION_PURGE_PER_CREATE && s->sessions_by_end.count > 0; i++) {
		struct session_node *first = s->sessions_by_end.items[0];
		if (first->session.expires_ms > now_ms)
			return;
		table_remove(&s->sessions, first);
		table_remove(&s->sessions_by_end, first);
		free(first);
	}
}

static int session_create(struct store_memory *s, const struct session_record *session, int64_t now_ms)
{
	sessions_purge(s, now_ms);
	struct session_node *node = malloc(sizeof(*node));
	if (!node || !table_reserve(&s->sessions) || !table_reserve(&s->sessions_by_end)) {
		free(node);
		return ERR_NOMEM;
	}
	node->session = *session;
	node->session.address = node->session.agent = STR_NULL; /* nobody reads them yet */
	table_add(&s->sessions, node);
	table_add(&s->sessions_by_end, node);
	return 0;
}

static void session_end(struct store_memory *s, const struct store_write *w)
{
	struct session_node *node = table_find(&s->sessions, &(struct session_node){.session = w->session});
	if (!node)
		return;
	table_remove(&s->sessions, node);
	table_remove(&s->sessions_by_end, node);
	free(node);
}

static int update(struct store_memory *s, struct store_write *w)
{
	int r = user_update(s, w);
	if (r != 0 || w->session.user == 0)
		return r;
	struct session_record session = w->session;
	session.generation = w->user.generation;
	return session_create(s, &session, w->now_ms);
}

/* --- API keys --- */

static struct key_node *key_node_new(const struct key_record *key, uint64_t id)
{
	struct key_node *node = malloc(sizeof(*node) + key->name.len);
	if (!node)
		return NULL;
	node->key = *key;
	node->key.id = id;
	char *at = node->text;
	str_place(&node->key.name, &at);
	return node;
}

int memory_key_give(const struct key_node *node, struct arena *arena, struct key_record *ret)
{
	struct key_record key = node->key;
	if (!str_own(arena, &key.name))
		return ERR_NOMEM;
	*ret = key;
	return 0;
}

static struct key_node *key_by_id(const struct store_memory *s, uint64_t id)
{
	struct key_node like = {.key.id = id};
	return table_find(&s->keys, &like);
}

static bool digest_exists(const struct store_memory *s, const uint8_t *digest)
{
	for (size_t i = 0; i < s->keys.count; i++) {
		const struct key_node *node = s->keys.items[i];
		if (memcmp(node->key.digest, digest, KEY_DIGEST_BYTES) == 0)
			return true;
	}
	return false;
}

static bool is_full(const struct store_memory *s, const struct user_node *user, int64_t now_ms)
{
	size_t live = 0;
	for (size_t i = 0; user->user.email.ptr && i < s->keys.count; i++) {
		const struct key_record *key = &((const struct key_node *)s->keys.items[i])->key;
		live += key->user == user->user.id && !key->revoked_ms &&
		        (key->expires_ms == 0 || key->expires_ms > now_ms);
	}
	return live >= ACCOUNT_KEYS_MAX;
}

static int key_create(struct store_memory *s, struct store_write *w)
{
	struct user_node *user = NULL;
	int r = 0;
	if (digest_exists(s, w->key.digest))
		return ERR_CONFLICT;
	if (w->key.user == 0)
		r = user_make(s, &w->user, &user);
	else if (!memory_user_by_id(s, w->key.user))
		r = ERR_INVALID;
	else if (is_full(s, memory_user_by_id(s, w->key.user), w->now_ms))
		r = ERR_LIMIT;
	if (r != 0)
		return r;
	const struct key_node *last = s->keys.count > 0 ? s->keys.items[s->keys.count - 1] : NULL;
	struct key_node *node = key_node_new(&w->key, last ? last->key.id + 1 : 1); /* the last one stays */
	if (!node || !table_reserve(&s->keys)) {
		free(node);
		free(user);
		return ERR_NOMEM;
	}
	if (user) {
		user_add(s, user, w);
		node->key.user = user->user.id;
	}
	table_add(&s->keys, node);
	w->key.id = node->key.id;
	w->key.user = node->key.user;
	return 0;
}

static size_t admin_keys_count(const struct store_memory *s, int64_t now_ms)
{
	size_t count = 0;
	for (size_t i = 0; i < s->keys.count; i++)
		count += is_admins(s, s->keys.items[i], now_ms);
	return count;
}

static int key_revoke(struct store_memory *s, struct store_write *w)
{
	struct key_node *node = key_by_id(s, w->key.id);
	if (!node || !key_is_of(&node->key, w->key.user))
		return ERR_NOT_FOUND;
	if (is_admins(s, node, w->now_ms) && admin_keys_count(s, w->now_ms) == 1)
		return ERR_CONFLICT;
	int r = memory_key_give(node, w->arena, &w->key);
	if (r != 0)
		return r;
	if (node->key.revoked_ms == 0)
		node->key.revoked_ms = w->now_ms;
	w->key.revoked_ms = node->key.revoked_ms;
	return 0;
}

static int key_used(struct store_memory *s, const struct store_write *w)
{
	struct key_node *node = key_by_id(s, w->key.id);
	if (!node)
		return ERR_NOT_FOUND;
	node->key.used_ms = MAX(node->key.used_ms, w->key.used_ms);
	return 0;
}

static void keys_purge(struct store_memory *s, const struct purge *p)
{
	for (size_t i = 0; i + 1 < s->keys.count;) {
		struct key_node *node = s->keys.items[i];
		int64_t revoked_ms = node->key.revoked_ms, expires_ms = node->key.expires_ms;
		if ((revoked_ms > 0 && revoked_ms <= p->until_ms) ||
		    (expires_ms > 0 && expires_ms <= p->until_ms)) {
			table_remove(&s->keys, node);
			free(node);
		} else {
			i++;
		}
	}
}

int memory_keys_collect(const struct store_memory *s, struct store_keys *page)
{
	struct key_record *keys = NULL;
	size_t count = 0, cap = 0;
	page->more = false;
	for (size_t i = 0; i < s->keys.count; i++) {
		const struct key_node *node = s->keys.items[i];
		if (node->key.id <= page->after || (page->user && node->key.user != page->user))
			continue;
		page->more = count == page->limit;
		if (page->more)
			break;
		keys = array_room(page->arena, keys, count, &cap, sizeof(*keys));
		if (!keys || memory_key_give(node, page->arena, &keys[count++]) != 0)
			return ERR_NOMEM;
	}
	page->keys = keys;
	page->count = count;
	return 0;
}

int memory_account_find(const struct store_memory *s, struct store_account *read, struct arena *arena)
{
	const struct user_node *user = NULL;
	const struct key_node *key = NULL;
	const struct session_node *session = NULL;
	if (read->by == BY_USER)
		user = memory_user_by_id(s, read->id);
	if (read->by == BY_EMAIL)
		user = memory_user_by_email(s, read->text);
	for (size_t i = 0; (read->by == BY_KEY || read->by == BY_DIGEST) && i < s->keys.count && !key; i++) {
		const struct key_node *node = s->keys.items[i];
		if (read->by == BY_KEY
		        ? node->key.id == read->id
		        : str_eq(read->text, str_n((const char *)node->key.digest, KEY_DIGEST_BYTES)))
			key = node;
	}
	for (size_t i = 0; read->by == BY_SESSION && i < s->sessions.count && !session; i++) {
		const struct session_node *node = s->sessions.items[i];
		if (str_eq(read->text, str_n((const char *)node->session.id, SESSION_ID_BYTES)))
			session = node;
	}
	if (session)
		read->session = session->session;
	if (user)
		return memory_user_give(user, arena, &read->user);
	return key ? memory_key_give(key, arena, &read->key) : session ? 0 : ERR_NOT_FOUND;
}

int memory_change_account(struct store_memory *s, struct store_write *w)
{
	switch (w->kind) {
	case STORE_USER_CREATE: return user_create(s, w);
	case STORE_USER_UPDATE: return update(s, w);
	case STORE_SESSION_CREATE: return session_create(s, &w->session, w->now_ms);
	case STORE_SESSION_END: session_end(s, w); return 0;
	case STORE_KEY_CREATE: return key_create(s, w);
	case STORE_KEY_REVOKE: return key_revoke(s, w);
	case STORE_KEY_USED: return key_used(s, w);
	case STORE_KEY_PURGE: keys_purge(s, &w->purge); return 0;
	default: ASSERT(false);
	}
}
