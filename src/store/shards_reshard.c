/* Moving slots to other databases, step by step as slots.h says. */
#include "base/buf.h"
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
	return shard_fail(m->s, number, r, what, m->e);
}

static int report_progress(struct mover *m)
{
	if (m->r->progress && !m->r->progress(m->r->ctx, &m->progress))
		return err_set(m->e, ERR_BUSY, "stopped; run 'curt reshard' again to go on");
	return 0;
}

/* Changes a row; `what` says what it means that this fails. */
static int change(const struct mover *m, size_t number, slot_rule_fn *rule, const struct slot_attempt *a,
                  struct slot_row *ret, const char *what)
{
	int r = shards_change(m->s, number, rule, a, ret);
	return r ? fail(m, r, number, what) : 0;
}

static bool row_is(const struct mover *m, size_t number, const struct slot_attempt *a, enum slot_move move)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	return v->rows[number].move == move && v->rows[number].out_token == a->token;
}

/* --- walking --- */

typedef int visit_fn(struct mover *m, size_t number, const void *ctx, const struct str *names, size_t n);

/* Visits the names under some of a database's slots, a page at a time. */
static int walk(struct mover *m, size_t number, const struct slot_set *slots, visit_fn *visit,
                const void *ctx)
{
	CLEANUP(buf_release) struct buf last = {0};
	size_t count = PAGE_NAMES;
	while (count == PAGE_NAMES) {
		CLEANUP(arena_release) struct arena arena = {0};
		struct str names[PAGE_NAMES];
		size_t kept = 0;
		int r = postgres_names_after(shard_db(m->s, number), buf_view(&last), PAGE_NAMES, &arena,
		                             names, &count);
		if (r != 0)
			return fail(m, r, number, "cannot be read");
		last.len = 0;
		buf_str(&last, count > 0 ? names[count - 1] : STR_NULL);
		if (last.failed)
			return err_set(m->e, ERR_NOMEM, "out of memory");
		for (size_t i = 0; i < count; i++) {
			if (slots_have(slots, slot_of(names[i])))
				names[kept++] = names[i];
		}
		r = visit(m, number, ctx, names, kept);
		if (r != 0)
			return r;
	}
	return 0;
}

/* --- garbage --- */

static int garbage_remove(struct mover *m, size_t number, const void *ctx, const struct str *names, size_t n)
{
	int r = n > 0 ? postgres_names_remove(shard_db(m->s, number), ctx, names, n) : 0;
	m->r->removed += r == 0 ? n : 0;
	failpoint("reshard-cleaning");
	return r ? fail(m, r, number, "cannot be cleaned") : report_progress(m);
}

static int clean(struct mover *m, size_t number)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	const struct slot_attempt a = {.slots = &v->rows[number].garbage};
	if (slots_count(a.slots) == 0)
		return 0;
	int r = walk(m, number, a.slots, garbage_remove, &v->rows[number]);
	return r ? r : change(m, number, slot_row_clean, &a, NULL, "cannot be cleaned");
}

/* --- one move --- */

struct move {
	size_t from, to;
	struct slot_set slots;
	struct slot_attempt attempt;
	struct slot_row to_row;
	struct feed_cursor cursor; /* all changes before it are copied */
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

static int page_copy(struct mover *m, size_t number, const void *ctx, const struct str *names, size_t n)
{
	const struct move *mv = ctx;
	int r = names_copy(m, mv, names, n);
	if (r == 0) {
		m->progress.copied += n;
		m->r->keys += n;
		m->r->flows[number][mv->to] += n;
		r = report_progress(m);
	}
	failpoint("reshard-copying");
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
		r = change(m, mv->from, slot_row_touch, &mv->attempt, &row, "cannot be read");
		if (r != 0)
			return r;
		r = copy_changed(m, mv, row.transaction, &count);
		mv->cursor = (struct feed_cursor){row.transaction, INT64_MAX};
		if (r == 0)
			r = report_progress(m);
		failpoint("reshard-catching-up");
	}
	return r;
}

/* 0 when S has given the slots; ERR_LIMIT when the freeze was over before. */
static int freeze_and_give(struct mover *m, struct move *mv)
{
	size_t count;
	int r = change(m, mv->from, slot_row_freeze, &mv->attempt, NULL, "cannot be frozen");
	if (r != 0)
		return r;
	failpoint("reshard-frozen");
	r = copy_changed(m, mv, INT64_MAX, &count);
	if (r != 0)
		return r;
	failpoint("reshard-copied");
	r = change(m, mv->from, slot_row_give, &mv->attempt, NULL, "does not give its slots away");
	if (r == ERR_UNCERTAIN || r == ERR_UNAVAILABLE) { /* the row knows */
		shards_refresh_all(m->s);
		if (row_is(m, mv->from, &mv->attempt, MOVE_GIVEN))
			r = 0;
	}
	bool is_over = r == ERR_CONFLICT && (row_is(m, mv->from, &mv->attempt, MOVE_COPY) ||
	                                     row_is(m, mv->from, &mv->attempt, MOVE_FREEZE));
	return is_over ? ERR_LIMIT : r;
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
	mv->attempt.makes_routes = slot_row_owns_all(&v->rows[mv->from]);
	int r = mv->attempt.makes_routes ? postgres_routes_prepare(shard_db(m->s, mv->from)) : 0;
	if (r == 0)
		r = shards_change(m->s, mv->from, slot_row_begin, &mv->attempt, &row);
	mv->attempt.makes_routes = false; /* that was all of them */
	if (r != 0)
		return fail(m, r, mv->from, "does not begin to move");
	mv->cursor = (struct feed_cursor){row.transaction, INT64_MAX};
	failpoint("reshard-begun");
	r = change(m, mv->to, slot_row_expect, &mv->attempt, &mv->to_row, "does not begin to move");
	if (r == 0)
		failpoint("reshard-expected");
	return r;
}

static int move_run(struct mover *m, struct move *mv)
{
	int r = move_begin(m, mv);
	if (r == 0)
		r = walk(m, mv->from, &mv->slots, page_copy, mv);
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
	m->r->slots += slots;
	m->progress.switched += slots;
	r = report_progress(m);
	return r ? r : clean(m, mv->from);
}

/* Some of the slots that must move from one to the other; none: nothing must. */
static struct slot_set slots_between(const struct mover *m, const struct shards_view *v, size_t from,
                                     size_t to)
{
	struct slot_set set = slots_none;
	size_t count = 0;
	for (unsigned slot = 0; slot < SLOT_COUNT && count < MOVE_SLOTS_MAX; slot++) {
		if (v->owner[slot] != from || m->target[slot] != to)
			continue;
		slots_add(&set, slot);
		count++;
	}
	return set;
}

static int moves_between(struct mover *m, size_t from, size_t to)
{
	int r = 0;
	while (r == 0) {
		CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
		struct move mv = {.from = from, .to = to, .slots = slots_between(m, v, from, to)};
		if (slots_count(&mv.slots) == 0)
			return 0;
		mv.attempt = (struct slot_attempt){
		    .slots = &mv.slots, .to = v->rows[to].name, .freeze_ms = FREEZE_MS};
		ASSERT(getrandom(&mv.attempt.token, sizeof(mv.attempt.token), 0) == sizeof(mv.attempt.token));
		mv.attempt.token = (mv.attempt.token >> 1) | 1;
		m->progress.from = address_of(m, from);
		m->progress.to = address_of(m, to);
		m->progress.copied = m->progress.caught_up = 0;
		r = move_run(m, &mv);
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
static int pending_moves_end(struct mover *m)
{
	static const char what[] = "cannot end a move that was begun before";
	const struct slot_attempt none = {0};
	int r = 0;
	for (size_t i = 0; r == 0 && i < m->s->count; i++) {
		r = change(m, i, slot_row_abandon, &none, NULL, what);
		if (r == ERR_CONFLICT) {
			r = shards_complete(m->s, i);
			r = r ? fail(m, r, i, what) : 0;
		}
	}
	for (size_t i = 0; r == 0 && i < m->s->count; i++) {
		r = change(m, i, slot_row_refuse, &none, NULL, what);
		r = r == ERR_CONFLICT ? 0 : r;
	}
	return r;
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
static int duplicates_disown(struct mover *m)
{
	static const char what[] = "does not give up slots that are another's by now";
	CLEANUP(shards_view_unrefp) struct shards_view *before = shards_view_get(m->s);
	shards_refresh_all(m->s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	int r = 0;
	for (size_t i = 0; r == 0 && i < m->s->count; i++) {
		struct slot_set theirs = slots_none;
		for (unsigned slot = 0; view_is_member(v, i) && slot < SLOT_COUNT; slot++) {
			if (slots_have(&v->rows[i].owned, slot) && v->owner[slot] != i)
				slots_add(&theirs, slot);
		}
		struct slot_attempt a = {.token = v->rows[i].version, .slots = &theirs};
		if (slots_count(&theirs) > 0)
			r = is_quiet(m->s, before, v) ? change(m, i, slot_row_disown, &a, NULL, what)
			                              : fail(m, ERR_CONFLICT, i, what);
	}
	return r;
}

static int settle(struct mover *m)
{
	int r = pending_moves_end(m);
	if (r == 0)
		r = duplicates_disown(m);
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

static bool is_target(const struct slot_map *map, const uint8_t *name)
{
	size_t at = slot_map_find(map, name);
	return at < map->count && map->shards[at].is_target;
}

/* Where each slot shall be. */
static int target_make(struct mover *m)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	const uint8_t *names[SHARDS_MAX] = {NULL};
	bool moves = slot_map_moves(&v->map), same = moves;
	for (size_t i = 0; i < m->s->count; i++) {
		names[i] = m->is_wanted[i] ? v->rows[i].name : NULL;
		same &= m->is_wanted[i] == is_target(&v->map, v->rows[i].name);
	}
	if (!slots_place(names, m->target))
		return err_set(m->e, ERR_NOMEM, "out of memory");
	m->progress.slots = m->progress.switched = 0;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		m->progress.slots += v->owner[slot] != m->target[slot];
	m->r->was_begun |= same;
	if (moves && !same)
		return err_set(m->e, ERR_INVALID,
		               "a move to other databases was begun before; finish it first: 'curt reshard "
		               "--status' shows which");
	return 0;
}

static int newcomer_enroll(struct mover *m, const struct slot_row *row, size_t i)
{
	const struct slot_attempt a = {
	    .slots = &slots_none, .registry = address_of(m, m->s->registry), .if_empty = true};
	bool used = false;
	int r = postgres_is_used(shard_db(m->s, i), &used);
	if (r != 0)
		return fail(m, r, i, "does not answer");
	if (used || (row->registry[0] && slots_count(&row->owned) > 0))
		return err_set(m->e, ERR_INVALID,
		               "%.*s holds links or accounts of its own; only an empty database can join",
		               STR_ARG(address_of(m, i)));
	if (!m->r->dry_run && !row->registry[0])
		r = change(m, i, slot_row_enroll, &a, NULL, "does not join");
	if (r == 0)
		failpoint("reshard-enrolled");
	return r;
}

/* *ret: all slots are where they shall be, and nobody else is a member. */
static int members_check(struct mover *m, bool *ret)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	bool settled = m->progress.slots == 0 && !slot_map_moves(&v->map);
	int r = 0;
	for (size_t i = 0; r == 0 && i < m->s->count; i++) {
		settled &= m->is_wanted[i] == view_is_member(v, i);
		if (m->is_wanted[i] && !view_is_member(v, i))
			r = newcomer_enroll(m, &v->rows[i], i);
	}
	*ret = r == 0 && settled;
	return r;
}

static void plan_begin(struct slot_map *map, const struct shards_view *v, void *ctx)
{
	const struct mover *m = ctx;
	for (size_t i = 0; i < m->s->count; i++) {
		const uint8_t *name = v->rows[i].name;
		if (m->is_wanted[i] && !slot_map_has(map, name))
			(void)slot_map_add(map, name, address_of(m, i));
		if (slot_map_has(map, name))
			map->shards[slot_map_find(map, name)].is_target = m->is_wanted[i];
	}
}

/* Leaves out those that have no slot; numbers change. */
static void plan_end(struct slot_map *map, const struct shards_view *v, void *ctx)
{
	(void)v;
	(void)ctx;
	for (size_t i = map->count; i-- > 0;) {
		bool stays = map->shards[i].is_target;
		map->shards[i].is_target = false;
		if (!stays && !memchr(map->owner, (int)i, SLOT_COUNT))
			slot_map_remove(map, i);
	}
}

/* --- the whole of it --- */

static int page_count(struct mover *m, size_t number, const void *ctx, const struct str *names, size_t n)
{
	const struct shards_view *v = ctx;
	for (size_t i = 0; i < n; i++) {
		unsigned slot = slot_of(names[i]);
		if (v->owner[slot] != number)
			continue;
		m->r->all++;
		m->r->keys += m->target[slot] != number;
		m->r->flows[number][m->target[slot]] += m->target[slot] != number;
	}
	return 0;
}

static int count_all(struct mover *m)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	int r = 0;
	m->r->slots = m->progress.slots;
	for (size_t i = 0; r == 0 && i < m->s->count; i++)
		r = walk(m, i, &v->rows[i].owned, page_count, v);
	return r ? r : report_progress(m);
}

static int run(struct mover *m)
{
	int r = all_answer(m);
	if (r == 0 && !m->r->dry_run)
		r = settle(m);
	if (r == 0)
		r = target_make(m);
	if (r == 0)
		r = members_check(m, &m->r->is_settled);
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
	return r ? r : shards_map_change(m->s, plan_end, m, m->e);
}

int store_reshard(struct store *store, struct reshard *r, struct err *e)
{
	struct mover m = {.s = shards_of(store), .r = r, .e = e};
	int64_t since_ms = 0;
	size_t switched = 0;
	int result = leave_check(&m);
	for (r->count = 0; r->count < m.s->count; r->count++)
		r->addresses[r->count] = address_of(&m, r->count);
	while (result == 0) {
		result = run(&m);
		if (m.progress.switched > switched)
			since_ms = 0; /* it has come further */
		switched = m.progress.switched;
		if (since_ms == 0)
			since_ms = clock_mono_ms();
		m.progress.waits_ms = clock_mono_ms() - since_ms + 1;
		bool is_away = result == ERR_UNAVAILABLE || result == ERR_UNCERTAIN;
		if (!is_away || m.progress.waits_ms > r->patience_ms)
			break;
		result = report_progress(&m);
		usleep(WAIT_STEP_MS * 1000);
		m.progress.waits_ms = 0;
	}
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

void store_shards_status(struct store *store, struct shards_status *ret)
{
	struct store_shards *s = shards_of(store);
	uint64_t answered = shards_refresh_all(s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	*ret = (struct shards_status){.version = v->map.version, .moves = slot_map_moves(&v->map)};
	for (size_t i = 0; i < s->count; i++) {
		struct shard_status *shard = status_find(ret, s->shards[i].address);
		shard->is_configured = true;
		shard->answers = shards_has(answered, i);
		shard->is_registry = i == s->registry;
		shard->is_target = is_target(&v->map, v->rows[i].name);
	}
	for (size_t i = 0; i < v->map.count; i++) {
		size_t number = view_shard_find(s, v, v->map.shards[i].name);
		struct shard_status *shard = status_find(ret, number == SHARD_UNREACHABLE
		                                                  ? str_of(v->map.shards[i].address)
		                                                  : s->shards[number].address);
		shard->is_member = true;
		shard->is_lost = number == SHARD_UNREACHABLE && shard->is_configured;
		for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
			shard->slots += v->owner[slot] == number ||
			                (v->owner[slot] >= SHARD_UNREACHABLE && v->map.owner[slot] == i);
	}
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		ret->orphans += v->owner[slot] == SHARD_NONE;
}

/* --- giving up --- */

struct loss {
	struct mover m;
	size_t at;     /* in the map */
	size_t number; /* the shard's, or SHARD_UNREACHABLE */
	bool answers;
	struct slot_set lost;
	uint8_t to[SLOT_COUNT]; /* who adopts it: number in the map */
};

static int loss_check(struct loss *l, const struct shards_view *v, bool sure)
{
	const char *address = v->map.shards[l->at].address;
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
	const uint8_t *name = v->map.shards[l->at].name;
	int r = 0;
	for (size_t i = 0; r == 0 && i < l->m.s->count; i++) {
		const struct slot_row *row = &v->rows[i];
		struct slot_attempt a = {.token = row->out_token};
		bool is_given = row->move == MOVE_GIVEN;
		if (!v->is_known[i] || i == l->number || row->move == MOVE_NONE ||
		    memcmp(row->out_to, name, SHARD_NAME_BYTES) != 0)
			continue;
		if (is_given)
			slots_drop(&l->lost, &row->out);
		r = change(&l->m, i, is_given ? slot_row_reclaim : slot_row_abandon, &a, NULL,
		           "does not take back what was moving away");
	}
	return r;
}

static int share_adopt(struct loss *l, const struct shards_view *v, size_t at)
{
	size_t number = view_shard_find(l->m.s, v, v->map.shards[at].name);
	struct slot_set share = slots_none;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (slots_have(&l->lost, slot) && l->to[slot] == at)
			slots_add(&share, slot);
	}
	if (slots_count(&share) == 0)
		return 0;
	if (number == SHARD_UNREACHABLE)
		return err_set(l->m.e, ERR_UNAVAILABLE, "%s does not answer", v->map.shards[at].address);
	int r = clean(&l->m, number);
	return r ? r
	         : change(&l->m, number, slot_row_adopt, &(struct slot_attempt){.slots = &share}, NULL,
	                  "does not take slots over");
}

/* Spreads them over the others, or gives them back to one that has lost them. */
static int loss_spread(struct loss *l, const struct shards_view *v)
{
	const uint8_t *names[SHARDS_MAX] = {NULL};
	int r = 0;
	for (size_t i = 0; i < v->map.count; i++)
		names[i] = (i == l->at) == l->answers ? v->map.shards[i].name : NULL;
	if (!slots_place(names, l->to))
		return err_set(l->m.e, ERR_NOMEM, "out of memory");
	for (size_t i = 0; r == 0 && i < v->map.count; i++)
		r = share_adopt(l, v, i);
	return r;
}

static void loss_map(struct slot_map *map, const struct shards_view *v, void *ctx)
{
	const struct loss *l = ctx;
	(void)v;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (slots_have(&l->lost, slot))
			map->owner[slot] = l->to[slot];
	}
	if (!l->answers)
		slot_map_remove(map, l->at);
}

static int forget(struct loss *l, struct str address, bool sure)
{
	struct store_shards *s = l->m.s;
	uint64_t answered = shards_refresh_all(s);
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(s);
	for (l->at = 0; l->at < v->map.count; l->at++) {
		l->number = view_shard_find(s, v, v->map.shards[l->at].name);
		if (str_eq(address, str_of(v->map.shards[l->at].address)) ||
		    (l->number < s->count && str_eq(address, s->shards[l->number].address)))
			break;
	}
	if (l->at == v->map.count)
		return err_set(l->m.e, ERR_INVALID,
		               "%.*s is no address of a database in use; --status shows them",
		               STR_ARG(address));
	l->answers = l->number < s->count && shards_has(answered, l->number);
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		bool is_theirs = v->owner[slot] == l->number || v->owner[slot] >= SHARD_UNREACHABLE;
		if (v->map.owner[slot] == l->at && (l->answers ? v->owner[slot] == SHARD_NONE : is_theirs))
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
	struct reshard round_trip = {.leave_count = 0};
	struct loss l = {.m = {.s = shards_of(store), .r = &round_trip, .e = e}};
	return forget(&l, address, sure);
}
