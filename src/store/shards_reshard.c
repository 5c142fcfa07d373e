/* Moving slots to other databases, step by step as slots.h says. */
#include "os/clock.h"
#include "os/failpoint.h"
#include "store/reshard.h"
#include "store/shards.h"

#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	PAGE_NAMES = 1000,
	PAGE_CHANGES = 200,   /* transactions of the feed */
	FEW_NAMES = 200,      /* that are left to the freeze */
	MOVE_SLOTS_MAX = 512, /* at a time: what is lost when it is killed */
	CATCH_UPS_MAX = 50,
	FREEZES_MAX = 5,
	FREEZE_MS = 2000,
	WAIT_STEP_MS = 500,
};

struct mover {
	struct store_shards *s;
	struct reshard *r;
	struct err *e;
	struct reshard_progress progress;
	uint8_t target[SLOT_COUNT]; /* shards' numbers */
	bool is_wanted[SHARDS_MAX];
};

static struct str address_of(const struct mover *m, size_t number)
{
	return m->s->shards[number].address;
}

static int fail(const struct mover *m, int r, size_t number, const char *what)
{
	if (r == ERR_CONFLICT)
		return err_set(m->e, r, "%.*s: another 'curt reshard' goes on with the move",
		               STR_ARG(address_of(m, number)));
	return err_set(m->e, r, "%.*s %s (%s)", STR_ARG(address_of(m, number)), what, err_name(r));
}

static int show(struct mover *m)
{
	if (m->r->progress && !m->r->progress(m->r->ctx, &m->progress))
		return err_set(m->e, ERR_BUSY, "stopped; run 'curt reshard' again to go on");
	return 0;
}

static int change(struct mover *m, size_t number, int (*rule)(struct slot_row *, const struct slot_attempt *),
                  const struct slot_attempt *a, struct slot_row *ret)
{
	const struct slot_change c = {.rule = rule, .attempt = *a};
	return shards_change(m->s, number, &c, ret);
}

static bool row_is(const struct mover *m, size_t number, const struct slot_attempt *a, enum slot_move move)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	return v->rows[number].move == move && v->rows[number].out_token == a->token;
}

/* --- walking --- */

/* A page of names of some slots. */
struct page {
	struct arena arena;
	struct str names[PAGE_NAMES];
	size_t count;
	char last[1024]; /* that was looked at */
	size_t last_len;
	bool more;
	uint64_t looked_at;
};

static int page_next(struct page *p, struct store_postgres *db, const struct slot_set *slots)
{
	size_t count = 0;
	arena_release(&p->arena);
	p->arena = (struct arena){0};
	struct str after = p->looked_at > 0 ? str_n(p->last, p->last_len) : STR_NULL;
	int r = postgres_names_after(db, after, PAGE_NAMES, &p->arena, p->names, &count);
	p->count = 0;
	if (r != 0)
		return r;
	p->more = count == PAGE_NAMES;
	p->looked_at += count;
	if (count > 0) {
		struct str last = p->names[count - 1];
		if (last.len > sizeof(p->last))
			return ERR_CORRUPT;
		memcpy(p->last, last.ptr, last.len);
		p->last_len = last.len;
	}
	for (size_t i = 0; i < count; i++) {
		if (slots_have(slots, slot_of(p->names[i])))
			p->names[p->count++] = p->names[i];
	}
	return 0;
}

static void page_freep(struct page **p)
{
	if (*p)
		arena_release(&(*p)->arena);
	free(*p);
}

/* --- garbage --- */

static int clean(struct mover *m, size_t number)
{
	CLEANUP(page_freep) struct page *p = calloc(1, sizeof(*p));
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	const struct slot_row *row = &v->rows[number];
	struct store_postgres *db = shard_db(m->s, number);
	int r = p ? 0 : ERR_NOMEM;
	if (slots_count(&row->garbage) == 0)
		return 0;
	bool more = r == 0;
	while (r == 0 && more) {
		r = page_next(p, db, &row->garbage);
		if (r == 0 && p->count > 0)
			r = postgres_names_remove(db, row, p->names, p->count);
		more = r == 0 && p->more;
		m->r->removed += r == 0 ? p->count : 0;
		failpoint("reshard-cleaning");
		if (r == 0)
			r = show(m);
		if (r == ERR_BUSY)
			return r;
	}
	if (r == 0)
		r = change(m, number, slot_row_clean, &(struct slot_attempt){.slots = &row->garbage}, NULL);
	return r ? fail(m, r, number, "cannot be cleaned") : 0;
}

/* --- one move --- */

struct move {
	size_t from, to;
	struct slot_set slots;
	struct slot_attempt attempt;
	struct slot_row to_row;
	struct feed_cursor cursor; /* all changes before it are copied */
	struct reshard_flow *flow;
};

static int names_copy(struct mover *m, const struct move *mv, const struct str *names, size_t n)
{
	struct err why = {""};
	int r = n > 0 ? postgres_names_copy(shard_db(m->s, mv->from), shard_db(m->s, mv->to), &mv->to_row,
	                                    names, n, &why)
	              : 0;
	if (r != 0 && r != ERR_CONFLICT && why.text[0])
		return err_set(m->e, r, "%.*s does not take what comes from %.*s: %s",
		               STR_ARG(address_of(m, mv->to)), STR_ARG(address_of(m, mv->from)), why.text);
	return r ? fail(m, r, mv->to, "does not take what comes") : 0;
}

static int copy_all(struct mover *m, const struct move *mv)
{
	CLEANUP(page_freep) struct page *p = calloc(1, sizeof(*p));
	int r;
	if (!p)
		return err_set(m->e, ERR_NOMEM, "out of memory");
	do {
		r = page_next(p, shard_db(m->s, mv->from), &mv->slots);
		if (r != 0)
			return fail(m, r, mv->from, "cannot be read");
		r = names_copy(m, mv, p->names, p->count);
		if (r == 0) {
			m->progress.copied += p->count;
			mv->flow->keys += p->count;
			r = show(m);
		}
		failpoint("reshard-copying");
	} while (r == 0 && p->more);
	return r;
}

static int str_compare(const void *a, const void *b)
{
	return str_order(*(const struct str *)a, *(const struct str *)b);
}

/* Copies the names again that transactions before `until` have changed; *ret: how many. */
static int copy_changed(struct mover *m, struct move *mv, uint64_t until, size_t *ret)
{
	bool more = true;
	int r = 0;
	*ret = 0;
	while (r == 0 && more) {
		CLEANUP(arena_release) struct arena arena = {0};
		struct str *names;
		size_t count, kept = 0;
		r = postgres_names_changed(shard_db(m->s, mv->from), &mv->cursor, until, PAGE_CHANGES, &arena,
		                           &names, &count, &more);
		if (r == ERR_NOT_FOUND)
			return err_set(
			    m->e, ERR_UNAVAILABLE,
			    "%.*s: its feed was pruned while slots were copied; run 'curt reshard' "
			    "again",
			    STR_ARG(address_of(m, mv->from)));
		if (r != 0)
			return fail(m, r, mv->from, "cannot be read");
		if (count > 0)
			qsort(names, count, sizeof(*names), str_compare);
		for (size_t i = 0; i < count; i++) {
			if (slots_have(&mv->slots, slot_of(names[i])) &&
			    (kept == 0 || !str_eq(names[kept - 1], names[i])))
				names[kept++] = names[i];
		}
		r = names_copy(m, mv, names, kept);
		m->progress.caught_up += kept;
		*ret += kept;
	}
	return r;
}

/* Until few are left. Whoever writes faster than this copies is slowed down by the freeze. */
static int catch_up(struct mover *m, struct move *mv)
{
	size_t count = FEW_NAMES;
	int r = 0;
	for (int i = 0; r == 0 && count >= FEW_NAMES && i < CATCH_UPS_MAX; i++) {
		struct slot_row row;
		r = change(m, mv->from, slot_row_touch, &mv->attempt, &row);
		if (r != 0)
			return fail(m, r, mv->from, "cannot be read");
		r = copy_changed(m, mv, row.transaction, &count);
		mv->cursor = (struct feed_cursor){row.transaction, INT64_MAX};
		if (r == 0)
			r = show(m);
		failpoint("reshard-catching-up");
	}
	return r;
}

/* 0 when S has given the slots; ERR_LIMIT when the freeze was over before. */
static int freeze_and_give(struct mover *m, struct move *mv)
{
	size_t count;
	int r = change(m, mv->from, slot_row_freeze, &mv->attempt, NULL);
	if (r != 0)
		return fail(m, r, mv->from, "cannot be frozen");
	failpoint("reshard-frozen");
	r = copy_changed(m, mv, INT64_MAX, &count);
	if (r != 0)
		return r;
	failpoint("reshard-copied");
	r = change(m, mv->from, slot_row_give, &mv->attempt, NULL);
	if (r == ERR_UNCERTAIN || r == ERR_UNAVAILABLE) { /* the row knows */
		shards_refresh_all(m->s);
		if (row_is(m, mv->from, &mv->attempt, MOVE_GIVEN))
			r = 0;
	}
	if (r == ERR_CONFLICT &&
	    (row_is(m, mv->from, &mv->attempt, MOVE_COPY) || row_is(m, mv->from, &mv->attempt, MOVE_FREEZE)))
		return ERR_LIMIT;
	return r ? fail(m, r, mv->from, "does not give its slots away") : 0;
}

static int give(struct mover *m, struct move *mv)
{
	int r = ERR_LIMIT;
	for (int i = 0; r == ERR_LIMIT && i < FREEZES_MAX; i++) {
		if (row_is(m, mv->from, &mv->attempt, MOVE_FREEZE)) /* past its time, but not thawed yet */
			shards_refresh_all(m->s);
		r = catch_up(m, mv);
		if (r == 0)
			r = freeze_and_give(m, mv);
	}
	if (r == ERR_LIMIT)
		return err_set(m->e, ERR_UNAVAILABLE,
		               "%.*s is changed faster than it can be copied while it is frozen for %d ms",
		               STR_ARG(address_of(m, mv->from)), FREEZE_MS);
	return r;
}

static int move_begin(struct mover *m, struct move *mv)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	struct slot_row row;
	struct slot_change begin = {.rule = slot_row_begin,
	                            .attempt = mv->attempt,
	                            .makes_routes = slot_row_is_whole(&v->rows[mv->from])};
	int r = begin.makes_routes ? postgres_routes_prepare(shard_db(m->s, mv->from)) : 0;
	if (r == 0)
		r = shards_change(m->s, mv->from, &begin, &row);
	if (r != 0)
		return fail(m, r, mv->from, "does not begin to move");
	mv->cursor = (struct feed_cursor){row.transaction, INT64_MAX};
	failpoint("reshard-begun");
	r = change(m, mv->to, slot_row_expect, &mv->attempt, &mv->to_row);
	if (r != 0)
		return fail(m, r, mv->to, "does not begin to move");
	failpoint("reshard-expected");
	return 0;
}

static int move_run(struct mover *m, struct move *mv)
{
	int r = move_begin(m, mv);
	if (r == 0)
		r = copy_all(m, mv);
	if (r == 0)
		r = give(m, mv);
	if (r != 0)
		return r;
	failpoint("reshard-given");
	r = shards_complete(m->s, mv->from);
	if (r != 0)
		return fail(m, r, mv->to, "does not take its slots");
	failpoint("reshard-taken");
	size_t slots = slots_count(&mv->slots);
	mv->flow->slots += slots;
	m->r->slots += slots;
	m->progress.switched += slots;
	r = show(m);
	return r ? r : clean(m, mv->from);
}

static struct reshard_flow *flow_of(struct mover *m, size_t from, size_t to)
{
	struct reshard *r = m->r;
	for (size_t i = 0; i < r->flow_count; i++) {
		if (str_eq(r->flows[i].from, address_of(m, from)) &&
		    str_eq(r->flows[i].to, address_of(m, to)))
			return &r->flows[i];
	}
	r->flows[r->flow_count] = (struct reshard_flow){address_of(m, from), address_of(m, to), 0, 0};
	return &r->flows[r->flow_count++];
}

/* Some of the slots that must move from one to the other; none: nothing must. */
static struct slot_set slots_between(const struct mover *m, size_t from, size_t to, size_t max)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	struct slot_set set = slots_none;
	for (unsigned slot = 0; slot < SLOT_COUNT && max > 0; slot++) {
		if (v->owner[slot] != from || m->target[slot] != to)
			continue;
		slots_add(&set, slot);
		max--;
	}
	return set;
}

static int moves_between(struct mover *m, size_t from, size_t to)
{
	int r = 0;
	while (r == 0) {
		struct move *mv = calloc(1, sizeof(*mv));
		if (!mv)
			return err_set(m->e, ERR_NOMEM, "out of memory");
		CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
		*mv = (struct move){.from = from, .to = to};
		mv->slots = slots_between(m, from, to, MOVE_SLOTS_MAX);
		mv->attempt.slots = &mv->slots;
		mv->attempt.to = v->rows[to].name;
		mv->attempt.freeze_ms = FREEZE_MS;
		ASSERT(getrandom(&mv->attempt.token, sizeof(mv->attempt.token), 0) ==
		       sizeof(mv->attempt.token));
		mv->attempt.token = (mv->attempt.token >> 1) | 1;
		bool is_done = slots_count(&mv->slots) == 0;
		if (!is_done) {
			mv->flow = flow_of(m, from, to);
			m->progress.from = address_of(m, from);
			m->progress.to = address_of(m, to);
			m->progress.copied = m->progress.caught_up = 0;
			r = move_run(m, mv);
		}
		free(mv);
		if (is_done)
			break;
	}
	return r;
}

/* --- before it begins --- */

static int all_answer(struct mover *m)
{
	uint64_t answered = shards_refresh_all(m->s);
	for (size_t i = 0; i < m->s->count; i++) {
		if (!shards_has(answered, i))
			return err_set(m->e, ERR_UNAVAILABLE,
			               "%.*s does not answer; all databases must be there",
			               STR_ARG(address_of(m, i)));
	}
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	return shards_check(m->s, v, m->e);
}

/*
 * Ends what others have begun: whoever is still at it is refused by the rows from here on. Sources first:
 * what was given before that is taken. Then no target can be given anything any more, and what came there is
 * garbage.
 */
static int attempts_end(struct mover *m)
{
	const struct slot_attempt none = {0};
	for (size_t i = 0; i < m->s->count; i++) {
		int r = change(m, i, slot_row_abandon, &none, NULL);
		if (r == ERR_CONFLICT)
			r = shards_complete(m->s, i);
		if (r != 0)
			return fail(m, r, i, "cannot end a move that was begun before");
	}
	for (size_t i = 0; i < m->s->count; i++) {
		int r = change(m, i, slot_row_refuse, &none, NULL);
		if (r != 0 && r != ERR_CONFLICT)
			return fail(m, r, i, "cannot end a move that was begun before");
	}
	return 0;
}

static bool is_quiet(const struct store_shards *s, const struct shards_view *a, const struct shards_view *b)
{
	bool quiet = true;
	for (size_t i = 0; i < s->count; i++)
		quiet &= a->rows[i].version == b->rows[i].version && b->rows[i].move == MOVE_NONE &&
		         b->rows[i].in_token == 0;
	return quiet;
}

/* A database that was restored from a backup may own slots that it has given away since. The map knows
 * better, as long as nothing moves. */
static int doubles_end(struct mover *m)
{
	CLEANUP(shards_view_unrefp) struct shards_view *before = shards_view_get(m->s);
	shards_refresh_all(m->s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	for (size_t i = 0; i < m->s->count; i++) {
		struct slot_set theirs = slots_none;
		bool is_member = map_shards_find(&v->map.shards, v->rows[i].name) < v->map.shards.count;
		for (unsigned slot = 0; is_member && slot < SLOT_COUNT; slot++) {
			if (slots_have(&v->rows[i].owned, slot) && v->owner[slot] != i)
				slots_add(&theirs, slot);
		}
		if (slots_count(&theirs) == 0)
			continue;
		int r = is_quiet(m->s, before, v) ? 0 : ERR_CONFLICT;
		struct slot_attempt a = {.token = v->rows[i].version, .slots = &theirs};
		if (r == 0)
			r = change(m, i, slot_row_disown, &a, NULL);
		if (r != 0)
			return fail(m, r, i, "does not give up slots that are another's by now");
	}
	return 0;
}

static int settle(struct mover *m)
{
	int r = all_answer(m);
	if (r == 0)
		r = attempts_end(m);
	if (r == 0)
		r = doubles_end(m);
	for (size_t i = 0; r == 0 && i < m->s->count; i++)
		r = clean(m, i);
	return r;
}

/* --- the plan --- */

static int leave_check(struct mover *m)
{
	const struct reshard *r = m->r;
	for (size_t i = 0; i < m->s->count; i++)
		m->is_wanted[i] = true;
	for (size_t i = 0; i < r->leave_count; i++) {
		size_t k = 0;
		while (k < m->s->count && !str_eq(address_of(m, k), r->leave[i]))
			k++;
		if (k == m->s->count)
			return err_set(m->e, ERR_INVALID,
			               "%.*s is no address of a database in store.url; --status shows them",
			               STR_ARG(r->leave[i]));
		if (k == m->s->registry)
			return err_set(
			    m->e, ERR_INVALID,
			    "%.*s is the registry, where accounts and counters are: it cannot leave",
			    STR_ARG(r->leave[i]));
		m->is_wanted[k] = false;
	}
	return 0;
}

/* Where each slot shall be. */
static int target_make(struct mover *m)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	uint8_t names[SHARDS_MAX][SHARD_NAME_BYTES], placed[SLOT_COUNT];
	size_t numbers[SHARDS_MAX], count = 0;
	for (size_t i = 0; i < m->s->count; i++) {
		if (!m->is_wanted[i])
			continue;
		memcpy(names[count], v->rows[i].name, SHARD_NAME_BYTES);
		numbers[count++] = i;
	}
	if (!slots_place((const uint8_t(*)[SHARD_NAME_BYTES])names, count, placed))
		return err_set(m->e, ERR_NOMEM, "out of memory");
	m->progress.slots = m->progress.switched = 0;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		m->target[slot] = (uint8_t)numbers[placed[slot]];
		m->progress.slots += v->owner[slot] != m->target[slot];
	}
	bool same = v->map.target_count == count;
	for (size_t i = 0; same && i < count; i++) {
		same = false;
		for (size_t k = 0; k < count; k++)
			same |= memcmp(names[i], v->map.target[k], SHARD_NAME_BYTES) == 0;
	}
	m->r->was_begun |= same;
	if (v->map.target_count > 0 && !same)
		return err_set(m->e, ERR_INVALID,
		               "a move to other databases was begun before; finish it first: 'curt reshard "
		               "--status' shows which");
	return 0;
}

static int newcomer_check(struct mover *m, const struct shards_view *v, size_t i)
{
	bool used = false;
	int r = postgres_is_used(shard_db(m->s, i), &used);
	if (r != 0)
		return fail(m, r, i, "does not answer");
	const struct slot_row *row = &v->rows[i];
	if (used || (row->registry[0] && slots_count(&row->owned) > 0))
		return err_set(m->e, ERR_INVALID,
		               "%.*s holds links or accounts of its own; only an empty database can join",
		               STR_ARG(address_of(m, i)));
	return 0;
}

static int newcomers_enroll(struct mover *m)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	for (size_t i = 0; i < m->s->count; i++) {
		bool is_member = map_shards_find(&v->map.shards, v->rows[i].name) < v->map.shards.count;
		if (!m->is_wanted[i] || is_member)
			continue;
		int r = newcomer_check(m, v, i);
		if (r != 0)
			return r;
		const struct slot_change enroll = {
		    .rule = slot_row_enroll,
		    .attempt = {.slots = &slots_none, .registry = address_of(m, m->s->registry)},
		    .if_empty = true};
		if (!m->r->dry_run && !v->rows[i].registry[0])
			r = shards_change(m->s, i, &enroll, NULL);
		if (r != 0)
			return fail(m, r, i, "does not join");
		failpoint("reshard-enrolled");
	}
	return 0;
}

static bool plan_begin(struct slot_map *map, void *ctx)
{
	const struct mover *m = ctx;
	const struct shards_view *v = m->s->view; /* it is being refreshed for us */
	map->target_count = 0;
	memset(map->target, 0, sizeof(map->target));
	for (size_t i = 0; i < m->s->count; i++) {
		if (!m->is_wanted[i])
			continue;
		memcpy(map->target[map->target_count++], v->rows[i].name, SHARD_NAME_BYTES);
		if (map_shards_find(&map->shards, v->rows[i].name) == map->shards.count)
			(void)map_shards_add(&map->shards, v->rows[i].name, m->s->shards[i].address);
	}
	return true;
}

/* Leaves out those that have no slot; numbers change. */
static bool plan_end(struct slot_map *map, void *ctx)
{
	const struct mover *m = ctx;
	struct map_shards old = map->shards;
	uint8_t numbers[SHARDS_MAX] = {0};
	(void)m;
	memset(&map->shards, 0, sizeof(map->shards));
	for (size_t i = 0; i < old.count; i++) {
		bool is_target = false;
		for (size_t k = 0; k < map->target_count; k++)
			is_target |= memcmp(old.at[i].name, map->target[k], SHARD_NAME_BYTES) == 0;
		for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
			is_target |= map->owner[slot] == i;
		numbers[i] = (uint8_t)map->shards.count;
		if (is_target)
			map->shards.at[map->shards.count++] = old.at[i];
	}
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		map->owner[slot] = numbers[map->owner[slot]];
	memset(map->target, 0, sizeof(map->target));
	map->target_count = 0;
	return true;
}

/* --- the whole of it --- */

/* Are all slots where they shall be, and nobody else a member? */
static bool is_settled(const struct mover *m)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	bool settled = m->progress.slots == 0 && v->map.target_count == 0;
	for (size_t i = 0; i < m->s->count; i++)
		settled &= m->is_wanted[i] ==
		           (map_shards_find(&v->map.shards, v->rows[i].name) < v->map.shards.count);
	return settled;
}

static int count_all(struct mover *m)
{
	CLEANUP(page_freep) struct page *p = calloc(1, sizeof(*p));
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	if (!p)
		return err_set(m->e, ERR_NOMEM, "out of memory");
	m->r->slots = m->progress.slots;
	for (size_t i = 0; i < m->s->count; i++) {
		p->looked_at = 0;
		do {
			int r = page_next(p, shard_db(m->s, i), &v->rows[i].owned);
			if (r != 0)
				return fail(m, r, i, "cannot be read");
			for (size_t k = 0; k < p->count; k++) {
				unsigned slot = slot_of(p->names[k]);
				if (v->owner[slot] != i)
					continue;
				m->r->all++;
				if (m->target[slot] == i)
					continue;
				flow_of(m, i, m->target[slot])->keys++;
				m->r->keys++;
			}
		} while (p->more);
	}
	return show(m);
}

static int run(struct mover *m)
{
	int r = m->r->dry_run ? all_answer(m) : settle(m);
	if (r == 0)
		r = target_make(m);
	if (r == 0)
		r = newcomers_enroll(m);
	m->r->is_settled = r == 0 && is_settled(m);
	if (r != 0 || m->r->is_settled)
		return r;
	if (m->r->dry_run)
		return count_all(m);
	r = shards_map_change(m->s, plan_begin, m, m->e);
	failpoint("reshard-planned");
	for (size_t from = 0; r == 0 && from < m->s->count; from++) {
		for (size_t to = 0; r == 0 && to < m->s->count; to++) {
			if (from != to)
				r = moves_between(m, from, to);
		}
	}
	failpoint("reshard-moved");
	if (r == 0)
		r = shards_map_change(m->s, plan_end, m, m->e);
	return r;
}

int store_reshard(struct store *store, struct reshard *r, struct err *e)
{
	struct mover *m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(e, ERR_NOMEM, "out of memory");
	m->s = shards_of(store);
	m->r = r;
	m->e = e;
	int64_t since_ms = 0;
	size_t switched = 0;
	int result = leave_check(m);
	while (result == 0) {
		result = run(m);
		if (m->progress.switched > switched)
			since_ms = 0; /* it has come further */
		switched = m->progress.switched;
		if (since_ms == 0)
			since_ms = clock_mono_ms();
		m->progress.waits_ms = clock_mono_ms() - since_ms + 1;
		bool is_away = result == ERR_UNAVAILABLE || result == ERR_UNCERTAIN;
		if (!is_away || m->progress.waits_ms > r->patience_ms)
			break;
		result = show(m);
		usleep(WAIT_STEP_MS * 1000);
		m->progress.waits_ms = 0;
	}
	for (size_t i = 0; result == 0 && !r->dry_run && i < r->flow_count; i++)
		r->keys += r->flows[i].keys;
	free(m);
	return result;
}

/* --- status --- */

static struct shard_status *status_find(struct shards_status *status, struct str address)
{
	for (size_t i = 0; i < status->count; i++) {
		if (str_eq(str_of(status->shards[i].address), address))
			return &status->shards[i];
	}
	struct shard_status *shard = &status->shards[status->count++];
	memcpy(shard->address, address.ptr, MIN(address.len, SHARD_ADDRESS_MAX - 1));
	return shard;
}

int store_shards_status(struct store *store, struct shards_status *ret, struct err *e)
{
	struct store_shards *s = shards_of(store);
	uint64_t answered = shards_refresh_all(s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	(void)e;
	*ret = (struct shards_status){.version = v->map.version, .moves = v->map.target_count > 0};
	for (size_t i = 0; i < s->count; i++) {
		struct shard_status *shard = status_find(ret, s->shards[i].address);
		shard->is_configured = true;
		shard->answers = shards_has(answered, i);
		shard->is_registry = i == s->registry;
		for (size_t k = 0; k < v->map.target_count; k++)
			shard->is_target |= memcmp(v->rows[i].name, v->map.target[k], SHARD_NAME_BYTES) == 0;
	}
	for (size_t i = 0; i < v->map.shards.count; i++) {
		size_t number = view_shard_find(s, v, v->map.shards.at[i].name);
		struct shard_status *shard = status_find(ret, number == SHARD_AWAY
		                                                  ? str_of(v->map.shards.at[i].address)
		                                                  : s->shards[number].address);
		shard->is_member = true;
		shard->is_lost = number == SHARD_AWAY && shard->is_configured;
		for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
			shard->slots += v->owner[slot] == number ||
			                (v->owner[slot] >= SHARD_AWAY && v->map.owner[slot] == i);
	}
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		ret->orphans += v->owner[slot] == SHARD_NOBODY;
	return 0;
}

/* --- giving up --- */

struct loss {
	struct mover m;
	size_t at;     /* in the map */
	size_t number; /* the shard's, or SHARD_AWAY */
	bool answers;
	struct slot_set lost;
	uint8_t to[SLOT_COUNT]; /* who adopts it: number in the map */
};

static int loss_check(struct loss *l, const struct shards_view *v, bool sure)
{
	const char *address = v->map.shards.at[l->at].address;
	size_t count = slots_count(&l->lost);
	if (l->number == l->m.s->registry)
		return err_set(l->m.e, ERR_INVALID,
		               "%s is the registry, where accounts and counters are: it cannot be given up; "
		               "restore it from a backup",
		               address);
	if (l->answers && count == 0)
		return err_set(l->m.e, ERR_INVALID, "%s answers, so nothing needs to be lost: use --leave",
		               address);
	if (sure)
		return 0;
	return err_set(l->m.e, ERR_INVALID,
	               "to give up %s is to lose all links in %zu of %d slots: they answer 404, their names "
	               "can be taken by others, and a backup of it is of no use afterwards; pass --yes to "
	               "confirm",
	               address, count, SLOT_COUNT);
}

/* What was moving there stays where it was. */
static int loss_reclaim(struct loss *l, const struct shards_view *v)
{
	const uint8_t *name = v->map.shards.at[l->at].name;
	for (size_t i = 0; i < l->m.s->count; i++) {
		const struct slot_row *row = &v->rows[i];
		struct slot_attempt a = {.token = row->out_token};
		if (!v->is_known[i] || i == l->number || row->move == MOVE_NONE ||
		    memcmp(row->out_to, name, SHARD_NAME_BYTES) != 0)
			continue;
		if (row->move == MOVE_GIVEN)
			slots_drop(&l->lost, &row->out);
		int r = change(&l->m, i, row->move == MOVE_GIVEN ? slot_row_reclaim : slot_row_abandon, &a,
		               NULL);
		if (r != 0)
			return fail(&l->m, r, i, "does not take back what was moving away");
	}
	return 0;
}

/* Spreads them over the others, or gives them back to one that has lost them. */
static int loss_spread(struct loss *l, const struct shards_view *v)
{
	uint8_t names[SHARDS_MAX][SHARD_NAME_BYTES];
	size_t numbers[SHARDS_MAX], count = 0;
	for (size_t i = 0; i < v->map.shards.count; i++) {
		if ((i == l->at) != l->answers)
			continue;
		memcpy(names[count], v->map.shards.at[i].name, SHARD_NAME_BYTES);
		numbers[count++] = i;
	}
	if (!slots_place((const uint8_t(*)[SHARD_NAME_BYTES])names, count, l->to))
		return err_set(l->m.e, ERR_NOMEM, "out of memory");
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		l->to[slot] = (uint8_t)numbers[l->to[slot]];
	for (size_t i = 0; i < count; i++) {
		size_t number = view_shard_find(l->m.s, v, names[i]);
		struct slot_set share = slots_none;
		for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
			if (slots_have(&l->lost, slot) && l->to[slot] == numbers[i])
				slots_add(&share, slot);
		}
		if (slots_count(&share) == 0)
			continue;
		if (number == SHARD_AWAY)
			return err_set(l->m.e, ERR_UNAVAILABLE, "%s does not answer",
			               v->map.shards.at[numbers[i]].address);
		int r = clean(&l->m, number);
		if (r == 0)
			r = change(&l->m, number, slot_row_adopt, &(struct slot_attempt){.slots = &share},
			           NULL);
		if (r != 0)
			return fail(&l->m, r, number, "does not take slots over");
	}
	return 0;
}

static bool loss_map(struct slot_map *map, void *ctx)
{
	const struct loss *l = ctx;
	size_t targets = 0;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (slots_have(&l->lost, slot))
			map->owner[slot] = l->to[slot];
	}
	if (l->answers)
		return true;
	for (size_t i = 0; i < map->target_count; i++) {
		if (memcmp(map->target[i], map->shards.at[l->at].name, SHARD_NAME_BYTES) != 0)
			memcpy(map->target[targets++], map->target[i], SHARD_NAME_BYTES);
	}
	memset(map->target[targets], 0, (SHARDS_MAX - targets) * SHARD_NAME_BYTES);
	map->target_count = targets;
	map->shards.count--;
	memmove(&map->shards.at[l->at], &map->shards.at[l->at + 1],
	        (map->shards.count - l->at) * sizeof(map->shards.at[0]));
	memset(&map->shards.at[map->shards.count], 0, sizeof(map->shards.at[0]));
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		map->owner[slot] -= map->owner[slot] > l->at;
	return true;
}

static int forget(struct loss *l, struct str address, bool sure)
{
	struct store_shards *s = l->m.s;
	uint64_t answered = shards_refresh_all(s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	for (l->at = 0; l->at < v->map.shards.count; l->at++) {
		l->number = view_shard_find(s, v, v->map.shards.at[l->at].name);
		if (str_eq(address, str_of(v->map.shards.at[l->at].address)) ||
		    (l->number < s->count && str_eq(address, s->shards[l->number].address)))
			break;
	}
	if (l->at == v->map.shards.count)
		return err_set(l->m.e, ERR_INVALID,
		               "%.*s is no address of a database in use; --status shows them",
		               STR_ARG(address));
	l->answers = l->number < s->count && shards_has(answered, l->number);
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		bool is_his = v->owner[slot] == l->number || v->owner[slot] >= SHARD_AWAY;
		if (v->map.owner[slot] == l->at && (l->answers ? v->owner[slot] == SHARD_NOBODY : is_his))
			slots_add(&l->lost, slot);
	}
	int r = loss_check(l, v, sure);
	if (r == 0)
		r = loss_reclaim(l, v);
	if (r == 0)
		r = loss_spread(l, v);
	return r ? r : shards_map_change(s, loss_map, l, l->m.e);
}

int store_shards_forget(struct store *store, struct str address, bool sure, struct err *e)
{
	struct reshard *r = calloc(1, sizeof(*r));
	struct loss *l = calloc(1, sizeof(*l));
	int result = ERR_NOMEM;
	if (!r || !l) {
		err_set(e, result, "out of memory");
	} else {
		l->m.s = shards_of(store);
		l->m.r = r;
		l->m.e = e;
		result = forget(l, address, sure);
	}
	free(r);
	free(l);
	return result;
}
