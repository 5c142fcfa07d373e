/*
 * The role `store` in this process's memory, for tests and for trying curt out. The same answers as any other
 * backend, gone with the process. One mutex guards all of it; what has to be found lies in sorted arrays, so
 * a page of a list costs its own length here too. Tags alone are searched for link by link.
 */
#include "store/backends.h"
#include "store/memory.h"
#include "store/rules.h"
#include "store/tags.h"

#include <stdlib.h>

static struct store_memory *self(struct store *base)
{
	return container_of(base, struct store_memory, base);
}

void memory_enter(struct store_memory *s)
{
	calls_enter(&s->calls);
	pthread_mutex_lock(&s->lock);
}

void memory_leave(struct store_memory *s)
{
	pthread_mutex_unlock(&s->lock);
	calls_leave(&s->calls);
}

/* --- links --- */

void memory_links_read(const struct store_memory *s, struct store_lookup *reads, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct store_lookup *read = &reads[i];
		const struct link_node *node = memory_link_find(s, read->ref);
		read->result = node ? memory_link_give(node, read->arena, &read->link) : ERR_NOT_FOUND;
		read->permitted = read->result == 0 && read->link.is_private &&
		                  memory_is_permitted(s, read->link.id, read->user);
	}
}

static int memory_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	memory_links_read(s, reads, n);
	memory_leave(s);
	return 0;
}

void memory_change(struct store_memory *s, struct store_write *writes, size_t n, bool in_ring)
{
	for (size_t i = 0; i < n; i++) {
		struct store_write *w = &writes[i];
		w->replayed = false;
		w->result = store_write_is_link(w->kind) ? memory_change_link(s, w, in_ring)
		                                         : memory_change_account(s, w);
	}
}

static int memory_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	memory_moves_wait(s, writes, n);
	memory_change(s, writes, n, false);
	memory_leave(s);
	return 0;
}

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
		if (!links || memory_link_give(node, page->arena, &links[count]) != 0)
			return ERR_NOMEM;
		links[count].key = node->name; /* of generated ones too (part.h) */
		if (!str_own(page->arena, &links[count].key))
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
	memory_enter(s);
	int r = list_collect(s, page, id_max);
	memory_leave(s);
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
	memory_enter(s);
	int r = tagged_collect(s, tag, max, ret_ids, ret_count);
	memory_leave(s);
	return r;
}

static int memory_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct store_memory *s = self(base);
	(void)node; /* there is one only */
	ASSERT(n <= STORE_COUNTS_MAX);
	memory_enter(s);
	memory_moves_wait_rows(s, counts, n);
	for (size_t i = 0; i < n; i++) {
		struct link_node *counted = memory_link_by_id(s, counts[i].id);
		if (counted)
			counted->link.clicks = counts[i].clicks;
	}
	memory_leave(s);
	return 0;
}

static int permitted_collect(const struct store_memory *s, uint64_t link, struct arena *arena, uint64_t **ret,
                             size_t *ret_count)
{
	struct permit_node first = {.link = link};
	uint64_t *users = NULL;
	size_t count = 0, cap = 0;
	for (size_t at = table_position(&s->permits, &first); at < s->permits.count; at++) {
		const struct permit_node *node = s->permits.items[at];
		if (node->link != link)
			break;
		users = array_room(arena, users, count, &cap, sizeof(*users));
		if (!users)
			return ERR_NOMEM;
		users[count++] = node->user;
	}
	*ret = users;
	*ret_count = count;
	return 0;
}

static int memory_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                            size_t *ret_count)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	int r = permitted_collect(s, link, arena, ret, ret_count);
	memory_leave(s);
	return r;
}

static void over_collect(const struct store_memory *s, struct store_over *over)
{
	struct link_node after = {.link = {.expires_ms = over->now_ms, .id = UINT64_MAX}};
	size_t end = over->now_ms > 0 ? table_position(&s->links_by_over, &after) : 0;
	over->count = MIN(end, over->max);
	for (size_t i = 0; i < over->count; i++)
		over->ids[i] = ((const struct link_node *)s->links_by_over.items[i])->link.id;
	if (over->count_all)
		over->total = end;
}

static int memory_over(struct store *base, struct store_over *over)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	over_collect(s, over);
	memory_leave(s);
	return 0;
}

/* --- accounts --- */

static int users_collect(const struct store_memory *s, struct store_users *page)
{
	struct user_node first = {.user.id = page->after + 1};
	struct user_record *users = NULL;
	size_t at = page->after == UINT64_MAX ? s->users.count : table_position(&s->users, &first);
	size_t count = 0, cap = 0;
	for (; at < s->users.count && count < page->limit; at++, count++) {
		users = array_room(page->arena, users, count, &cap, sizeof(*users));
		if (!users || memory_user_give(s->users.items[at], page->arena, &users[count]) != 0)
			return ERR_NOMEM;
	}
	page->users = users;
	page->count = count;
	page->more = at < s->users.count;
	return 0;
}

static int memory_users(struct store *base, struct store_users *page)
{
	struct store_memory *s = self(base);
	if (page->limit == 0)
		return ERR_INVALID;
	memory_enter(s);
	int r = users_collect(s, page);
	memory_leave(s);
	return r;
}

static int memory_keys(struct store *base, struct store_keys *page)
{
	struct store_memory *s = self(base);
	if (page->limit == 0)
		return ERR_INVALID;
	memory_enter(s);
	int r = memory_keys_collect(s, page);
	memory_leave(s);
	return r;
}

static int memory_accounts(struct store *base, struct store_account *reads, size_t n, struct arena *arena)
{
	struct store_memory *s = self(base);
	memory_enter(s);
	for (size_t i = 0; i < n; i++)
		reads[i].result = memory_account_find(s, &reads[i], arena);
	memory_leave(s);
	return 0;
}

/* --- counters and constants --- */

static int order_name(const void *a, const void *b)
{
	return str_order(((const struct named_node *)a)->name, ((const struct named_node *)b)->name);
}

static struct named_node *named_node_new(struct str name, struct str value)
{
	struct named_node *node = malloc(sizeof(*node) + name.len + value.len);
	if (!node)
		return NULL;
	node->name = name;
	node->value = value;
	node->next = COUNTER_FIRST;
	char *at = node->text;
	str_place(&node->name, &at);
	str_place(&node->value, &at);
	return node;
}

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

uint64_t memory_counter_next(const struct store_memory *s, struct str name)
{
	const struct named_node *node = table_find(&s->counters, &(struct named_node){.name = name});
	return node ? node->next : COUNTER_FIRST;
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
	memory_enter(s);
	int r = lease(s, counter, count, ret_first);
	memory_leave(s);
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
	memory_enter(s);
	int r = constant(s, name, value, len);
	memory_leave(s);
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
	memory_links_release(s);
	memory_accounts_release(s);
	memory_part_release(s);
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
    .permitted = memory_permitted,
    .over = memory_over,
    .users = memory_users,
    .keys = memory_keys,
    .accounts = memory_accounts,
    .lease = memory_lease,
    .constant = memory_constant,
    .ping = memory_ping,
    .part = &memory_part_ops,
};

int store_memory_open(struct store **ret, struct err *e)
{
	struct store_memory *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "memory ran out");
	s->base.ops = &memory_ops;
	pthread_mutex_init(&s->lock, NULL);
	memory_links_init(s);
	memory_accounts_init(s);
	memory_part_init(s);
	s->counters.order = order_name;
	s->constants.order = order_name;
	*ret = &s->base;
	return 0;
}
