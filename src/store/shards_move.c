/* Moves slots from one database to another, with the steps that slots.h explains. If it is killed after any
 * step, nothing is lost. */
#include "store/shards_move.h"

#include "base/buf.h"
#include "os/failpoint.h"

#include <stdlib.h>
#include <sys/random.h>

enum {
	PAGE_NAMES = 1000,
	PAGE_CHANGES = 200,   /* feed rows */
	FEW_NAMES = 200,      /* the last copy under the freeze */
	MOVE_SLOTS_MAX = 512, /* per move: what is copied again after a kill */
	CATCH_UPS_MAX = 50,
	FREEZES_MAX = 5,
	FREEZE_MS = 2000,
};

struct str run_address(const struct reshard_run *m, size_t number)
{
	return m->s->shards[number].address;
}

int move_fail(const struct reshard_run *m, int r, size_t number, const char *what)
{
	if (r == ERR_CONFLICT)
		return err_set(m->e, r,
		               "%.*s: another 'curt reshard' has taken over the move; wait for it to finish",
		               STR_ARG(run_address(m, number)));
	return shard_fail(m->s, number, r, what, m->e);
}

int report_progress(struct reshard_run *m)
{
	if (m->r->progress && !m->r->progress(m->r->ctx, &m->progress))
		return err_set(m->e, ERR_BUSY, "stopped; run 'curt reshard' again to resume");
	return 0;
}

int move_row_change(const struct reshard_run *m, size_t number, slot_rule_fn *rule,
                    const struct slot_attempt *a, struct slot_row *ret, const char *what)
{
	int r = shards_change(m->s, number, rule, a, ret);
	return r ? move_fail(m, r, number, what) : 0;
}

static bool row_is(const struct reshard_run *m, size_t number, const struct slot_attempt *a,
                   enum slot_move move)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	return v->rows[number].move == move && v->rows[number].out_token == a->token;
}

/* --- walking --- */

/* Reads pages of names, and keeps those of the slots. */
int names_each(struct reshard_run *m, size_t number, const struct slot_set *slots, names_fn *visit,
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
			return move_fail(m, r, number, "cannot be read");
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

static int garbage_page_delete(struct reshard_run *m, size_t number, const void *ctx, const struct str *names,
                               size_t n)
{
	int r = n > 0 ? postgres_names_remove(shard_db(m->s, number), ctx, names, n) : 0;
	m->r->removed += r == 0 ? n : 0;
	failpoint("reshard-cleaning");
	return r ? move_fail(m, r, number, "cannot be cleaned") : report_progress(m);
}

int garbage_delete(struct reshard_run *m, size_t number)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	const struct slot_attempt a = {.slots = &v->rows[number].garbage};
	if (slots_count(a.slots) == 0)
		return 0;
	return names_each(m, number, a.slots, garbage_page_delete, &v->rows[number])
	           ?: move_row_change(m, number, slot_row_clean, &a, NULL, "cannot be cleaned");
}

/* --- one move --- */

struct move {
	size_t from, to;
	struct slot_set slots;
	struct slot_attempt attempt;
	struct slot_row to_row;
	struct feed_cursor cursor; /* feed position up to which changes are copied */
};

static int names_copy(struct reshard_run *m, const struct move *mv, const struct str *names, size_t n)
{
	struct err why = {""};
	int r = n > 0 ? postgres_names_copy(shard_db(m->s, mv->from), shard_db(m->s, mv->to), &mv->to_row,
	                                    names, n, &why)
	              : 0;
	if (r != 0 && r != ERR_CONFLICT && why.text[0])
		return err_set(m->e, r, "%.*s: cannot write the rows from %.*s: %s",
		               STR_ARG(run_address(m, mv->to)), STR_ARG(run_address(m, mv->from)), why.text);
	return r ? move_fail(m, r, mv->to, "cannot write the rows") : 0;
}

static int page_copy(struct reshard_run *m, size_t number, const void *ctx, const struct str *names, size_t n)
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

static int name_order(const void *a, const void *b)
{
	return str_order(*(const struct str *)a, *(const struct str *)b);
}

/* Copies again the names that transactions before `until` changed; *ret: how many. */
static int copy_changed(struct reshard_run *m, struct move *mv, uint64_t until, size_t *ret)
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
			    "%.*s: the feed was pruned while slots were copied; run 'curt reshard' "
			    "again",
			    STR_ARG(run_address(m, mv->from)));
		if (r != 0)
			return move_fail(m, r, mv->from, "cannot be read");
		if (count > 0)
			qsort(names, count, sizeof(*names), name_order);
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

/* Repeats until few names are left. Faster writers are delayed by the freeze. */
static int catch_up(struct reshard_run *m, struct move *mv)
{
	size_t count = FEW_NAMES;
	int r = 0;
	for (int i = 0; r == 0 && count >= FEW_NAMES && i < CATCH_UPS_MAX; i++) {
		struct slot_row row;
		r = move_row_change(m, mv->from, slot_row_touch, &mv->attempt, &row, "cannot be read");
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

/* 0: S has given the slots. ERR_LIMIT: the freeze expired before. */
static int freeze_and_give(struct reshard_run *m, struct move *mv)
{
	size_t count;
	int r = move_row_change(m, mv->from, slot_row_freeze, &mv->attempt, NULL, "cannot be frozen");
	if (r != 0)
		return r;
	failpoint("reshard-frozen");
	r = copy_changed(m, mv, INT64_MAX, &count);
	if (r != 0)
		return r;
	failpoint("reshard-copied");
	r = move_row_change(m, mv->from, slot_row_give, &mv->attempt, NULL, "cannot give its slots away");
	if (r == ERR_UNCERTAIN || r == ERR_UNAVAILABLE) { /* the row tells */
		shards_refresh_all(m->s);
		if (row_is(m, mv->from, &mv->attempt, MOVE_GIVEN))
			r = 0;
	}
	bool is_over = r == ERR_CONFLICT && (row_is(m, mv->from, &mv->attempt, MOVE_COPY) ||
	                                     row_is(m, mv->from, &mv->attempt, MOVE_FREEZE));
	return is_over ? ERR_LIMIT : r;
}

static int give(struct reshard_run *m, struct move *mv)
{
	int r = ERR_LIMIT;
	for (int i = 0; r == ERR_LIMIT && i < FREEZES_MAX; i++) {
		if (row_is(m, mv->from, &mv->attempt, MOVE_FREEZE)) /* expired, but not thawed yet */
			shards_refresh_all(m->s);
		r = catch_up(m, mv) ?: freeze_and_give(m, mv);
	}
	if (r == ERR_LIMIT)
		return err_set(m->e, ERR_UNAVAILABLE,
		               "%.*s: links change faster than they can be copied in a freeze of %d ms; "
		               "retry at a quieter time",
		               STR_ARG(run_address(m, mv->from)), FREEZE_MS);
	return r;
}

static int move_begin(struct reshard_run *m, struct move *mv)
{
	CLEANUP(shards_view_unrefp) struct shards_view *v = shards_view_get(m->s);
	struct slot_row row;
	mv->attempt.makes_routes = slot_row_owns_all(&v->rows[mv->from]);
	int r = mv->attempt.makes_routes ? postgres_routes_prepare(shard_db(m->s, mv->from)) : 0;
	if (r == 0)
		r = shards_change(m->s, mv->from, slot_row_begin, &mv->attempt, &row);
	mv->attempt.makes_routes = false; /* all routes exist now */
	if (r != 0)
		return move_fail(m, r, mv->from, "cannot begin to move");
	mv->cursor = (struct feed_cursor){row.transaction, INT64_MAX};
	failpoint("reshard-begun");
	r = move_row_change(m, mv->to, slot_row_expect, &mv->attempt, &mv->to_row, "cannot begin to move");
	if (r == 0)
		failpoint("reshard-expected");
	return r;
}

static int move_run(struct reshard_run *m, struct move *mv)
{
	int r = move_begin(m, mv) ?: names_each(m, mv->from, &mv->slots, page_copy, mv) ?: give(m, mv);
	if (r != 0)
		return r;
	failpoint("reshard-given");
	r = shards_complete(m->s, mv->from);
	if (r != 0)
		return move_fail(m, r, mv->to, "cannot take its slots");
	failpoint("reshard-taken");
	size_t slots = slots_count(&mv->slots);
	m->r->slots += slots;
	m->progress.switched += slots;
	r = report_progress(m);
	return r ? r : garbage_delete(m, mv->from);
}

/* Some of the slots that must move; none if nothing must. */
static struct slot_set slots_between(const struct reshard_run *m, const struct shards_view *v, size_t from,
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

int moves_between(struct reshard_run *m, size_t from, size_t to)
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
		m->progress.from = run_address(m, from);
		m->progress.to = run_address(m, to);
		m->progress.copied = m->progress.caught_up = 0;
		r = move_run(m, &mv);
	}
	return r;
}
