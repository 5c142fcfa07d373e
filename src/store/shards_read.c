/* Reads of links, and what asks every database: lists, tags, totals, keys that come back. */
#include "store/postgres_read.h"
#include "store/shards.h"

#include <stdlib.h>

/* --- links by their names, each in its database, and by their rows, in all --- */

/* The reads as they are handed to databases: those of one stand side by side, and share an arena that no
 * other thread touches. */
struct spread {
	const struct shards_view *v;
	struct arena arenas[SHARD_KINDS];
	struct store_lookup *copies;
	size_t *reads; /* whose copy it is */
	size_t begin[SHARD_KINDS + 1];
};

static void spread_release(struct spread *sp)
{
	for (size_t i = 0; i < SHARD_KINDS; i++)
		arena_release(&sp->arenas[i]);
	free(sp->copies);
	free(sp->reads);
}

/* The caller's reads, and which of them are still to be done. */
struct lookups {
	struct store_lookup *reads;
	bool *pending;
	size_t n;
};

static uint64_t read_shards(const struct shards_view *v, const struct store_lookup *read)
{
	return read->ref.key.ptr ? (uint64_t)1 << v->owner[slot_of(read->ref.key)] : v->owners;
}

static int spread_init(struct spread *sp, const struct shards_view *v, const struct lookups *l)
{
	size_t count = 0, at = 0;
	*sp = (struct spread){.v = v};
	for (size_t i = 0; i < l->n; i++)
		count += l->pending[i] ? (size_t)__builtin_popcountll(read_shards(v, &l->reads[i])) : 0;
	sp->copies = calloc(count + 1, sizeof(*sp->copies));
	sp->reads = calloc(count + 1, sizeof(*sp->reads));
	if (!sp->copies || !sp->reads)
		return ERR_NOMEM;
	for (size_t shard = 0; shard < SHARD_KINDS; shard++) {
		sp->begin[shard] = at;
		for (size_t i = 0; i < l->n; i++) {
			if (!l->pending[i] || !shards_has(read_shards(v, &l->reads[i]), shard))
				continue;
			sp->copies[at] = l->reads[i];
			sp->copies[at].arena = &sp->arenas[shard];
			sp->reads[at++] = i;
		}
	}
	sp->begin[SHARD_KINDS] = at;
	return 0;
}

static int lookup_call(void *ctx, struct store_postgres *db, size_t number)
{
	const struct spread *sp = ctx;
	size_t begin = sp->begin[number];
	return postgres_lookup(db, &sp->v->rows[number], &sp->copies[begin], sp->begin[number + 1] - begin);
}

/* What is there counts more than what failed, and that more than what is not there. */
static void read_take(struct store_lookup *read, const struct store_lookup *copy, int result)
{
	int found = result ? result : copy->result;
	if (found == ERR_NOT_FOUND || (found != 0 && read->result == 0))
		return;
	read->result = found;
	if (found != 0)
		return;
	read->link = copy->link;
	read->permitted = copy->permitted;
	read->old = copy->old;
	read->result = link_own(read->arena, &read->link);
}

/* One database has everything: nothing need be copied. */
static int lookup_whole(struct store_shards *s, const struct shards_view *v, uint64_t *stale,
                        const struct lookups *l)
{
	int r = postgres_lookup(shards_registry(s), &v->rows[s->registry], l->reads, l->n);
	*stale |= r == ERR_CONFLICT ? (uint64_t)1 << s->registry : 0;
	return r;
}

static int lookup_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	const struct lookups *l = ctx;
	CLEANUP(spread_release) struct spread sp = {0};
	int results[SHARD_KINDS];
	uint64_t asked = 0, refused = 0;
	if (v->is_whole)
		return lookup_whole(s, v, stale, l);
	int r = spread_init(&sp, v, l);
	if (r != 0)
		return r;
	for (size_t i = 0; i < l->n; i++) {
		if (!l->pending[i])
			continue;
		l->reads[i].result = ERR_NOT_FOUND;
		l->reads[i].permitted = l->reads[i].old = false;
	}
	for (size_t shard = 0; shard < SHARD_KINDS; shard++) {
		if (sp.begin[shard] < sp.begin[shard + 1])
			asked |= (uint64_t)1 << shard;
	}
	shards_each(s, asked & ~STALE_ALL, lookup_call, &sp, results);
	refused = asked & STALE_ALL;
	(void)shards_result(asked, results, &refused);
	memset(l->pending, 0, l->n * sizeof(*l->pending));
	for (size_t shard = 0; shard < SHARD_KINDS; shard++) {
		for (size_t i = sp.begin[shard]; i < sp.begin[shard + 1]; i++) {
			if (shards_has(refused, shard))
				l->pending[sp.reads[i]] = true;
			else
				read_take(&l->reads[sp.reads[i]], &sp.copies[i], results[shard]);
		}
	}
	*stale |= refused;
	return refused ? ERR_CONFLICT : 0;
}

int shards_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	struct lookups l = {reads, calloc(n + 1, sizeof(bool)), n};
	if (!l.pending)
		return ERR_NOMEM;
	memset(l.pending, true, n);
	int r = n > 0 ? shards_try(shards_of(base), lookup_once, &l) : 0;
	bool is_whole_failure = r != 0;
	for (size_t i = 0; i < n; i++)
		is_whole_failure &= l.pending[i];
	for (size_t i = 0; r == ERR_UNAVAILABLE && !is_whole_failure && i < n; i++) {
		if (l.pending[i])
			reads[i].result = r;
	}
	free(l.pending);
	return r == ERR_UNAVAILABLE && !is_whole_failure ? 0 : r;
}

/* --- pages --- */

/* The same page of each database, as a queue that is eaten from the front. */
struct pages {
	const struct shards_view *v;
	struct store_list of[SHARDS_MAX];
	struct arena arenas[SHARDS_MAX];
	size_t at[SHARDS_MAX];
};

static void pages_freep(struct pages **pages)
{
	for (size_t i = 0; *pages && i < SHARDS_MAX; i++)
		arena_release(&(*pages)->arenas[i]);
	free(*pages);
}

static int list_call(void *ctx, struct store_postgres *db, size_t number)
{
	struct pages *pages = ctx;
	return postgres_list(db, &pages->v->rows[number], &pages->of[number]);
}

static bool is_before(const struct link_record *a, const struct link_record *b)
{
	return a->created_ms != b->created_ms ? a->created_ms > b->created_ms : a->id > b->id;
}

/* The link that stands first; NULL when one of the queues has run out and may go on, or all are empty. */
static const struct link_record *pages_pop(struct pages *pages)
{
	const struct link_record *first = NULL;
	size_t from = 0;
	for (size_t i = 0; i < SHARDS_MAX; i++) {
		const struct store_list *page = &pages->of[i];
		if (pages->at[i] == page->count && page->next.ptr)
			return NULL;
		if (pages->at[i] < page->count && (!first || is_before(&page->links[pages->at[i]], first))) {
			first = &page->links[pages->at[i]];
			from = i;
		}
	}
	pages->at[from] += first != NULL;
	return first;
}

static bool pages_go_on(const struct pages *pages)
{
	for (size_t i = 0; i < SHARDS_MAX; i++) {
		if (pages->at[i] < pages->of[i].count || pages->of[i].next.ptr)
			return true;
	}
	return false;
}

static int pages_merge(struct pages *pages, struct store_list *page)
{
	struct link_record *links = NULL;
	const struct link_record *link;
	size_t count = 0, cap = 0, bytes = 0;
	while (!page_is_full(page, count, bytes) && (link = pages_pop(pages)) != NULL) {
		links = array_room(page->arena, links, count, &cap, sizeof(*links));
		if (!links)
			return ERR_NOMEM;
		links[count] = *link;
		if (!link->is_alias)
			links[count].key = STR_NULL;
		if (link_own(page->arena, &links[count]) != 0)
			return ERR_NOMEM;
		bytes += link_bytes(&links[count++]);
	}
	struct str next = STR_NULL;
	if (count > 0 && pages_go_on(pages)) {
		next = postgres_cursor_format(page->arena, &links[count - 1]);
		if (!next.ptr)
			return ERR_NOMEM;
	}
	page->links = links;
	page->count = count;
	page->next = next;
	return 0;
}

static int list_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	struct store_list *page = ctx;
	CLEANUP(pages_freep) struct pages *pages = calloc(1, sizeof(*pages));
	int results[SHARD_KINDS];
	if (!pages)
		return ERR_NOMEM;
	pages->v = v;
	for (size_t i = 0; i < SHARDS_MAX; i++) {
		pages->of[i] = *page;
		pages->of[i].arena = &pages->arenas[i];
		pages->of[i].count = 0;
		pages->of[i].next = STR_NULL;
	}
	*stale |= v->owners & STALE_ALL;
	shards_each(s, v->owners & ~STALE_ALL, list_call, pages, results);
	int r = shards_result(v->owners & ~STALE_ALL, results, stale);
	return r ? r : pages_merge(pages, page);
}

int shards_list(struct store *base, struct store_list *page)
{
	return shards_try(shards_of(base), list_once, page);
}

/* --- ids from all databases --- */

struct gather {
	const struct shards_view *v;
	shards_call_fn *call;
	int (*order)(const void *a, const void *b);
	struct str tag;
	const struct store_over *over;
	size_t max;
	struct ranked_id *of[SHARDS_MAX]; /* room for `max` each */
	size_t counts[SHARDS_MAX];
	uint64_t totals[SHARDS_MAX];
};

static void gather_release(struct gather *g)
{
	for (size_t i = 0; i < SHARDS_MAX; i++)
		free(g->of[i]);
}

static int ranked_order(const void *a, const void *b)
{
	const struct ranked_id *x = a, *y = b;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

static int ranked_order_back(const void *a, const void *b)
{
	return ranked_order(b, a);
}

static int tagged_call(void *ctx, struct store_postgres *db, size_t number)
{
	struct gather *g = ctx;
	return postgres_tagged(db, &g->v->rows[number], g->tag, g->max, g->of[number], &g->counts[number]);
}

static int over_call(void *ctx, struct store_postgres *db, size_t number)
{
	struct gather *g = ctx;
	return postgres_over(db, &g->v->rows[number], g->over, g->of[number], &g->counts[number],
	                     &g->totals[number]);
}

static int gather_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	struct gather *g = ctx;
	int results[SHARD_KINDS];
	g->v = v;
	memset(g->counts, 0, sizeof(g->counts));
	memset(g->totals, 0, sizeof(g->totals));
	for (size_t i = 0; i < s->count; i++) {
		if (!g->of[i] && shards_has(v->owners, i))
			g->of[i] = calloc(g->max + 1, sizeof(*g->of[i]));
		if (!g->of[i] && shards_has(v->owners, i))
			return ERR_NOMEM;
	}
	*stale |= v->owners & STALE_ALL;
	shards_each(s, v->owners & ~STALE_ALL, g->call, g, results);
	return shards_result(v->owners & ~STALE_ALL, results, stale);
}

/* The best `max` of all. */
static int gather(struct store_shards *s, struct gather *g, uint64_t *ret_ids, size_t *ret_count,
                  uint64_t *ret_total)
{
	int r = shards_try(s, gather_once, g);
	size_t count = 0;
	for (size_t i = 0; i < s->count; i++)
		count += g->counts[i];
	struct ranked_id *all = calloc(count + 1, sizeof(*all));
	if (r != 0 || !all) {
		free(all);
		return r ? r : ERR_NOMEM;
	}
	uint64_t total = 0;
	count = 0;
	for (size_t i = 0; i < s->count; i++) {
		for (size_t k = 0; k < g->counts[i]; k++)
			all[count++] = g->of[i][k];
		total += g->totals[i];
	}
	qsort(all, count, sizeof(*all), g->order);
	*ret_count = MIN(count, g->max);
	*ret_total = total;
	for (size_t i = 0; i < *ret_count; i++)
		ret_ids[i] = all[i].id;
	free(all);
	return 0;
}

int shards_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	uint64_t none;
	CLEANUP(gather_release)
	struct gather g = {.call = tagged_call, .order = ranked_order_back, .tag = tag, .max = max};
	return gather(shards_of(base), &g, ret_ids, ret_count, &none);
}

int shards_over(struct store *base, struct store_over *over)
{
	uint64_t total;
	CLEANUP(gather_release)
	struct gather g = {.call = over_call, .order = ranked_order, .over = over, .max = over->max};
	int r = gather(shards_of(base), &g, over->ids, &over->count, &total);
	if (r == 0 && over->count_all)
		over->total = total;
	return r;
}

/* --- who may follow a link --- */

struct listed {
	const struct shards_view *v;
	uint64_t link;
	struct arena arenas[SHARDS_MAX];
	uint64_t *of[SHARDS_MAX];
	size_t counts[SHARDS_MAX];
	struct arena *arena;
	uint64_t *users;
	size_t count;
};

static int permitted_call(void *ctx, struct store_postgres *db, size_t number)
{
	struct listed *l = ctx;
	return postgres_permitted(db, &l->v->rows[number], l->link, &l->arenas[number], &l->of[number],
	                          &l->counts[number]);
}

static int permitted_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	struct listed *l = ctx;
	int results[SHARD_KINDS];
	l->v = v;
	l->count = 0;
	memset(l->counts, 0, sizeof(l->counts));
	*stale |= v->owners & STALE_ALL;
	shards_each(s, v->owners & ~STALE_ALL, permitted_call, l, results);
	int r = shards_result(v->owners & ~STALE_ALL, results, stale);
	for (size_t i = 0; r == 0 && i < s->count; i++) {
		if (l->counts[i] == 0)
			continue;
		l->users = arena_alloc(l->arena, l->counts[i] * sizeof(*l->users));
		if (!l->users)
			return ERR_NOMEM;
		l->count = l->counts[i];
		memcpy(l->users, l->of[i], l->count * sizeof(*l->users));
	}
	return r;
}

int shards_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                     size_t *ret_count)
{
	struct listed l = {.link = link, .arena = arena};
	int r = shards_try(shards_of(base), permitted_once, &l);
	for (size_t i = 0; i < SHARDS_MAX; i++)
		arena_release(&l.arenas[i]);
	if (r == 0) {
		*ret = l.users;
		*ret_count = l.count;
	}
	return r;
}

/* --- totals --- */

struct totals {
	const struct shards_view *v;
	uint64_t node;
	const struct store_count *counts;
	size_t n;
};

/* One whose slot is frozen waits like any change. */
static int clicks_call(void *ctx, struct store_postgres *db, size_t number)
{
	const struct totals *t = ctx;
	int r = postgres_set_clicks(db, &t->v->rows[number], t->node, t->counts, t->n);
	return r == ERR_BUSY ? ERR_CONFLICT : r;
}

static int clicks_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	struct totals *t = ctx;
	int results[SHARD_KINDS];
	t->v = v;
	*stale |= v->owners & STALE_ALL;
	shards_each(s, v->owners & ~STALE_ALL, clicks_call, t, results);
	return shards_result(v->owners & ~STALE_ALL, results, stale);
}

int shards_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct totals t = {.node = node, .counts = counts, .n = n};
	return shards_try(shards_of(base), clicks_once, &t);
}

/* --- keys that come back --- */

struct claim {
	int64_t now_ms;
	uint64_t rest_ms;
	size_t max;
	uint64_t *ids;
	size_t count;
	unsigned turn;
};

/* Each time another one is asked first. One that fails keeps its keys. */
static int claim_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	struct claim *c = ctx;
	int results[SHARD_KINDS] = {0};
	for (size_t i = 0; i < s->count && c->count < c->max; i++) {
		size_t number = (c->turn + i) % s->count, more = 0;
		struct store_postgres *db = shard_db(s, number);
		if (!shards_has(v->owners, number))
			continue;
		results[number] = db ? postgres_claim(db, &v->rows[number], c->now_ms, c->rest_ms,
		                                      c->max - c->count, c->ids + c->count, &more)
		                     : ERR_UNAVAILABLE;
		c->count += results[number] == 0 ? more : 0;
	}
	int r = shards_result(v->owners, results, stale);
	return c->count > 0 ? 0 : r;
}

int shards_claim(struct store *base, int64_t now_ms, uint64_t rest_ms, size_t max, uint64_t *ret_ids,
                 size_t *ret_count)
{
	struct store_shards *s = shards_of(base);
	struct claim c = {.now_ms = now_ms,
	                  .rest_ms = rest_ms,
	                  .max = max,
	                  .ids = ret_ids,
	                  .turn = atomic_fetch_add(&s->turn, 1)};
	int r = shards_try(s, claim_once, &c);
	*ret_count = c.count;
	return r;
}
