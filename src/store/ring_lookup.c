/* Links by their keys, each in its part, and by their rows, in all parts. */
#include "store/ring_core.h"
#include "store/rules.h"

#include <stdlib.h>

/* The reads as they are handed to the parts: those of one part stand side by side, and share an arena that no
 * other thread touches. */
struct spread {
	uint64_t epoch;
	struct arena arenas[PART_SLOTS];
	struct store_lookup *copies;
	size_t *reads; /* whose copy it is */
	size_t count;
	size_t begin[PART_SLOTS + 1]; /* of each part's copies; they end where the next part's begin */
};

static void spread_release(struct spread *sp)
{
	for (size_t i = 0; i < PART_SLOTS; i++)
		arena_release(&sp->arenas[i]);
	free(sp->copies);
	free(sp->reads);
}

/* Found, but its list may have moved before it was looked at. */
static bool is_doubtful(const struct store_lookup *read)
{
	return read->link.is_private && read->user != 0 && !read->permitted;
}

/* The caller's reads, and which of them a part has refused: they are tried again under the new ring. */
struct lookups {
	struct store_lookup *reads;
	bool *pending;
	bool *refused;
	size_t n;
};

/* Which parts the read goes to in this phase. */
static uint64_t read_parts(const struct ring_view *v, int phase, const struct store_lookup *read)
{
	if (phase > 0 && read->result == 0 && !is_doubtful(read))
		return 0; /* found where it was */
	if (!read->ref.key.ptr)
		return view_phase(v, phase);
	size_t old = view_old(v, read->ref.key), new = view_new(v, read->ref.key);
	if (phase == 0)
		return (uint64_t)1 << old;
	return old == new ? 0 : (uint64_t)1 << new;
}

/* It may be in the next part since a moment ago: whoever lags behind still has it as it was before. */
static bool moves_away(const struct ring_view *v, int phase, const struct store_lookup *read)
{
	return phase == 0 && view_moves(v) &&
	       (!read->ref.key.ptr || view_old(v, read->ref.key) != view_new(v, read->ref.key));
}

static int spread_init(struct spread *sp, const struct ring_view *v, int phase, const struct lookups *l)
{
	size_t n = l->n;
	const struct store_lookup *reads = l->reads;
	*sp = (struct spread){.epoch = v->plan.epoch};
	uint64_t *parts = calloc(n + 1, sizeof(*parts));
	for (size_t i = 0; parts && i < n; i++) {
		parts[i] = l->pending[i] && !l->refused[i] ? read_parts(v, phase, &reads[i]) : 0;
		sp->count += (size_t)__builtin_popcountll(parts[i]);
	}
	sp->copies = calloc(sp->count + 1, sizeof(*sp->copies));
	sp->reads = calloc(sp->count + 1, sizeof(*sp->reads));
	size_t at = 0;
	bool done = parts && sp->copies && sp->reads;
	for (size_t part = 0; done && part < PART_SLOTS; part++) {
		sp->begin[part] = at;
		for (size_t i = 0; i < n; i++) {
			if (!(parts[i] >> part & 1))
				continue;
			sp->copies[at] = reads[i];
			sp->copies[at].arena = &sp->arenas[part];
			sp->copies[at].fresh |= moves_away(v, phase, &reads[i]);
			sp->reads[at++] = i;
		}
	}
	sp->begin[PART_SLOTS] = at;
	free(parts);
	return done ? 0 : ERR_NOMEM;
}

static int lookup_call(void *ctx, struct store *part, size_t number)
{
	const struct spread *sp = ctx;
	size_t begin = sp->begin[number];
	return part->ops->part->lookup(part, sp->epoch, &sp->copies[begin], sp->begin[number + 1] - begin);
}

/* What is there counts more than what failed, and that more than what is not there; what is found later, more
 * than what was before. */
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

static int lookup_phase(struct store_ring *s, const struct ring_view *v, int phase, const struct lookups *l)
{
	CLEANUP(spread_release) struct spread sp;
	int results[PART_SLOTS] = {0};
	int r = spread_init(&sp, v, phase, l);
	if (r != 0)
		return r;
	uint64_t parts = parts_with_work(sp.begin);
	ring_each(s, parts, lookup_call, &sp, results);
	for (size_t part = 0; part < PART_SLOTS; part++) {
		int result = parts >> part & 1 ? ring_part_verdict(s, v, part, results[part]) : 0;
		for (size_t i = sp.begin[part]; i < sp.begin[part + 1]; i++) {
			if (result == ERR_CONFLICT)
				l->refused[sp.reads[i]] = true;
			else
				read_take(&l->reads[sp.reads[i]], &sp.copies[i], result);
		}
	}
	return 0;
}

static int lookup_once(struct store_ring *s, const struct ring_view *v, void *ctx)
{
	const struct lookups *l = ctx;
	bool again = false;
	int r = 0;
	for (size_t i = 0; i < l->n; i++) {
		l->refused[i] = false;
		if (!l->pending[i])
			continue;
		l->reads[i].result = ERR_NOT_FOUND;
		l->reads[i].permitted = l->reads[i].old = false;
	}
	for (int phase = 0; r == 0 && phase < view_phases(v); phase++)
		r = lookup_phase(s, v, phase, l);
	for (size_t i = 0; r == 0 && i < l->n; i++) {
		l->pending[i] = l->refused[i];
		again |= l->pending[i];
	}
	return again ? ERR_CONFLICT : r;
}

int ring_lookup(struct store *base, struct store_lookup *reads, size_t n)
{
	bool *flags = calloc(2 * n + 1, sizeof(*flags));
	struct lookups l = {reads, flags, flags + n, n};
	if (!flags)
		return ERR_NOMEM;
	for (size_t i = 0; i < n; i++)
		l.pending[i] = true;
	int r = n > 0 ? ring_try(ring_self(base), lookup_once, &l) : 0;
	for (size_t i = 0; r == ERR_UNAVAILABLE && i < n; i++) {
		if (l.pending[i])
			reads[i].result = r;
	}
	free(flags);
	return r == ERR_UNAVAILABLE ? 0 : r;
}
