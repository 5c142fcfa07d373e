/* Reads that are about no key in particular: all parts are asked. */
#include "store/ring_core.h"
#include "store/rules.h"

#include <stdlib.h>

/* --- pages --- */

/* The same page of each part, in each phase, as a queue that is eaten from the front. */
struct pages {
	struct store_list of[PHASES_MAX][RING_PARTS_MAX];
	struct arena arenas[PHASES_MAX][RING_PARTS_MAX];
	size_t at[PHASES_MAX][RING_PARTS_MAX];
	int phase;
};

static void pages_freep(struct pages **pages)
{
	for (int phase = 0; *pages && phase < PHASES_MAX; phase++) {
		for (size_t i = 0; i < RING_PARTS_MAX; i++)
			arena_release(&(*pages)->arenas[phase][i]);
	}
	free(*pages);
}

static int list_call(void *ctx, struct store *part, size_t number)
{
	struct pages *pages = ctx;
	return store_list(part, &pages->of[pages->phase][number]);
}

/* The front of a queue. */
struct front {
	const struct link_record *link; /* NULL: there is none */
	int phase;
	size_t part;
	bool is_stray;
};

/* A link that lies in a part that is not its own: the part was restored from a backup of another time. */
static bool is_stray(const struct ring_view *v, size_t part, const struct link_record *link)
{
	return view_old(v, link->key) != part && view_new(v, link->key) != part;
}

/* Of a link and a stray of it, the link is first. */
static bool front_before(const struct front *a, const struct front *b, const struct store_part_ops *order)
{
	if (!b->link || order->before(a->link, b->link))
		return true;
	return !a->is_stray && b->is_stray && !order->before(b->link, a->link);
}

/* The front that stands first; none when one of the queues has run out and may go on, or all are empty. */
static struct front pages_first(const struct pages *pages, const struct ring_view *v,
                                const struct store_part_ops *order)
{
	struct front first = {NULL};
	for (int phase = 0; phase <= pages->phase; phase++) {
		for (size_t i = 0; i < RING_PARTS_MAX; i++) {
			const struct store_list *page = &pages->of[phase][i];
			size_t at = pages->at[phase][i];
			if (at == page->count && page->next.ptr)
				return (struct front){NULL};
			if (at == page->count)
				continue;
			struct front front = {&page->links[at], phase, i, is_stray(v, i, &page->links[at])};
			if (front_before(&front, &first, order))
				first = front;
		}
	}
	return first;
}

/* The same link may be in two parts while it moves. */
static void pages_pass(struct pages *pages, uint64_t id)
{
	for (int phase = 0; phase <= pages->phase; phase++) {
		for (size_t i = 0; i < RING_PARTS_MAX; i++) {
			size_t *at = &pages->at[phase][i];
			const struct store_list *page = &pages->of[phase][i];
			*at += *at < page->count && page->links[*at].id == id;
		}
	}
}

static bool pages_go_on(const struct pages *pages)
{
	for (int phase = 0; phase <= pages->phase; phase++) {
		for (size_t i = 0; i < RING_PARTS_MAX; i++) {
			const struct store_list *page = &pages->of[phase][i];
			if (pages->at[phase][i] < page->count || page->next.ptr)
				return true;
		}
	}
	return false;
}

struct merged {
	struct link_record *links;
	size_t count, cap, bytes;
	struct link_record last; /* that was passed */
};

static int merged_add(struct merged *m, struct arena *arena, const struct link_record *link)
{
	m->links = array_room(arena, m->links, m->count, &m->cap, sizeof(*m->links));
	if (!m->links)
		return ERR_NOMEM;
	struct link_record *to = &m->links[m->count];
	*to = *link;
	if (!to->is_alias)
		to->key = STR_NULL;
	if (link_own(arena, to) != 0)
		return ERR_NOMEM;
	m->bytes += link_bytes(to);
	m->count++;
	return 0;
}

static int pages_merge(struct pages *pages, const struct ring_view *v, const struct store_part_ops *order,
                       struct store_list *page)
{
	struct merged m = {NULL};
	struct front first;
	while (!page_is_full(page, m.count, m.bytes) && (first = pages_first(pages, v, order)).link != NULL) {
		m.last = *first.link;
		if (first.is_stray) {
			pages->at[first.phase][first.part]++;
			continue;
		}
		int r = merged_add(&m, page->arena, first.link);
		if (r != 0)
			return r;
		pages_pass(pages, m.last.id);
	}
	struct str next = STR_NULL;
	if (pages_go_on(pages)) {
		next = order->cursor(page->arena, m.count > 0 ? &m.links[m.count - 1] : &m.last);
		if (!next.ptr)
			return ERR_NOMEM;
	}
	page->links = m.links;
	page->count = m.count;
	page->next = next;
	return 0;
}

static int list_once(struct store_ring *s, const struct ring_view *v, void *ctx)
{
	struct store_list *page = ctx;
	CLEANUP(pages_freep) struct pages *pages = calloc(1, sizeof(*pages));
	int results[PART_SLOTS], r = pages ? 0 : ERR_NOMEM;
	for (int phase = 0; r == 0 && phase < view_phases(v); phase++) {
		pages->phase = phase;
		for (size_t i = 0; i < RING_PARTS_MAX; i++) {
			pages->of[phase][i] = *page;
			pages->of[phase][i].arena = &pages->arenas[phase][i];
			pages->of[phase][i].count = 0;
			pages->of[phase][i].next = STR_NULL;
		}
		ring_each(s, view_phase(v, phase), list_call, pages, results);
		r = ring_worst(view_phase(v, phase), results);
	}
	if (r == 0)
		r = ring_view_confirm(s, v);
	return r == 0 ? pages_merge(pages, v, ring_home(s)->ops->part, page) : r;
}

/* A page of strays alone is passed over. */
int ring_list(struct store *base, struct store_list *page)
{
	struct store_list here = *page;
	int r;
	do {
		r = ring_try(ring_self(base), list_once, &here);
		here.cursor = here.next;
	} while (r == 0 && here.count == 0 && here.next.ptr);
	if (r == 0) {
		page->links = here.links;
		page->count = here.count;
		page->next = here.next;
	}
	return r;
}

/* --- ids from all parts --- */

struct found { /* with what orders it */
	int64_t rank;
	uint64_t id;
};

struct gather {
	/* what is asked */
	ring_call_fn *call;
	int (*order)(const void *a, const void *b);
	struct str tag;
	size_t max;
	int64_t now_ms;
	bool count_all;
	/* what came: each part's own, then all of them */
	struct found *of[PART_SLOTS];
	size_t counts[PART_SLOTS];
	uint64_t totals[PART_SLOTS];
	struct found *all;
	size_t count;
	uint64_t total;
};

static void gather_release(struct gather *g)
{
	for (size_t i = 0; i < PART_SLOTS; i++)
		free(g->of[i]);
	free(g->all);
}

static int found_order(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

static int found_order_back(const void *a, const void *b)
{
	return found_order(b, a);
}

/* Adds what the parts of one phase gave; their own lists are empty afterwards. */
static int gather_add(struct gather *g, uint64_t parts)
{
	size_t more = 0;
	for (size_t i = 0; i < PART_SLOTS; i++)
		more += g->counts[i];
	struct found *all = realloc(g->all, (g->count + more + 1) * sizeof(*all));
	if (!all)
		return ERR_NOMEM;
	g->all = all;
	for (size_t i = 0; i < PART_SLOTS; i++) {
		if (!(parts >> i & 1))
			continue;
		for (size_t k = 0; k < g->counts[i]; k++)
			all[g->count++] = g->of[i][k];
		g->total += g->totals[i];
		free(steal(g->of[i]));
		g->counts[i] = g->totals[i] = 0;
	}
	return 0;
}

static int gather_once(struct store_ring *s, const struct ring_view *v, void *ctx)
{
	struct gather *g = ctx;
	int results[PART_SLOTS], r = 0;
	uint64_t asked = 0;
	g->count = g->total = 0;
	for (int phase = 0; r == 0 && phase < view_phases(v); phase++) {
		uint64_t parts = view_phase(v, phase);
		ring_each(s, parts, g->call, g, results);
		r = ring_worst(parts, results);
		for (size_t i = 0; i < PART_SLOTS; i++)
			g->totals[i] = asked >> i & 1 ? 0 : g->totals[i]; /* counted in the first phase */
		asked |= parts;
		if (r == 0)
			r = gather_add(g, parts);
	}
	return r == 0 ? ring_view_confirm(s, v) : r;
}

/* Asks all parts; then the best stand first, each once. */
static int gather(struct store_ring *s, struct gather *g)
{
	int r = ring_try(s, gather_once, g);
	if (r != 0)
		return r;
	qsort(g->all, g->count, sizeof(*g->all), g->order);
	size_t kept = 0;
	for (size_t i = 0; i < g->count; i++) {
		if (kept == 0 || g->all[kept - 1].id != g->all[i].id)
			g->all[kept++] = g->all[i];
	}
	g->count = MIN(kept, g->max);
	return 0;
}

static void gather_ids(const struct gather *g, uint64_t *ret_ids)
{
	for (size_t i = 0; i < g->count; i++)
		ret_ids[i] = g->all[i].id;
}

/* Parts give ids in order, but not what orders them: the links are read to know. */
static int rank_all(struct store *part, int64_t (*rank)(const struct link_record *link), const uint64_t *ids,
                    size_t n, struct found *ret, size_t *ret_count)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct store_lookup *reads = calloc(n + 1, sizeof(*reads));
	if (!reads)
		return ERR_NOMEM;
	for (size_t i = 0; i < n; i++)
		reads[i] = (struct store_lookup){.ref = {.id = ids[i]}, .fresh = true, .arena = &arena};
	int r = n > 0 ? store_lookup(part, reads, n) : 0;
	size_t count = 0;
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (reads[i].result == 0)
			ret[count++] = (struct found){.rank = rank(&reads[i].link), .id = ids[i]};
	}
	*ret_count = count;
	free(reads);
	return r;
}

static int64_t tagged_rank(const struct link_record *link)
{
	return link->created_ms;
}

static int tagged_call(void *ctx, struct store *part, size_t number)
{
	struct gather *g = ctx;
	size_t count = 0;
	uint64_t *ids = calloc(g->max + 1, sizeof(*ids));
	free(g->of[number]); /* of a try that failed */
	g->of[number] = calloc(g->max + 1, sizeof(*g->of[number]));
	int r = ids && g->of[number] ? store_tagged(part, g->tag, g->max, ids, &count) : ERR_NOMEM;
	if (r == 0)
		r = rank_all(part, tagged_rank, ids, count, g->of[number], &g->counts[number]);
	free(ids);
	return r;
}

int ring_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	CLEANUP(gather_release)
	struct gather g = {.call = tagged_call, .order = found_order_back, .tag = tag, .max = max};
	int r = gather(ring_self(base), &g);
	if (r != 0)
		return r;
	gather_ids(&g, ret_ids);
	*ret_count = g.count;
	return 0;
}

static int64_t over_rank(const struct link_record *link)
{
	return link_over_ms(link);
}

static int over_call(void *ctx, struct store *part, size_t number)
{
	struct gather *g = ctx;
	struct store_over over = {.now_ms = g->now_ms,
	                          .max = g->max,
	                          .ids = calloc(g->max + 1, sizeof(*over.ids)),
	                          .count_all = g->count_all};
	free(g->of[number]); /* of a try that failed */
	g->of[number] = calloc(g->max + 1, sizeof(*g->of[number]));
	int r = over.ids && g->of[number] ? store_over(part, &over) : ERR_NOMEM;
	g->totals[number] = over.total;
	if (r == 0)
		r = rank_all(part, over_rank, over.ids, over.count, g->of[number], &g->counts[number]);
	free(over.ids);
	return r;
}

int ring_over(struct store *base, struct store_over *over)
{
	CLEANUP(gather_release)
	struct gather g = {.call = over_call,
	                   .order = found_order,
	                   .max = over->max,
	                   .now_ms = over->now_ms,
	                   .count_all = over->count_all};
	int r = gather(ring_self(base), &g);
	if (r != 0)
		return r;
	gather_ids(&g, over->ids);
	over->count = g.count;
	if (over->count_all)
		over->total = g.total;
	return 0;
}

/* --- who may follow a link --- */

struct listed {
	uint64_t link;
	struct arena arenas[PART_SLOTS];
	uint64_t *users[PART_SLOTS];
	size_t counts[PART_SLOTS];
};

static int permitted_call(void *ctx, struct store *part, size_t number)
{
	struct listed *l = ctx;
	return store_permitted(part, l->link, &l->arenas[number], &l->users[number], &l->counts[number]);
}

static int listed_take(const struct listed *l, struct arena *arena, uint64_t **ret, size_t *ret_count)
{
	*ret = NULL;
	*ret_count = 0;
	for (size_t i = 0; i < PART_SLOTS && *ret_count == 0; i++) {
		if (l->counts[i] == 0)
			continue;
		*ret = arena_alloc(arena, l->counts[i] * sizeof(**ret));
		if (!*ret)
			return ERR_NOMEM;
		memcpy(*ret, l->users[i], l->counts[i] * sizeof(**ret));
		*ret_count = l->counts[i];
	}
	return 0;
}

struct permitted {
	uint64_t link;
	struct arena *arena;
	uint64_t *users;
	size_t count;
};

static int permitted_once(struct store_ring *s, const struct ring_view *v, void *ctx)
{
	struct permitted *p = ctx;
	int results[PART_SLOTS], r = 0;
	p->count = 0;
	for (int phase = 0; r == 0 && p->count == 0 && phase < view_phases(v); phase++) {
		struct listed l = {.link = p->link};
		ring_each(s, view_phase(v, phase), permitted_call, &l, results);
		r = ring_worst(view_phase(v, phase), results);
		if (r == 0)
			r = listed_take(&l, p->arena, &p->users, &p->count);
		for (size_t i = 0; i < PART_SLOTS; i++)
			arena_release(&l.arenas[i]);
	}
	return r == 0 ? ring_view_confirm(s, v) : r;
}

int ring_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret, size_t *ret_count)
{
	struct permitted p = {.link = link, .arena = arena};
	int r = ring_try(ring_self(base), permitted_once, &p);
	if (r == 0) {
		*ret = p.users;
		*ret_count = p.count;
	}
	return r;
}
