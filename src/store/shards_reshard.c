/* `curt reshard`: ends unfinished moves, plans where each slot shall be, and moves slots there. */
#include "os/clock.h"
#include "os/failpoint.h"
#include "store/shards_move.h"

#include <unistd.h>

enum { WAIT_STEP_MS = 500 };

/* --- preparations --- */

static int all_must_answer(struct reshard_run *m)
{
	uint64_t answered = shards_refresh_all(m->s);
	for (size_t i = 0; i < m->s->count; i++) {
		if (!shards_has(answered, i))
			return err_set(m->e, ERR_UNAVAILABLE,
			               "%.*s does not answer; start it: all databases must answer",
			               STR_ARG(run_address(m, i)));
	}
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	return shards_check(m->s, v, m->e);
}

/* Ends unfinished moves of earlier runs; a run that is still active is refused by the rows from here on.
 * Sources come first: what was given is taken. Then no target can be given anything, and its copies are
 * garbage. */
static int pending_moves_end(struct reshard_run *m)
{
	static const char what[] = "cannot end an unfinished move";
	const struct slot_attempt none = {0};
	int r = 0;
	for (size_t i = 0; r == 0 && i < m->s->count; i++) {
		r = move_row_change(m, i, slot_row_abandon, &none, NULL, what);
		if (r == ERR_CONFLICT) {
			r = shards_complete(m->s, i);
			r = r ? move_fail(m, r, i, what) : 0;
		}
	}
	for (size_t i = 0; r == 0 && i < m->s->count; i++) {
		r = move_row_change(m, i, slot_row_refuse, &none, NULL, what);
		r = r == ERR_CONFLICT ? 0 : r;
	}
	return r;
}

static bool nothing_moves(const struct store_shards *s, const struct shards_view *a,
                          const struct shards_view *b)
{
	bool quiet = true;
	for (size_t i = 0; i < s->count; i++)
		quiet &= a->rows[i].version == b->rows[i].version && b->rows[i].move == MOVE_NONE &&
		         b->rows[i].in_token == 0;
	return quiet;
}

/* A restored database may still own slots that it has given away since. The map is right, as long as
 * nothing moves. */
static int duplicates_disown(struct reshard_run *m)
{
	static const char what[] = "cannot disown slots that another database owns";
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
			r = nothing_moves(m->s, before, v)
			        ? move_row_change(m, i, slot_row_disown, &a, NULL, what)
			        : move_fail(m, ERR_CONFLICT, i, what);
	}
	return r;
}

static int unfinished_end(struct reshard_run *m)
{
	int r = pending_moves_end(m) ?: duplicates_disown(m);
	for (size_t i = 0; r == 0 && i < m->s->count; i++)
		r = garbage_delete(m, i);
	return r;
}

/* --- the plan --- */

static int leavers_check(struct reshard_run *m)
{
	const struct reshard *r = m->r;
	for (size_t i = 0; i < m->s->count; i++)
		m->is_wanted[i] = true;
	for (size_t i = 0; i < r->leave_count; i++) {
		size_t k = 0;
		while (k < m->s->count && !str_eq(run_address(m, k), r->leave[i]))
			k++;
		if (k == m->s->count)
			return err_set(
			    m->e, ERR_INVALID,
			    "%.*s is not in store.url; 'curt reshard --status' lists the addresses",
			    STR_ARG(r->leave[i]));
		if (k == m->s->registry)
			return err_set(
			    m->e, ERR_INVALID,
			    "%.*s is the registry, which holds accounts and counters; it cannot leave",
			    STR_ARG(r->leave[i]));
		m->is_wanted[k] = false;
	}
	return 0;
}

/* Computes where each slot shall be. */
static int target_make(struct reshard_run *m)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	const uint8_t *names[SHARDS_MAX] = {NULL};
	bool moves = slot_map_moves(&v->map), same = moves;
	for (size_t i = 0; i < m->s->count; i++) {
		names[i] = m->is_wanted[i] ? v->rows[i].name : NULL;
		same &= m->is_wanted[i] == slot_map_is_target(&v->map, v->rows[i].name);
	}
	if (!slots_place(names, m->target))
		return err_set(m->e, ERR_NOMEM, "out of memory");
	m->progress.slots = m->progress.switched = 0;
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
		m->progress.slots += v->owner[slot] != m->target[slot];
	m->r->was_begun |= same;
	if (moves && !same)
		return err_set(m->e, ERR_INVALID,
		               "an unfinished reshard has other targets; finish it first ('curt reshard "
		               "--status' lists them)");
	return 0;
}

static int newcomer_enroll(struct reshard_run *m, const struct slot_row *row, size_t i)
{
	const struct slot_attempt a = {
	    .slots = &slots_none, .registry = run_address(m, m->s->registry), .if_empty = true};
	bool used = false;
	int r = postgres_is_used(shard_db(m->s, i), &used);
	if (r != 0)
		return move_fail(m, r, i, "does not answer");
	if (used || (row->registry[0] && slots_count(&row->owned) > 0))
		return err_set(m->e, ERR_INVALID,
		               "%.*s has links or accounts; only an empty database can join",
		               STR_ARG(run_address(m, i)));
	if (!m->r->dry_run && !row->registry[0])
		r = move_row_change(m, i, slot_row_enroll, &a, NULL, "cannot join");
	if (r == 0)
		failpoint("reshard-enrolled");
	return r;
}

/* Enrolls new databases. *ret: all slots are in place, and the members are right. */
static int members_check(struct reshard_run *m, bool *ret)
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
	const struct reshard_run *m = ctx;
	for (size_t i = 0; i < m->s->count; i++) {
		const uint8_t *name = v->rows[i].name;
		if (m->is_wanted[i] && !slot_map_has(map, name))
			(void)slot_map_add(map, name, run_address(m, i));
		if (slot_map_has(map, name))
			map->shards[slot_map_find(map, name)].is_target = m->is_wanted[i];
	}
}

/* Removes databases without slots, which renumbers the others. */
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

/* --- running --- */

static int page_count(struct reshard_run *m, size_t number, const void *ctx, const struct str *names,
                      size_t n)
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

static int count_all(struct reshard_run *m)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	int r = 0;
	m->r->slots = m->progress.slots;
	for (size_t i = 0; r == 0 && i < m->s->count; i++)
		r = names_each(m, i, &v->rows[i].owned, page_count, v);
	return r ? r : report_progress(m);
}

static int run(struct reshard_run *m)
{
	int r = all_must_answer(m);
	if (r == 0 && !m->r->dry_run)
		r = unfinished_end(m);
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
	struct reshard_run m = {.s = shards_of(store), .r = r, .e = e};
	int64_t since_ms = 0;
	size_t switched = 0;
	int result = leavers_check(&m);
	for (r->count = 0; r->count < m.s->count; r->count++)
		r->addresses[r->count] = run_address(&m, r->count);
	while (result == 0) {
		result = run(&m);
		if (m.progress.switched > switched)
			since_ms = 0; /* it made progress */
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
