/* Links in the store in memory: their names, lists of users and idempotency keys. */
#include "store/memory.h"
#include "store/rules_memory.h"

#include <stdlib.h>

/* --- orders --- */

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

static int order_link_over(const void *a, const void *b)
{
	int order = order_i64(link_over_ms(&((const struct link_node *)a)->link),
	                      link_over_ms(&((const struct link_node *)b)->link));
	return order ? order : order_link_id(a, b);
}

static int order_link_name(const void *a, const void *b)
{
	return str_order(((const struct link_node *)a)->name, ((const struct link_node *)b)->name);
}

static int order_replay(const void *a, const void *b)
{
	const struct replay_node *x = a, *y = b;
	int order = order_u64(x->owner, y->owner);
	return order ? order : str_order(x->key, y->key);
}

static int order_replay_age(const void *a, const void *b)
{
	const struct replay_node *x = a, *y = b;
	int order = order_i64(x->created_ms, y->created_ms);
	return order ? order : order_replay(a, b);
}

static int order_replay_name(const void *a, const void *b)
{
	int order = str_order(((const struct replay_node *)a)->name, ((const struct replay_node *)b)->name);
	return order ? order : order_replay(a, b);
}

static int order_permit(const void *a, const void *b)
{
	const struct permit_node *x = a, *y = b;
	int order = order_u64(x->link, y->link);
	return order ? order : order_u64(x->user, y->user);
}

static int order_rest(const void *a, const void *b)
{
	return str_order(((const struct rest_node *)a)->name, ((const struct rest_node *)b)->name);
}

static int order_rest_end(const void *a, const void *b)
{
	int order = order_i64(((const struct rest_node *)a)->until_ms,
	                      ((const struct rest_node *)b)->until_ms);
	return order ? order : order_rest(a, b);
}

void memory_links_init(struct store_memory *s)
{
	s->links.order = order_link_id;
	s->links_by_owner.order = order_link_owner;
	s->links_by_over.order = order_link_over;
	s->names.order = order_link_name;
	s->permits.order = order_permit;
	s->rests.order = order_rest;
	s->rests_by_end.order = order_rest_end;
	s->replays.order = order_replay;
	s->replays_by_age.order = order_replay_age;
	s->replays_by_name.order = order_replay_name;
}

void memory_links_release(struct store_memory *s)
{
	table_free(&s->links, true);
	table_free(&s->links_by_owner, false);
	table_free(&s->links_by_over, false);
	table_free(&s->names, false);
	table_free(&s->permits, true);
	table_free(&s->rests, true);
	table_free(&s->rests_by_end, false);
	table_free(&s->replays, true);
	table_free(&s->replays_by_age, false);
	table_free(&s->replays_by_name, false);
}

/* --- nodes --- */

static struct link_node *link_node_new(const struct link_record *link, struct str name)
{
	struct link_node *node = malloc(sizeof(*node) + name.len + link_bytes(link));
	if (!node)
		return NULL;
	node->link = *link;
	node->name = name;
	char *at = node->text;
	str_place(&node->name, &at);
	node->link.key = link->is_alias ? node->name : STR_NULL;
	str_place(&node->link.user_name, &at);
	str_place(&node->link.url, &at);
	str_place(&node->link.expired_url, &at);
	str_place(&node->link.password, &at);
	str_place(&node->link.title, &at);
	str_place(&node->link.note, &at);
	str_place(&node->link.tags, &at);
	return node;
}

static struct replay_node *replay_node_copy(const struct replay_node *from)
{
	struct replay_node *node = malloc(sizeof(*node) + from->key.len + from->name.len);
	if (!node)
		return NULL;
	*node = *from;
	char *at = node->text;
	str_place(&node->key, &at);
	str_place(&node->name, &at);
	return node;
}

static struct replay_node *replay_node_new(const struct store_write *w)
{
	struct replay_node node = {.owner = w->idempotency_owner,
	                           .key = w->idempotency_key,
	                           .link = w->link.id,
	                           .name = w->link.key,
	                           .created_ms = w->now_ms};
	memcpy(node.fingerprint, w->fingerprint, FINGERPRINT_BYTES);
	return replay_node_copy(&node);
}

static struct rest_node *rest_node_copy(const struct rest_node *from)
{
	struct rest_node *node = malloc(sizeof(*node) + from->name.len);
	if (!node)
		return NULL;
	*node = *from;
	char *at = node->text;
	str_place(&node->name, &at);
	return node;
}

/* --- finding --- */

struct link_node *memory_link_by_id(const struct store_memory *s, uint64_t id)
{
	struct link_node like = {.link.id = id};
	return table_find(&s->links, &like);
}

static struct link_node *link_by_name(const struct store_memory *s, struct str name)
{
	struct link_node like = {.name = name};
	return table_find(&s->names, &like);
}

static struct link_node *generated_by_id(const struct store_memory *s, uint64_t id)
{
	struct link_node *node = memory_link_by_id(s, id);
	return node && !node->link.is_alias ? node : NULL;
}

struct link_node *memory_link_find(const struct store_memory *s, struct link_ref ref)
{
	if (!ref.key.ptr)
		return memory_link_by_id(s, ref.id);
	struct link_node *node = generated_by_id(s, ref.id);
	if (!node)
		node = link_by_name(s, ref.key);
	return node && (node->link.is_alias || node->link.id == ref.id) ? node : NULL;
}

int memory_link_give(const struct link_node *node, struct arena *arena, struct link_record *ret)
{
	struct link_record link = node->link;
	int r = link_own(arena, &link);
	if (r == 0)
		*ret = link;
	return r;
}

static struct rest_node *rest_by_name(const struct store_memory *s, struct str name)
{
	struct rest_node like = {.name = name};
	return table_find(&s->rests, &like);
}

static struct permit_node *permit_find(const struct store_memory *s, uint64_t link, uint64_t user)
{
	struct permit_node like = {.link = link, .user = user};
	return table_find(&s->permits, &like);
}

bool memory_is_permitted(const struct store_memory *s, uint64_t link, uint64_t user)
{
	return permit_find(s, link, user) != NULL;
}

/* --- what is forgotten --- */

void memory_replay_remove(struct store_memory *s, struct replay_node *node)
{
	table_remove(&s->replays, node);
	table_remove(&s->replays_by_age, node);
	table_remove(&s->replays_by_name, node);
	free(node);
}

static bool replay_reserve(struct store_memory *s)
{
	return table_reserve(&s->replays) && table_reserve(&s->replays_by_age) &&
	       table_reserve(&s->replays_by_name);
}

static void replay_add(struct store_memory *s, struct replay_node *node) /* room was reserved */
{
	table_add(&s->replays, node);
	table_add(&s->replays_by_age, node);
	table_add(&s->replays_by_name, node);
}

static void replays_purge(struct store_memory *s, int64_t now_ms)
{
	for (int i = 0; i < REPLAY_PURGE_PER_CREATE && s->replays_by_age.count > 0; i++) {
		struct replay_node *oldest = s->replays_by_age.items[0];
		if (!replay_is_dead(oldest->created_ms, now_ms))
			return;
		memory_replay_remove(s, oldest);
	}
}

void memory_rest_remove(struct store_memory *s, struct rest_node *node)
{
	table_remove(&s->rests, node);
	table_remove(&s->rests_by_end, node);
	free(node);
}

static void rests_purge(struct store_memory *s, int64_t now_ms)
{
	for (int i = 0; i < REST_PURGE_PER_REAP && s->rests_by_end.count > 0; i++) {
		struct rest_node *first = s->rests_by_end.items[0];
		if (first->until_ms > now_ms)
			return;
		memory_rest_remove(s, first);
	}
}

/* --- changes --- */

static struct replay_node *replay_find(const struct store_memory *s, const struct store_write *w)
{
	struct replay_node like = {.owner = w->idempotency_owner, .key = w->idempotency_key};
	return table_find(&s->replays, &like);
}

static int replay(const struct store_memory *s, struct store_write *w, const struct replay_node *earlier)
{
	if (memcmp(earlier->fingerprint, w->fingerprint, FINGERPRINT_BYTES) != 0)
		return ERR_INVALID;
	w->replayed = true;
	const struct link_node *node = memory_link_by_id(s, earlier->link);
	return node ? memory_link_give(node, w->arena, &w->link) : ERR_NOT_FOUND;
}

static void permits_remove(struct store_memory *s, uint64_t link)
{
	struct permit_node first = {.link = link}, after = {.link = link + 1};
	size_t at = table_position(&s->permits, &first);
	table_cut(&s->permits, at, table_position(&s->permits, &after) - at);
}

static bool link_will_be_over(const struct link_record *link)
{
	return link_over_ms(link) > 0;
}

static bool link_reserve(struct store_memory *s)
{
	return table_reserve(&s->links) && table_reserve(&s->links_by_owner) &&
	       table_reserve(&s->links_by_over) && table_reserve(&s->names);
}

static void link_add(struct store_memory *s, struct link_node *node) /* room was reserved */
{
	table_add(&s->links, node);
	table_add(&s->links_by_owner, node);
	if (link_will_be_over(&node->link))
		table_add(&s->links_by_over, node);
	table_add(&s->names, node);
}

static void link_take(struct store_memory *s, struct link_node *node)
{
	table_remove(&s->links, node);
	table_remove(&s->links_by_owner, node);
	if (link_will_be_over(&node->link))
		table_remove(&s->links_by_over, node);
	table_remove(&s->names, node);
	free(node);
}

void memory_link_remove(struct store_memory *s, struct link_node *node)
{
	permits_remove(s, node->link.id);
	link_take(s, node);
}

static bool key_was_given(const struct store_memory *s, const struct store_write *w, bool in_ring)
{
	const struct link_node *row = memory_link_by_id(s, w->ref.id);
	if (row)
		return !row->link.is_alias;
	return !in_ring && key_is_spent(w, memory_counter_next(s, STORE_LINK_COUNTER));
}

static bool name_is_taken(const struct store_write *w, const struct rest_node *rest,
                          const struct link_node *holder)
{
	return (rest && !rest_allows(rest->owner, rest->until_ms, w)) ||
	       (holder && !holder_yields(&holder->link, w));
}

static int create_new(struct store_memory *s, const struct store_write *w, struct replay_node *dead,
                      bool in_ring)
{
	struct rest_node *rest = rest_by_name(s, w->ref.key);
	struct link_node *holder = link_by_name(s, w->ref.key);
	if (name_is_taken(w, rest, holder) || memory_link_by_id(s, w->link.id) ||
	    (alias_decodes(w) && key_was_given(s, w, in_ring)))
		return ERR_CONFLICT;
	bool remember = w->idempotency_key.ptr;
	struct link_record fresh = w->link;
	fresh.clicks = 0;
	struct link_node *node = link_node_new(&fresh, w->link.key);
	struct replay_node *memory = remember ? replay_node_new(w) : NULL;
	if (!node || (remember && !memory) || !link_reserve(s) || !replay_reserve(s)) {
		free(node);
		free(memory);
		return ERR_NOMEM;
	}
	if (rest)
		memory_rest_remove(s, rest);
	if (holder)
		memory_link_remove(s, holder);
	link_add(s, node);
	if (dead)
		memory_replay_remove(s, dead);
	if (memory)
		replay_add(s, memory);
	replays_purge(s, w->now_ms);
	return 0;
}

static int link_create(struct store_memory *s, struct store_write *w, bool in_ring)
{
	create_check(w);
	struct replay_node *earlier = w->idempotency_key.ptr ? replay_find(s, w) : NULL;
	if (earlier && !replay_is_dead(earlier->created_ms, w->now_ms))
		return replay(s, w, earlier);
	return w->replay_only ? ERR_LIMIT : create_new(s, w, earlier, in_ring);
}

static int target_find(const struct store_memory *s, const struct store_write *w, struct link_node **ret)
{
	*ret = memory_link_find(s, w->ref);
	return *ret ? target_check(w, &(*ret)->link) : ERR_NOT_FOUND;
}

static int link_update(struct store_memory *s, struct store_write *w)
{
	struct link_node *node;
	int r = target_find(s, w, &node);
	if (r != 0)
		return r;
	struct link_record link = node->link;
	fields_take(w, &link);
	struct link_node *changed = link_node_new(&link, node->name);
	if (!changed || !link_reserve(s) || memory_link_give(changed, w->arena, &w->link) != 0) {
		free(changed);
		return ERR_NOMEM;
	}
	link_take(s, node);
	link_add(s, changed);
	return 0;
}

static int link_delete(struct store_memory *s, struct store_write *w)
{
	struct link_node *node;
	int r = target_find(s, w, &node);
	if (r == 0)
		r = memory_link_give(node, w->arena, &w->link);
	if (r == 0)
		memory_link_remove(s, node);
	return r;
}

static bool rest_reserve(struct store_memory *s)
{
	return table_reserve(&s->rests) && table_reserve(&s->rests_by_end);
}

static void rest_add(struct store_memory *s, struct rest_node *node) /* room was reserved */
{
	table_add(&s->rests, node);
	table_add(&s->rests_by_end, node);
}

/* The rest that a link's alias has to take, or NULL, and room for it: 0 or ERR_NOMEM. */
static int rest_make(struct store_memory *s, const struct store_write *w, const struct link_record *link,
                     struct rest_node **ret)
{
	int64_t until_ms = rest_until_ms(link_over_ms(link), w->rest_ms);
	*ret = NULL;
	if (!link->is_alias || until_ms <= w->now_ms)
		return 0;
	struct rest_node rest = {.name = link->key, .owner = link->owner, .until_ms = until_ms};
	if (rest_reserve(s))
		*ret = rest_node_copy(&rest);
	return *ret ? 0 : ERR_NOMEM;
}

static int link_reap(struct store_memory *s, struct store_write *w)
{
	struct link_node *node;
	struct rest_node *rest = NULL;
	rests_purge(s, w->now_ms);
	int r = target_find(s, w, &node);
	if (r == 0)
		r = rest_make(s, w, &node->link, &rest);
	if (r == 0)
		r = memory_link_give(node, w->arena, &w->link);
	if (r != 0) {
		free(rest);
		return r;
	}
	memory_link_remove(s, node);
	if (rest)
		rest_add(s, rest);
	return 0;
}

/* --- lists of users --- */

static size_t list_length(const struct store_memory *s, uint64_t link)
{
	struct permit_node first = {.link = link}, after = {.link = link + 1};
	return table_position(&s->permits, &after) - table_position(&s->permits, &first);
}

static int list_put(struct store_memory *s, uint64_t link, uint64_t user)
{
	struct permit_node *permit = malloc(sizeof(*permit));
	if (!permit || !table_reserve(&s->permits)) {
		free(permit);
		return ERR_NOMEM;
	}
	*permit = (struct permit_node){.link = link, .user = user};
	table_add(&s->permits, permit);
	return 0;
}

static int list_add(struct store_memory *s, uint64_t link, uint64_t user, bool in_ring)
{
	if (!in_ring && !memory_user_by_id(s, user))
		return ERR_INVALID;
	return list_length(s, link) >= PERMITTED_MAX ? ERR_LIMIT : list_put(s, link, user);
}

static int list_change(struct store_memory *s, struct store_write *w, bool in_ring)
{
	struct link_node *node;
	struct link_record link;
	int r = target_find(s, w, &node);
	if (r == 0)
		r = memory_link_give(node, w->arena, &link);
	if (r != 0)
		return r;
	struct permit_node *permit = permit_find(s, link.id, w->user.id);
	if (w->kind == STORE_PERMIT && !permit)
		r = list_add(s, link.id, w->user.id, in_ring);
	if (w->kind == STORE_FORBID && permit)
		table_cut(&s->permits, table_position(&s->permits, permit), 1);
	if (r == 0)
		w->link = link;
	return r;
}

int memory_change_link(struct store_memory *s, struct store_write *w, bool in_ring)
{
	switch (w->kind) {
	case STORE_LINK_CREATE: return link_create(s, w, in_ring);
	case STORE_LINK_UPDATE: return link_update(s, w);
	case STORE_LINK_DELETE: return link_delete(s, w);
	case STORE_LINK_REAP: return link_reap(s, w);
	case STORE_PERMIT:
	case STORE_FORBID: return list_change(s, w, in_ring);
	default: ASSERT(false);
	}
}

/* --- what comes from another part --- */

int memory_link_put(struct store_memory *s, const struct link_record *link, struct str name,
                    const uint64_t *users, size_t user_count)
{
	if (link_by_name(s, name) || memory_link_by_id(s, link->id))
		return 0;
	struct link_node *node = link_node_new(link, name);
	if (!node || !link_reserve(s)) {
		free(node);
		return ERR_NOMEM;
	}
	link_add(s, node);
	int r = 0;
	for (size_t i = 0; r == 0 && i < user_count; i++)
		r = list_put(s, link->id, users[i]);
	if (r != 0)
		memory_link_remove(s, node);
	return r;
}

int memory_rest_put(struct store_memory *s, const struct rest_node *rest)
{
	if (table_find(&s->rests, rest))
		return 0;
	struct rest_node *node = rest_node_copy(rest);
	if (!node || !rest_reserve(s)) {
		free(node);
		return ERR_NOMEM;
	}
	rest_add(s, node);
	return 0;
}

int memory_replay_put(struct store_memory *s, const struct replay_node *replay)
{
	if (table_find(&s->replays, replay))
		return 0;
	struct replay_node *node = replay_node_copy(replay);
	if (!node || !replay_reserve(s)) {
		free(node);
		return ERR_NOMEM;
	}
	replay_add(s, node);
	return 0;
}
