/*
 * The role `store` in this process's memory, for tests and for trying curt out. The same answers as any other
 * backend, gone with the process. One mutex guards all of it; what has to be found lies in sorted arrays, so
 * a page of a list costs its own length here too. Tags alone are searched for link by link.
 *
 * A change makes room for everything it will add before it adds anything: it happens whole or not at all.
 */
#include "store/backends.h"
#include "store/rules.h"
#include "store/tags.h"

#include <pthread.h>
#include <stdlib.h>

/* Pointers, sorted by an order that takes two of them. The table does not own what they point at. */
struct table {
	void **items;
	size_t count;
	size_t cap;
	int (*order)(const void *a, const void *b);
};

/* Each node is one allocation: its strings stand behind it. */
struct link_node {
	struct link_record link;
	char text[];
};

struct replay_node {
	uint64_t owner;
	struct str key;
	uint8_t fingerprint[FINGERPRINT_BYTES];
	uint64_t link;
	int64_t created_ms;
	char text[];
};

struct key_node {
	struct key_record key;
	char text[];
};

struct named_node { /* a counter or a constant */
	struct str name;
	uint64_t next;
	struct str value;
	char text[];
};

struct store_memory {
	struct store base;
	atomic_uint calls;                           /* under way */
	pthread_mutex_t lock;                        /* guards all below */
	struct table links, links_by_owner, aliases; /* of struct link_node */
	struct table replays, replays_by_age;        /* of struct replay_node */
	struct table keys;                           /* of struct key_node, by id */
	struct table counters, constants;            /* of struct named_node */
};

static struct store_memory *self(struct store *base)
{
	return container_of(base, struct store_memory, base);
}

static void enter(struct store_memory *s)
{
	calls_enter(&s->calls);
	pthread_mutex_lock(&s->lock);
}

static void leave(struct store_memory *s)
{
	pthread_mutex_unlock(&s->lock);
	calls_leave(&s->calls);
}

/* --- orders --- */

static int order_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int order_str(struct str a, struct str b)
{
	size_t common = MIN(a.len, b.len);
	int order = common ? memcmp(a.ptr, b.ptr, common) : 0;
	return order ? order : order_u64(a.len, b.len);
}

static int order_link_id(const void *a, const void *b)
{
	return order_u64(((const struct link_node *)a)->link.id, ((const struct link_node *)b)->link.id);
}

static int order_link_owner(const void *a, const void *b)
{
	int order = order_u64(((const struct link_node *)a)->link.owner,
	                      ((const struct link_node *)b)->link.owner);
	return order ? order : order_link_id(a, b);
}

static int order_link_name(const void *a, const void *b)
{
	return order_str(((const struct link_node *)a)->link.key, ((const struct link_node *)b)->link.key);
}

static int order_replay(const void *a, const void *b)
{
	const struct replay_node *x = a, *y = b;
	int order = order_u64(x->owner, y->owner);
	return order ? order : order_str(x->key, y->key);
}

static int order_replay_age(const void *a, const void *b)
{
	const struct replay_node *x = a, *y = b;
	int order = (x->created_ms > y->created_ms) - (x->created_ms < y->created_ms);
	return order ? order : order_replay(a, b);
}

static int order_key(const void *a, const void *b)
{
	return order_u64(((const struct key_node *)a)->key.id, ((const struct key_node *)b)->key.id);
}

static int order_name(const void *a, const void *b)
{
	return order_str(((const struct named_node *)a)->name, ((const struct named_node *)b)->name);
}

/* --- tables --- */

/* Where the first item stands that is not before `like`. */
static size_t table_position(const struct table *t, const void *like)
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

static void *table_find(const struct table *t, const void *like)
{
	size_t at = table_position(t, like);
	return at < t->count && t->order(t->items[at], like) == 0 ? t->items[at] : NULL;
}

static bool table_reserve(struct table *t)
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

static void table_add(struct table *t, void *item) /* room was reserved */
{
	size_t at = table_position(t, item);
	ASSERT(t->count < t->cap);
	memmove(&t->items[at + 1], &t->items[at], (t->count - at) * sizeof(*t->items));
	t->items[at] = item;
	t->count++;
}

static void table_remove(struct table *t, const void *item)
{
	size_t at = table_position(t, item);
	ASSERT(at < t->count && t->items[at] == item);
	t->count--;
	memmove(&t->items[at], &t->items[at + 1], (t->count - at) * sizeof(*t->items));
}

/* Puts an item in the place of another that is its equal in the table's order. */
static void table_replace(struct table *t, const void *item, void *by)
{
	size_t at = table_position(t, item);
	ASSERT(at < t->count && t->items[at] == item);
	t->items[at] = by;
}

static void table_free(struct table *t, bool with_items)
{
	for (size_t i = 0; with_items && i < t->count; i++)
		free(t->items[i]);
	free(t->items);
}

/* --- nodes --- */

/* Moves a string to *at, which goes on behind it. */
static void str_place(struct str *s, char **at)
{
	if (!s->ptr)
		return;
	if (s->len > 0)
		memcpy(*at, s->ptr, s->len);
	s->ptr = *at;
	*at += s->len;
}

static struct link_node *link_node_new(const struct link_record *link)
{
	size_t bytes = link->key.len + link->user_name.len + link->url.len + link->title.len +
	               link->note.len + link->tags.len;
	struct link_node *node = malloc(sizeof(*node) + bytes);
	if (!node)
		return NULL;
	node->link = *link;
	if (!link->is_alias)
		node->link.key = STR_NULL;
	char *at = node->text;
	str_place(&node->link.key, &at);
	str_place(&node->link.user_name, &at);
	str_place(&node->link.url, &at);
	str_place(&node->link.title, &at);
	str_place(&node->link.note, &at);
	str_place(&node->link.tags, &at);
	return node;
}

static struct replay_node *replay_node_new(const struct store_write *w)
{
	struct replay_node *node = malloc(sizeof(*node) + w->idempotency_key.len);
	if (!node)
		return NULL;
	node->owner = w->link.owner;
	node->key = w->idempotency_key;
	node->link = w->link.id;
	node->created_ms = w->now_ms;
	memcpy(node->fingerprint, w->fingerprint, FINGERPRINT_BYTES);
	char *at = node->text;
	str_place(&node->key, &at);
	return node;
}

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

static struct named_node *named_node_new(struct str name, struct str value)
{
	struct named_node *node = malloc(sizeof(*node) + name.len + value.len);
	if (!node)
		return NULL;
	node->name = name;
	node->value = value;
	node->next = 1;
	char *at = node->text;
	str_place(&node->name, &at);
	str_place(&node->value, &at);
	return node;
}

/* --- finding --- */

static struct link_node *link_by_id(const struct store_memory *s, uint64_t id)
{
	struct link_node like = {.link.id = id};
	return table_find(&s->links, &like);
}

static struct link_node *link_by_name(const struct store_memory *s, struct str name)
{
	struct link_node like = {.link.key = name};
	return table_find(&s->aliases, &like);
}

static struct link_node *generated_by_id(const struct store_memory *s, uint64_t id)
{
	struct link_node *node = link_by_id(s, id);
	return node && !node->link.is_alias ? node : NULL;
}

static struct link_node *link_find(const struct store_memory *s, struct link_ref ref)
{
	if (!ref.key.ptr)
		return link_by_id(s, ref.id);
	struct link_node *node = generated_by_id(s, ref.id);
	return node ? node : link_by_name(s, ref.key);
}

static int link_give(const struct link_node *node, struct arena *arena, struct link_record *ret)
{
	struct link_record link = node->link;
	int r = link_own(arena, &link);
	if (r == 0)
		*ret = link;
	return r;
}

static int key_give(const struct key_node *node, struct arena *arena, struct key_record *ret)
{
	struct key_record key = node->key;
	if (!str_own(arena, &key.name))
		return ERR_NOMEM;
	*ret = key;
	return 0;
}

static int memory_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	struct store_memory *s = self(base);
	enter(s);
	for (size_t i = 0; i < n; i++) {
		const struct link_node *node = link_find(s, reads[i].ref);
		reads[i].result = node ? link_give(node, reads[i].arena, &reads[i].link) : ERR_NOT_FOUND;
	}
	leave(s);
	return 0;
}

/* --- changes --- */

static void replay_remove(struct store_memory *s, struct replay_node *node)
{
	table_remove(&s->replays, node);
	table_remove(&s->replays_by_age, node);
	free(node);
}

static void replays_purge(struct store_memory *s, int64_t now_ms)
{
	for (int i = 0; i < REPLAY_PURGE_PER_CREATE && s->replays_by_age.count > 0; i++) {
		struct replay_node *oldest = s->replays_by_age.items[0];
		if (!replay_is_dead(oldest->created_ms, now_ms))
			return;
		replay_remove(s, oldest);
	}
}

static struct replay_node *replay_find(const struct store_memory *s, const struct store_write *w)
{
	struct replay_node like = {.owner = w->link.owner, .key = w->idempotency_key};
	return table_find(&s->replays, &like);
}

static int replay(const struct store_memory *s, struct store_write *w, const struct replay_node *earlier)
{
	if (memcmp(earlier->fingerprint, w->fingerprint, FINGERPRINT_BYTES) != 0)
		return ERR_INVALID;
	w->replayed = true;
	const struct link_node *node = link_by_id(s, earlier->link);
	return node ? link_give(node, w->arena, &w->link) : ERR_NOT_FOUND;
}

static void link_remove(struct store_memory *s, struct link_node *node)
{
	table_remove(&s->links, node);
	table_remove(&s->links_by_owner, node);
	if (node->link.is_alias)
		table_remove(&s->aliases, node);
	free(node);
}

static bool holds(const struct link_node *holder, int64_t now_ms)
{
	return holder && !link_has_ended(&holder->link, now_ms);
}

static int create_new(struct store_memory *s, const struct store_write *w, struct replay_node *dead)
{
	struct link_node *namesake = link_by_name(s, w->ref.key);
	struct link_node *generated = w->link.is_alias ? generated_by_id(s, w->ref.id) : NULL;
	if (holds(namesake, w->now_ms) || holds(generated, w->now_ms) || link_by_id(s, w->link.id))
		return ERR_CONFLICT;
	bool remember = w->idempotency_key.ptr;
	struct link_record fresh = w->link;
	fresh.clicks = 0;
	struct link_node *node = link_node_new(&fresh);
	struct replay_node *memory = remember ? replay_node_new(w) : NULL;
	if (!node || (remember && !memory) || !table_reserve(&s->links) ||
	    !table_reserve(&s->links_by_owner) || !table_reserve(&s->aliases) ||
	    !table_reserve(&s->replays) || !table_reserve(&s->replays_by_age)) {
		free(node);
		free(memory);
		return ERR_NOMEM;
	}
	if (namesake)
		link_remove(s, namesake);
	if (generated)
		link_remove(s, generated);
	table_add(&s->links, node);
	table_add(&s->links_by_owner, node);
	if (node->link.is_alias)
		table_add(&s->aliases, node);
	if (dead)
		replay_remove(s, dead);
	if (memory) {
		table_add(&s->replays, memory);
		table_add(&s->replays_by_age, memory);
	}
	replays_purge(s, w->now_ms);
	return 0;
}

static int link_create(struct store_memory *s, struct store_write *w)
{
	create_check(w);
	struct replay_node *earlier = w->idempotency_key.ptr ? replay_find(s, w) : NULL;
	if (earlier && !replay_is_dead(earlier->created_ms, w->now_ms))
		return replay(s, w, earlier);
	return w->replay_only ? ERR_LIMIT : create_new(s, w, earlier);
}

static int link_update(struct store_memory *s, struct store_write *w)
{
	struct link_node *node = link_find(s, w->ref);
	int r = node ? target_check(w, &node->link) : ERR_NOT_FOUND;
	if (r != 0)
		return r;
	struct link_record link = node->link;
	fields_take(w, &link);
	struct link_node *changed = link_node_new(&link);
	if (!changed || link_give(changed, w->arena, &w->link) != 0) {
		free(changed);
		return ERR_NOMEM;
	}
	table_replace(&s->links, node, changed);
	table_replace(&s->links_by_owner, node, changed);
	if (node->link.is_alias)
		table_replace(&s->aliases, node, changed);
	free(node);
	return 0;
}

static int link_delete(struct store_memory *s, struct store_write *w)
{
	struct link_node *node = link_find(s, w->ref);
	int r = node ? target_check(w, &node->link) : ERR_NOT_FOUND;
	if (r == 0)
		r = link_give(node, w->arena, &w->link);
	if (r == 0)
		link_remove(s, node);
	return r;
}

static int key_create(struct store_memory *s, struct store_write *w)
{
	for (size_t i = 0; i < s->keys.count; i++) {
		const struct key_node *other = s->keys.items[i];
		if (memcmp(other->key.digest, w->key.digest, KEY_DIGEST_BYTES) == 0)
			return ERR_CONFLICT;
	}
	struct key_node *node = key_node_new(&w->key, s->keys.count + 1); /* keys are never removed */
	if (!node || !table_reserve(&s->keys)) {
		free(node);
		return ERR_NOMEM;
	}
	table_add(&s->keys, node);
	w->key.id = node->key.id;
	return 0;
}

static bool is_admin_in_force(const struct key_node *node)
{
	return node->key.admin && node->key.revoked_ms == 0;
}

static size_t admins_in_force(const struct store_memory *s)
{
	size_t count = 0;
	for (size_t i = 0; i < s->keys.count; i++)
		count += is_admin_in_force(s->keys.items[i]);
	return count;
}

static int key_revoke(struct store_memory *s, struct store_write *w)
{
	struct key_node like = {.key.id = w->key.id};
	struct key_node *node = table_find(&s->keys, &like);
	if (!node)
		return ERR_NOT_FOUND;
	if (is_admin_in_force(node) && admins_in_force(s) == 1)
		return ERR_CONFLICT;
	int r = key_give(node, w->arena, &w->key);
	if (r != 0)
		return r;
	if (node->key.revoked_ms == 0)
		node->key.revoked_ms = w->now_ms;
	w->key.revoked_ms = node->key.revoked_ms;
	return 0;
}

static int change(struct store_memory *s, struct store_write *w)
{
	w->replayed = false;
	switch (w->kind) {
	case STORE_LINK_CREATE: return link_create(s, w);
	case STORE_LINK_UPDATE: return link_update(s, w);
	case STORE_LINK_DELETE:
	case STORE_LINK_REAP: return link_delete(s, w);
	case STORE_KEY_CREATE: return key_create(s, w);
	case STORE_KEY_REVOKE: return key_revoke(s, w);
	}
	ASSERT(false);
}

static int memory_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_memory *s = self(base);
	enter(s);
	for (size_t i = 0; i < n; i++)
		writes[i].result = change(s, &writes[i]);
	leave(s);
	return 0;
}

/* --- lists --- */

static int list_collect(const struct store_memory *s, struct store_list *page, uint64_t id_max)
{
	const struct table *t = page->owner ? &s->links_by_owner : &s->links;
	struct link_node after = {.link = {.owner = page->owner, .id = id_max + 1}};
	size_t at = table_position(t, &after);
	struct link_record *links = NULL;
	size_t count = 0, cap = 0, bytes = 0;
	struct str next = STR_NULL;
	for (; at > 0; at--) {
		const struct link_node *node = t->items[at - 1];
		if (page->owner && node->link.owner != page->owner)
			break;
		if (page_is_full(page, count, bytes)) {
			next = cursor_format(page->arena, links[count - 1].id);
			if (!next.ptr)
				return ERR_NOMEM;
			break;
		}
		links = array_room(page->arena, links, count, &cap, sizeof(*links));
		if (!links || link_give(node, page->arena, &links[count]) != 0)
			return ERR_NOMEM;
		bytes += link_bytes(&links[count]);
		count++;
	}
	page->links = links;
	page->count = count;
	page->next = next;
	return 0;
}

static int memory_list(struct store *base, struct store_list *page)
{
	struct store_memory *s = self(base);
	uint64_t id_max;
	if (page->limit == 0 || !cursor_parse(page->cursor, &id_max))
		return ERR_INVALID;
	enter(s);
	int r = list_collect(s, page, id_max);
	leave(s);
	return r;
}

struct tag_search {
	struct str wanted;
	bool found;
};

static int tag_compare(void *ctx, struct str name)
{
	struct tag_search *search = ctx;
	search->found |= str_eq(name, search->wanted);
	return 0;
}

static int tagged_collect(const struct store_memory *s, struct str tag, size_t max, uint64_t *ret_ids,
                          size_t *ret_count)
{
	size_t count = 0;
	for (size_t at = s->links.count; at > 0 && count < max; at--) {
		const struct link_node *node = s->links.items[at - 1];
		struct tag_search search = {.wanted = tag};
		int r = tags_each(node->link.tags, tag_compare, &search);
		if (r != 0)
			return r;
		if (search.found)
			ret_ids[count++] = node->link.id;
	}
	*ret_count = count;
	return 0;
}

static int memory_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	struct store_memory *s = self(base);
	enter(s);
	int r = tagged_collect(s, tag, max, ret_ids, ret_count);
	leave(s);
	return r;
}

static int memory_set_clicks(struct store *base, const struct store_count *counts, size_t n)
{
	struct store_memory *s = self(base);
	ASSERT(n <= STORE_COUNTS_MAX);
	enter(s);
	for (size_t i = 0; i < n; i++) {
		struct link_node *node = link_by_id(s, counts[i].id);
		if (node)
			node->link.clicks = counts[i].clicks;
	}
	leave(s);
	return 0;
}

static int keys_collect(const struct store_memory *s, struct arena *arena, struct key_record **ret,
                        size_t *ret_count)
{
	struct key_record *keys = NULL;
	if (s->keys.count > 0 && !(keys = arena_alloc(arena, s->keys.count * sizeof(*keys))))
		return ERR_NOMEM;
	for (size_t i = 0; i < s->keys.count; i++) {
		if (key_give(s->keys.items[i], arena, &keys[i]) != 0)
			return ERR_NOMEM;
	}
	*ret = keys;
	*ret_count = s->keys.count;
	return 0;
}

static int memory_keys(struct store *base, struct arena *arena, struct key_record **ret, size_t *ret_count)
{
	struct store_memory *s = self(base);
	enter(s);
	int r = keys_collect(s, arena, ret, ret_count);
	leave(s);
	return r;
}

/* --- counters and constants --- */

/* The node of that name, made with `value` when there is none; NULL when memory ran out. */
static struct named_node *named_get(struct table *t, struct str name, struct str value)
{
	struct named_node like = {.name = name};
	struct named_node *node = table_find(t, &like);
	if (node)
		return node;
	node = named_node_new(name, value);
	if (!node || !table_reserve(t)) {
		free(node);
		return NULL;
	}
	table_add(t, node);
	return node;
}

static int lease(struct store_memory *s, struct str counter, uint64_t count, uint64_t *ret_first)
{
	struct named_node *node = named_get(&s->counters, counter, STR_NULL);
	if (!node)
		return ERR_NOMEM;
	if (count > INT64_MAX - node->next)
		return ERR_LIMIT;
	*ret_first = node->next;
	node->next += count;
	return 0;
}

static int memory_lease(struct store *base, struct str counter, uint64_t count, uint64_t *ret_first)
{
	struct store_memory *s = self(base);
	if (counter.len == 0 || count == 0)
		return ERR_INVALID;
	enter(s);
	int r = lease(s, counter, count, ret_first);
	leave(s);
	return r;
}

static int constant(struct store_memory *s, struct str name, void *value, size_t len)
{
	const struct named_node *node = named_get(&s->constants, name, str_n(value, len));
	if (!node)
		return ERR_NOMEM;
	if (node->value.len != len)
		return ERR_CORRUPT;
	if (len > 0)
		memcpy(value, node->value.ptr, len);
	return 0;
}

static int memory_constant(struct store *base, struct str name, void *value, size_t len)
{
	struct store_memory *s = self(base);
	enter(s);
	int r = constant(s, name, value, len);
	leave(s);
	return r;
}

/* --- health and life --- */

static int memory_ping(struct store *base, struct err *e)
{
	(void)base;
	(void)e;
	return 0;
}

static void memory_free(struct store *base)
{
	struct store_memory *s = self(base);
	calls_wait(&s->calls);
	table_free(&s->links, true);
	table_free(&s->links_by_owner, false);
	table_free(&s->aliases, false);
	table_free(&s->replays, true);
	table_free(&s->replays_by_age, false);
	table_free(&s->keys, true);
	table_free(&s->counters, true);
	table_free(&s->constants, true);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static const struct store_ops memory_ops = {
    .free = memory_free,
    .lookup = memory_lookup,
    .apply = memory_apply,
    .list = memory_list,
    .tagged = memory_tagged,
    .set_clicks = memory_set_clicks,
    .keys = memory_keys,
    .lease = memory_lease,
    .constant = memory_constant,
    .ping = memory_ping,
};

int store_memory_open(struct store **ret, struct err *e)
{
	struct store_memory *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "memory ran out");
	s->base.ops = &memory_ops;
	pthread_mutex_init(&s->lock, NULL);
	s->links.order = order_link_id;
	s->links_by_owner.order = order_link_owner;
	s->aliases.order = order_link_name;
	s->replays.order = order_replay;
	s->replays_by_age.order = order_replay_age;
	s->keys.order = order_key;
	s->counters.order = order_name;
	s->constants.order = order_name;
	*ret = &s->base;
	return 0;
}
