/* Calls to databases: in parallel, by the slots that they own, and again after slots have moved. */
#include "os/clock.h"
#include "store/shards.h"

enum { TRY_MS = 5000, PAUSE_MAX_MS = 10 };

struct each {
	struct store_shards *s;
	const struct shards_view *v;
	shards_call_fn *call;
	void *ctx;
	int *results;
	size_t numbers[SHARD_OWNERS];
};

static void each_run(void *ctx, size_t i)
{
	const struct each *each = ctx;
	size_t number = each->numbers[i];
	struct store_postgres *db = shard_db(each->s, number);
	const struct slot_row *row = db && each->v->is_known[number] ? &each->v->rows[number] : NULL;
	each->results[number] = db ? each->call(each->ctx, db, row, number) : ERR_UNAVAILABLE;
}

void shards_each(struct store_shards *s, const struct shards_view *v, uint64_t set, shards_call_fn *call,
                 void *ctx, int results[SHARD_OWNERS])
{
	struct each each = {.s = s, .v = v, .call = call, .ctx = ctx, .results = results};
	size_t count = 0;
	memset(results, 0, SHARD_OWNERS * sizeof(*results));
	for (size_t i = 0; i < SHARD_OWNERS; i++) {
		if (shards_has(set, i))
			each.numbers[count++] = i;
	}
	fanout_run(s->fanout, count, each_run, &each);
}

int shards_result(const int results[SHARD_OWNERS], uint64_t *stale)
{
	int worst = 0;
	for (size_t i = 0; i < SHARD_OWNERS; i++) {
		if (results[i] == ERR_CONFLICT)
			*stale |= (uint64_t)1 << i;
		else if (results[i] != 0)
			worst = results[i];
	}
	return worst ? worst : *stale ? ERR_CONFLICT : 0;
}

int shards_retry(struct store_shards *s, shards_attempt_fn *once, void *ctx)
{
	int64_t end_ms = 0;
	bool again;
	int r;
	unsigned tries = 0;
	calls_enter(&s->calls);
	do {
		struct shards_view *v = shards_view_get(s);
		uint64_t stale = 0;
		r = once(s, v, &stale, ctx);
		if (r == ERR_CONFLICT && stale == STALE_ALL &&
		    atomic_load(&s->orphan_tries) > ORPHAN_TRIES_MAX)
			r = ERR_UNAVAILABLE; /* the reconnector keeps looking for an owner */
		if (r == ERR_CONFLICT && end_ms == 0)
			end_ms = clock_mono_ms() + TRY_MS;
		again = r == ERR_CONFLICT && clock_mono_ms() < end_ms;
		if (again)
			shards_refresh(s, v, stale);
		shards_view_unref(v);
		if (again && ++tries > 1) {
			long pause_ms = MIN(tries, PAUSE_MAX_MS);
			nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
		}
	} while (again);
	calls_leave(&s->calls);
	return r == ERR_CONFLICT ? ERR_UNAVAILABLE : r;
}

/* --- batches --- */

static int unsharded_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	struct shards_batch *b = ctx;
	b->is_unsharded = v->is_unsharded;
	if (!v->is_unsharded)
		return 0;
	int r = b->kind->call(shards_registry(s), &v->rows[s->registry], b->items, b->n);
	*stale |= r == ERR_CONFLICT ? (uint64_t)1 << s->registry : 0;
	return r;
}

int shards_batch_unsharded(struct store_shards *s, struct shards_batch *b)
{
	return shards_retry(s, unsharded_once, b);
}

/* Copies of the items, grouped by database in their order. Each database has an arena that no other thread
 * uses. */
struct spread {
	const struct shards_batch *b;
	char *copies;
	size_t *items; /* the index of the original */
	size_t begin[SHARD_OWNERS];
	struct arena arenas[SHARD_OWNERS]; /* that of SHARD_NONE holds the arrays */
};

static void spread_release(struct spread *sp)
{
	for (size_t i = 0; i < SHARD_OWNERS; i++)
		arena_release(&sp->arenas[i]);
}

static char *batch_item(const struct shards_batch *b, size_t i)
{
	return (char *)b->items + i * b->kind->bytes;
}

static void spread_add(struct spread *sp, size_t at, size_t item, size_t shard)
{
	const struct shards_batch_kind *kind = sp->b->kind;
	char *copy = sp->copies + at * kind->bytes;
	memcpy(copy, batch_item(sp->b, item), kind->bytes);
	*(struct arena **)(copy + kind->arena_at) = &sp->arenas[shard];
	sp->items[at] = item;
}

static int spread_fill(struct spread *sp, const struct shards_view *v, uint64_t *stale)
{
	const struct shards_batch *b = sp->b;
	struct arena *arena = &sp->arenas[SHARD_NONE];
	uint64_t *sets = arena_zalloc(arena, b->n * sizeof(*sets));
	size_t count = 0, at = 0;
	for (size_t i = 0; sets && i < b->n; i++) {
		uint64_t waits = 0, set = b->pending[i] ? b->kind->shards(batch_item(b, i), v, &waits) : 0;
		sets[i] = waits ? 0 : set;
		*stale |= waits;
		count += (size_t)__builtin_popcountll(sets[i]);
	}
	sp->copies = arena_alloc(arena, (count + 1) * b->kind->bytes);
	sp->items = arena_alloc(arena, (count + 1) * sizeof(*sp->items));
	if (!sets || !sp->copies || !sp->items)
		return ERR_NOMEM;
	for (size_t shard = 0; shard < SHARD_NONE; shard++) {
		for (size_t i = 0; i < b->n; i++) {
			if (shards_has(sets[i], shard))
				spread_add(sp, at++, i, shard);
		}
		sp->begin[shard + 1] = at;
	}
	return 0;
}

static int spread_call(void *ctx, struct store_postgres *db, const struct slot_row *row, size_t number)
{
	const struct spread *sp = ctx;
	const struct shards_batch_kind *kind = sp->b->kind;
	size_t begin = sp->begin[number], n = sp->begin[number + 1] - begin;
	return row ? kind->call(db, row, sp->copies + begin * kind->bytes, n) : ERR_UNAVAILABLE;
}

static int spread_once(struct store_shards *s, const struct shards_view *v, uint64_t *stale, void *ctx)
{
	CLEANUP(spread_release) struct spread sp = {.b = ctx};
	const struct shards_batch *b = sp.b;
	int results[SHARD_OWNERS];
	uint64_t asked = 0;
	int r = spread_fill(&sp, v, stale);
	if (r != 0)
		return r;
	for (size_t shard = 0; shard < SHARD_NONE; shard++)
		asked |= (uint64_t)(sp.begin[shard] < sp.begin[shard + 1]) << shard;
	shards_each(s, v, asked, spread_call, &sp, results);
	for (size_t i = 0; i < sp.begin[SHARD_NONE]; i++)
		b->pending[sp.items[i]] = false;
	for (size_t shard = 0; shard < SHARD_NONE; shard++) {
		bool refused = results[shard] == ERR_CONFLICT;
		*stale |= (uint64_t)refused << shard;
		for (size_t i = sp.begin[shard]; i < sp.begin[shard + 1]; i++) {
			if (refused)
				b->pending[sp.items[i]] = true;
			else
				b->kind->take(batch_item(b, sp.items[i]), sp.copies + i * b->kind->bytes,
				              results[shard]);
		}
	}
	return *stale ? ERR_CONFLICT : 0;
}

void shards_batch_sharded(struct store_shards *s, struct shards_batch *b)
{
	int r = shards_retry(s, spread_once, b);
	for (size_t i = 0; i < b->n; i++) {
		if (b->pending[i])
			b->kind->take(batch_item(b, i), NULL, r);
		b->pending[i] = false;
	}
}
