/* Lookups of links, and operations that ask every database: lists, tags, click totals, claims. */
#include "store/shards.h"

#include <stdlib.h>

/* --- links by their names, each in its database, and by their rows, in all --- */

static uint64_t lookup_shards(void *item, const struct shards_view *v, uint64_t *ret_stale)
{
	struct store_lookup *read = item;
	uint64_t set = read->ref.key.ptr ? (uint64_t)1 << v->owner[slot_of(read->ref.key)] : v->owners;
	read->result = ERR_NOT_FOUND;
	read->permitted = read->old = false;
	*ret_stale = set & STALE_ALL;
	return set;
}

static int lookup_call(struct store_postgres *db, const struct slot_row *row, void *items, size_t n)
{
	return postgres_lookup(db, row, items, n);
}

/* A found link overrides an error, which overrides "not found". */
static void lookup_take(void *item, const void *copy, int error)
{
	struct store_lookup *read = item;
	const struct store_lookup *from = copy;
	int found = error ? error : from->result;
	if (found == ERR_NOT_FOUND || (found != 0 && read->result == 0))
		return;
	read->result = found;
	if (found != 0)
		return;
	read->link = from->link;
	read->permitted = from->permitted;
	read->old = from->old;
	read->result = link_own(read->arena, &read->link);
}

static const struct shards_batch_kind lookups = {.bytes = sizeof(struct store_lookup),
                                                 .arena_at = offsetof(struct store_lookup, arena),
                                                 .shards = lookup_shards,
                                                 .call = lookup_call,
                                                 .take = lookup_take};

int shards_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	struct store_shards *s = shards_of(base);
	struct shards_batch b = {.kind = &lookups, .items = reads, .n = n};
	int r = n > 0 ? shards_batch_unsharded(s, &b) : 0;
	if (n == 0 || b.is_unsharded)
		return r;
	b.pending = malloc(n);
	if (!b.pending)
		return ERR_NOMEM;
	memset(b.pending, true, n);
	shards_batch_sharded(s, &b);
	free(b.pending);
	return 0;
}

/* --- a query of every database --- */

/* The result of one database: sorted items, in the arena. */
struct shard_answer {
	struct arena arena;
	void *items;
	size_t count, at; /* items before `at` were taken */
	bool more;        /* the result was cut off; more items follow */
	uint64_t total;
};

struct shard_query {
	int (*ask)(const void *what, struct store_postgres *db, const struct slot_row *row,
	           struct shard_answer *ret);
	const void *what;
	struct shard_answer answers[SHARDS_MAX];
};

static void shard_query_reset(struct shard_query *q)
{
	for (size_t i = 0; i < SHARDS_MAX; i++)
		arena_release(&q->answers[i].arena);
	memset(q->answers, 0, sizeof(q->answers));
}

static int shard_query_call(void *ctx, struct store_postgres *db, const struct slot_row *row, size_t number)
{
	struct shard_query *q = ctx;
	return row ? q->ask(q->what, db, row, &q->answers[number]) : ERR_UNAVAILABLE;
}

static int shard_query_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	int results[SHARD_OWNERS];
	shard_query_reset(ctx);
	*stale |= v->owners & STALE_ALL;
	shards_each(s, v, v->owners & ~STALE_ALL, shard_query_call, ctx, results);
	return shards_result(results, stale);
}

static int shard_query_run(struct store *base, struct shard_query *q)
{
	return shards_retry(shards_of(base), shard_query_once, q);
}

/* The result with the first next item; NULL if there is none, or if a result was cut off there. */
static struct shard_answer *answer_next(struct shard_query *q,
                                        struct ranked_id (*rank)(const struct shard_answer *a), bool rises)
{
	struct shard_answer *first = NULL;
	struct ranked_id best = {0};
	for (size_t i = 0; i < SHARDS_MAX; i++) {
		struct shard_answer *a = &q->answers[i];
		if (a->at == a->count && a->more)
			return NULL;
		if (a->at == a->count)
			continue;
		struct ranked_id r = rank(a);
		bool is_less = r.rank != best.rank ? r.rank < best.rank : r.id < best.id;
		if (!first || is_less == rises) {
			first = a;
			best = r;
		}
	}
	return first;
}

/* --- pages, the newest first --- */

static bool cursor_number(struct str text, uint64_t *ret)
{
	bool padded = text.len > 1 && text.ptr[0] == '0';
	return !padded && str_u64(text, ret) && *ret <= INT64_MAX;
}

/* A cursor is "CREATED_MS.ID" of a page's last link. */
static bool cursor_read(struct str cursor, struct ranked_id *ret)
{
	uint64_t created_ms;
	*ret = (struct ranked_id){INT64_MAX, INT64_MAX};
	if (!cursor.ptr)
		return true;
	struct str created = str_cut(&cursor, '.');
	bool before_epoch = created.len > 1 && created.ptr[0] == '-';
	if (before_epoch)
		created = str_n(created.ptr + 1, created.len - 1);
	if (!cursor.ptr || !cursor_number(created, &created_ms) || !cursor_number(cursor, &ret->id))
		return false;
	ret->rank = before_epoch ? -(int64_t)created_ms : (int64_t)created_ms;
	return ret->id > 0;
}

struct list_what {
	const struct store_list *page;
	struct ranked_id from;
};

static int list_ask(const void *what, struct store_postgres *db, const struct slot_row *row,
                    struct shard_answer *ret)
{
	const struct list_what *w = what;
	struct store_list page = *w->page;
	page.arena = &ret->arena;
	int r = postgres_list(db, row, w->from, &page, &ret->more);
	ret->items = r == 0 ? page.links : NULL;
	ret->count = r == 0 ? page.count : 0;
	return r;
}

static const struct link_record *link_at(const struct shard_answer *a)
{
	return (const struct link_record *)a->items + a->at;
}

static struct ranked_id link_rank(const struct shard_answer *a)
{
	return (struct ranked_id){link_at(a)->created_ms, link_at(a)->id};
}

static int pages_merge(struct shard_query *q, struct store_list *page)
{
	struct link_record *links = NULL;
	struct shard_answer *from;
	size_t count = 0, cap = 0, bytes = 0;
	while (!page_is_full(page, count, bytes) && (from = answer_next(q, link_rank, false)) != NULL) {
		links = array_room(page->arena, links, count, &cap, sizeof(*links));
		if (!links)
			return ERR_NOMEM;
		links[count] = *link_at(from);
		from->at++;
		if (link_own(page->arena, &links[count]) != 0)
			return ERR_NOMEM;
		bytes += link_bytes(&links[count++]);
	}
	struct str next = STR_NULL;
	bool goes_on = false;
	for (size_t i = 0; i < SHARDS_MAX; i++)
		goes_on |= q->answers[i].at < q->answers[i].count || q->answers[i].more;
	if (count > 0 && goes_on) {
		next = arena_printf(page->arena, "%lld.%llu", (long long)links[count - 1].created_ms,
		                    (unsigned long long)links[count - 1].id);
		if (!next.ptr)
			return ERR_NOMEM;
	}
	page->links = links;
	page->count = count;
	page->next = next;
	return 0;
}

int shards_list(struct store *base, struct store_list *page)
{
	struct list_what what = {.page = page};
	CLEANUP(shard_query_reset) struct shard_query q = {.ask = list_ask, .what = &what};
	if (page->limit == 0 || !cursor_read(page->cursor, &what.from))
		return ERR_INVALID;
	return shard_query_run(base, &q) ?: pages_merge(&q, page);
}

/* --- ids in an order --- */

static int ids_ask(const void *what, struct store_postgres *db, const struct slot_row *row,
                   struct shard_answer *ret)
{
	struct postgres_ids ids = *(const struct postgres_ids *)what;
	ret->items = ids.ids = arena_alloc(&ret->arena, (ids.max + 1) * sizeof(*ids.ids));
	if (!ids.ids)
		return ERR_NOMEM;
	int r = postgres_ids(db, row, &ids);
	ret->count = ids.count;
	ret->total = ids.total;
	return r;
}

static struct ranked_id id_rank(const struct shard_answer *a)
{
	return ((const struct ranked_id *)a->items)[a->at];
}

/* Merges the first ids of all databases. */
static int ids_gather(struct store *base, const struct postgres_ids *what, uint64_t *ret_ids,
                      size_t *ret_count, uint64_t *ret_total)
{
	CLEANUP(shard_query_reset) struct shard_query q = {.ask = ids_ask, .what = what};
	struct shard_answer *from;
	int r = shard_query_run(base, &q);
	if (r != 0)
		return r;
	*ret_count = *ret_total = 0;
	while (*ret_count < what->max && (from = answer_next(&q, id_rank, !what->tag.ptr)) != NULL) {
		ret_ids[(*ret_count)++] = id_rank(from).id;
		from->at++;
	}
	for (size_t i = 0; i < SHARDS_MAX; i++)
		*ret_total += q.answers[i].total;
	return 0;
}

int shards_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count)
{
	uint64_t total;
	return ids_gather(base, &(struct postgres_ids){.tag = tag, .max = max}, ret_ids, ret_count, &total);
}

int shards_expired(struct store *base, struct store_expired *expired)
{
	const struct postgres_ids what = {
	    .now_ms = expired->now_ms, .max = expired->max, .count_all = expired->count_all};
	uint64_t total;
	int r = ids_gather(base, &what, expired->ids, &expired->count, &total);
	if (r == 0 && expired->count_all)
		expired->total = total;
	return r;
}

/* --- who may follow a link --- */

static int permitted_ask(const void *what, struct store_postgres *db, const struct slot_row *row,
                         struct shard_answer *ret)
{
	uint64_t *users = NULL;
	int r = postgres_permitted(db, row, *(const uint64_t *)what, &ret->arena, &users, &ret->count);
	ret->items = users;
	return r;
}

int shards_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret,
                     size_t *ret_count)
{
	CLEANUP(shard_query_reset) struct shard_query q = {.ask = permitted_ask, .what = &link};
	const struct shard_answer *there = &q.answers[0]; /* the link is in one database */
	int r = shard_query_run(base, &q);
	if (r != 0)
		return r;
	for (size_t i = 0; i < SHARDS_MAX; i++)
		there = q.answers[i].count > 0 ? &q.answers[i] : there;
	uint64_t *users = arena_alloc(arena, (there->count + 1) * sizeof(*users));
	if (!users)
		return ERR_NOMEM;
	if (there->count > 0)
		memcpy(users, there->items, there->count * sizeof(*users));
	*ret = users;
	*ret_count = there->count;
	return 0;
}

/* --- totals --- */

struct clicks_what {
	uint64_t node;
	const struct store_count *counts;
	size_t n;
};

/* A frozen slot is waited for, as for any change. */
static int clicks_ask(const void *what, struct store_postgres *db, const struct slot_row *row,
                      struct shard_answer *ret)
{
	const struct clicks_what *w = what;
	(void)ret;
	int r = postgres_set_clicks(db, row, w->node, w->counts, w->n);
	return r == ERR_BUSY ? ERR_CONFLICT : r;
}

int shards_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct shard_query q = {.ask = clicks_ask, .what = &(struct clicks_what){node, counts, n}};
	return shard_query_run(base, &q);
}

/* --- keys for reuse --- */

struct key_claim {
	int64_t now_ms;
	uint64_t quarantine_ms;
	size_t max;
	uint64_t *ids;
	size_t count;
	unsigned turn;
};

/* Round robin. A database that fails keeps its keys. */
static int claim_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	struct key_claim *c = ctx;
	int results[SHARD_OWNERS] = {0};
	for (size_t i = 0; i < s->count && c->count < c->max; i++) {
		size_t number = (c->turn + i) % s->count, more = 0;
		struct store_postgres *db = v->is_known[number] ? shard_db(s, number) : NULL;
		if (!shards_has(v->owners, number))
			continue;
		results[number] = db ? postgres_claim(db, &v->rows[number], c->now_ms, c->quarantine_ms,
		                                      c->max - c->count, c->ids + c->count, &more)
		                     : ERR_UNAVAILABLE;
		c->count += results[number] == 0 ? more : 0;
	}
	int r = shards_result(results, stale);
	return c->count > 0 ? 0 : r;
}

int shards_claim(struct store *base, int64_t now_ms, uint64_t quarantine_ms, size_t max, uint64_t *ret_ids,
                 size_t *ret_count)
{
	struct store_shards *s = shards_of(base);
	struct key_claim c = {.now_ms = now_ms,
	                      .quarantine_ms = quarantine_ms,
	                      .max = max,
	                      .ids = ret_ids,
	                      .turn = atomic_fetch_add(&s->turn, 1)};
	int r = shards_retry(s, claim_once, &c);
	*ret_count = c.count;
	return r;
}
