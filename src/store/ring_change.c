/* Changes, in one transaction of each part that they are about. store_ring.c says why this is right. */
#include "store/ring_change.h"

#include "store/rules.h"

#include <stdlib.h>

enum { ROUNDS_MAX = 4 };

static bool is_by_row(const struct store_write *w)
{
	return store_write_is_link(w->kind) && !w->ref.key.ptr;
}

/* --- keys that are to move are moved by whoever changes them --- */

struct pull {
	size_t from, to;
	struct change *change;
};

static int pull_order(const void *a, const void *b)
{
	const struct pull *x = a, *y = b;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return str_order(x->change->write.ref.key, y->change->write.ref.key);
}

static size_t pulls_find(const struct ring_view *v, struct changes *changes, struct pull *pulls)
{
	size_t count = 0;
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		if (!c->pending || !store_write_is_link(c->write.kind) || is_by_row(&c->write))
			continue;
		struct pull pull = {view_old(v, c->write.ref.key), view_new(v, c->write.ref.key), c};
		if (pull.from != pull.to)
			pulls[count++] = pull;
	}
	qsort(pulls, count, sizeof(*pulls), pull_order);
	return count;
}

/* Those between the same two parts. */
static void pulls_do(struct store_ring *s, const struct ring_view *v, const struct pull *pulls, size_t n,
                     struct str *keys)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		struct str key = pulls[i].change->write.ref.key;
		if (count == 0 || !str_eq(keys[count - 1], key))
			keys[count++] = key;
	}
	int r = ring_move_keys(s, v->plan.epoch, pulls[0].from, pulls[0].to, keys, count);
	r = ring_part_verdict(s, v, pulls[0].from, r); /* either may have refused it */
	r = ring_part_verdict(s, v, pulls[0].to, r);
	for (size_t i = 0; i < n; i++) {
		if (r == ERR_CONFLICT)
			pulls[i].change->refused = true;
		else if (r != 0)
			change_end(pulls[i].change, r == ERR_CORRUPT ? ERR_UNAVAILABLE : r);
	}
}

static int keys_pull(struct store_ring *s, const struct ring_view *v, struct changes *changes)
{
	struct pull *pulls = calloc(changes->count + 1, sizeof(*pulls));
	struct str *keys = calloc(changes->count + 1, sizeof(*keys));
	int r = pulls && keys ? 0 : ERR_NOMEM;
	size_t count = r == 0 ? pulls_find(v, changes, pulls) : 0, end;
	for (size_t at = 0; at < count; at = end) {
		for (end = at + 1; end < count; end++) {
			if (pulls[end].from != pulls[at].from || pulls[end].to != pulls[at].to)
				break;
		}
		pulls_do(s, v, &pulls[at], end - at, keys);
	}
	free(pulls);
	free(keys);
	return r;
}

/* --- transactions --- */

/* The changes as they are handed to the parts: those of one part stand side by side in their order, and share
 * an arena that no other thread touches. */
struct spread {
	uint64_t epoch;
	struct arena arenas[PART_SLOTS];
	struct store_write *copies;
	struct change **changes; /* whose copy it is */
	size_t begin[PART_SLOTS + 1];
};

static void spread_release(struct spread *sp)
{
	for (size_t i = 0; i < PART_SLOTS; i++)
		arena_release(&sp->arenas[i]);
	free(sp->copies);
	free(sp->changes);
}

/* Which parts the change goes to in this phase. */
static uint64_t change_parts(const struct store_ring *s, const struct ring_view *v, int phase,
                             const struct change *c)
{
	if (!c->pending || c->refused)
		return 0;
	if (is_by_row(&c->write))
		return view_phase(v, phase);
	if (phase < view_phases(v) - 1)
		return 0;
	size_t part = store_write_is_link(c->write.kind) ? view_new(v, c->write.ref.key) : s->home;
	return (uint64_t)1 << part;
}

static int spread_init(struct spread *sp, const struct store_ring *s, const struct ring_view *v, int phase,
                       struct changes *changes)
{
	*sp = (struct spread){.epoch = v->plan.epoch};
	uint64_t *parts = calloc(changes->count + 1, sizeof(*parts));
	size_t count = 0, at = 0;
	for (size_t i = 0; parts && i < changes->count; i++) {
		parts[i] = change_parts(s, v, phase, &changes->all[i]);
		count += (size_t)__builtin_popcountll(parts[i]);
	}
	sp->copies = calloc(count + 1, sizeof(*sp->copies));
	sp->changes = calloc(count + 1, sizeof(struct change *));
	bool done = parts && sp->copies && sp->changes;
	for (size_t part = 0; done && part < PART_SLOTS; part++) {
		sp->begin[part] = at;
		for (size_t i = 0; i < changes->count; i++) {
			if (!(parts[i] >> part & 1))
				continue;
			sp->changes[at] = &changes->all[i];
			sp->copies[at] = changes->all[i].write;
			sp->copies[at++].arena = &sp->arenas[part];
		}
	}
	sp->begin[PART_SLOTS] = at;
	free(parts);
	return done ? 0 : ERR_NOMEM;
}

static int apply_call(void *ctx, struct store *part, size_t number)
{
	const struct spread *sp = ctx;
	size_t begin = sp->begin[number];
	return part->ops->part->apply(part, sp->epoch, &sp->copies[begin], sp->begin[number + 1] - begin);
}

/* Strings of what comes back go from the part's arena to the caller's. */
static int write_own(struct store_write *w)
{
	if (store_write_is_link(w->kind))
		return link_own(w->arena, &w->link);
	int r = user_own(w->arena, &w->user);
	return r == 0 && !str_own(w->arena, &w->key.name) ? ERR_NOMEM : r;
}

/* A row may be in any part: what was done counts more than what was refused, that more than what failed, and
 * that more than what is not there. */
static bool outcome_counts(const struct change *c, int result)
{
	if (!is_by_row(&c->write) || result == 0)
		return true;
	return c->write.result != 0 && c->write.result != ERR_CONFLICT && result != ERR_NOT_FOUND;
}

static void outcome_take(struct change *c, const struct store_write *copy, int r)
{
	int result = r ? r : copy->result;
	if (!outcome_counts(c, result))
		return;
	if (result == 0) {
		struct arena *arena = c->write.arena;
		c->write = *copy;
		c->write.arena = arena;
		if (write_own(&c->write) != 0)
			result = ERR_UNCERTAIN; /* it happened, but cannot be told whole */
	}
	c->write.replayed = r == 0 && copy->replayed;
	c->write.result = result;
}

static int changes_phase(struct store_ring *s, const struct ring_view *v, int phase, struct changes *changes)
{
	CLEANUP(spread_release) struct spread sp;
	int results[PART_SLOTS] = {0};
	int r = spread_init(&sp, s, v, phase, changes);
	if (r != 0)
		return r;
	uint64_t parts = parts_with_work(sp.begin);
	ring_each(s, parts, apply_call, &sp, results);
	for (size_t part = 0; part < PART_SLOTS; part++) {
		int result = parts >> part & 1 ? ring_part_verdict(s, v, part, results[part]) : 0;
		for (size_t i = sp.begin[part]; i < sp.begin[part + 1]; i++) {
			if (result == ERR_CONFLICT)
				sp.changes[i]->refused = true;
			else
				outcome_take(sp.changes[i], &sp.copies[i], result);
		}
	}
	return 0;
}

/* ERR_CONFLICT when there are some to be tried again. */
static int changes_close(struct changes *changes, int error)
{
	bool again = false;
	for (size_t i = 0; i < changes->count; i++) {
		struct change *c = &changes->all[i];
		if (error != 0 && c->pending)
			change_end(c, error);
		c->pending = c->pending && c->refused;
		c->refused = false;
		again |= c->pending;
	}
	return again ? ERR_CONFLICT : 0;
}

static int changes_once(struct store_ring *s, const struct ring_view *v, void *ctx)
{
	struct changes *changes = ctx;
	int r = view_moves(v) ? keys_pull(s, v, changes) : 0;
	for (int phase = 0; r == 0 && phase < view_phases(v); phase++)
		r = changes_phase(s, v, phase, changes);
	return changes_close(changes, r);
}

static void changes_do(struct store_ring *s, struct changes *changes)
{
	ring_home_ask(s, changes);
	bool again = true;
	for (int round = 0; again && round < ROUNDS_MAX; round++) {
		ring_home_route(s, changes);
		if (ring_try(s, changes_once, changes) != 0)
			(void)changes_close(changes, ERR_UNAVAILABLE);
		again = ring_home_settle(s, changes);
	}
	(void)changes_close(changes, ERR_UNAVAILABLE);
}

/* --- the caller's side --- */

static void change_init(struct change *c, struct store_write *from)
{
	*c = (struct change){.from = from, .write = *from, .pending = true};
	c->write.replayed = false;
	c->write.result = ERR_NOT_FOUND; /* of a row that no part has */
}

static void change_give(const struct change *c)
{
	struct store_write *to = c->from;
	const struct store_write *w = &c->write;
	to->result = w->result == 0 && c->stranger ? ERR_INVALID : w->result;
	to->replayed = w->replayed;
	bool made = w->kind == STORE_LINK_CREATE && !w->replayed;
	if (made && (w->result == 0 || w->result == ERR_UNCERTAIN))
		to->ref = w->ref; /* as its route said */
	if (to->result != 0)
		return;
	to->link = w->link;
	to->user = w->user;
	to->key = w->key;
}

int ring_apply(struct store *base, struct store_write *writes, size_t n)
{
	struct store_ring *s = ring_self(base);
	if (n == 0)
		return 0;
	struct changes changes = {.all = calloc(n, sizeof(*changes.all)), .count = n};
	if (!changes.all)
		return ERR_NOMEM;
	calls_enter(&s->calls);
	for (size_t i = 0; i < n; i++)
		change_init(&changes.all[i], &writes[i]);
	changes_do(s, &changes);
	calls_leave(&s->calls);
	for (size_t i = 0; i < n; i++)
		change_give(&changes.all[i]);
	free(changes.all);
	return 0;
}
