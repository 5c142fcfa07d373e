/* Applies batches of changes. A batch is one transaction. If a row that it needs stays locked, the batch is
 * bisected, so that only the changes that need this row fail. */
#include "os/clock.h"
#include "store/postgres_change.h"
#include "store/postgres_replica.h"

#include <stdlib.h>

enum { BLOCKED_MS = 5000 };

int postgres_write_note(struct store_postgres *s, int r)
{
	if (r == ERR_UNAVAILABLE || r == ERR_UNCERTAIN || r == ERR_CORRUPT)
		atomic_store_explicit(&s->write_failed, true, memory_order_relaxed);
	return r;
}

/* ERR_BUSY: a row stays locked. */
static int write_once(struct store_postgres *s, const struct postgres_work *work, struct err *e)
{
	struct postgres_mark *mark = postgres_mark_take(s->marks);
	int r = postgres_txn_run(s->writers, mark, work, e);
	postgres_mark_return(s->marks, mark);
	return r == ERR_BUSY || r == ERR_CONFLICT || r == ERR_NOT_FOUND ? r : postgres_error(r);
}

int postgres_write(struct store_postgres *s, const struct postgres_work *work, struct err *e)
{
	int r = write_once(s, work, e);
	return r == ERR_BUSY ? ERR_UNAVAILABLE : r;
}

struct apply_work {
	const struct store_rules *rules;
	const struct slot_row *row;
	const struct store_write *writes;
	size_t n;
	struct store_outcome *outcomes;
	bool all;         /* fetch all rows, also of generated names */
	struct view view; /* of the last attempt, which is the one that was committed */
	struct pg_result made;
	size_t lost; /* inserts that hit a taken name */
};

static void apply_work_reset(struct apply_work *work)
{
	pg_result_end(&work->made);
	work->made = (struct pg_result){NULL, 0};
	view_release(&work->view);
	work->view = (struct view){0};
}

static int apply_run(struct postgres_txn *t, void *ctx)
{
	struct apply_work *work = ctx;
	apply_work_reset(work); /* it may be a retry */
	memset(work->outcomes, 0, work->n * sizeof(*work->outcomes));
	postgres_slots_hold(t, work->row);
	return view_init(&work->view, work->rules, work->writes, work->n)
		?: postgres_fetch_links(t, &work->view, work->all)
		?: decide_links(&work->view, work->writes, work->n, work->outcomes)
		?: postgres_write_links(t, &work->view, &work->made);
}

/* After a lock timeout, batches use a short one for a while: they shall not queue up behind the same row. */
static bool is_blocked(struct store_postgres *s)
{
	int64_t blocked_ms = atomic_load_explicit(&s->blocked_ms, memory_order_relaxed);
	return blocked_ms != 0 && clock_mono_ms() - blocked_ms < BLOCKED_MS;
}

/* Sets ERR_CONFLICT or ERR_UNCERTAIN for the changes that view_lost reports so. */
static void lost_set_result(struct apply_work *work, int lost)
{
	for (size_t i = 0; i < work->n; i++) {
		if (view_lost(&work->view, &work->writes[i]) == lost)
			work->outcomes[i] = (struct store_outcome){.result = lost};
	}
}

/* After the commit: finds the lost inserts. Usually they came with the answer to the COMMIT. If that was
 * lost, the table is read. */
static int lost_find(struct store_postgres *s, struct apply_work *work)
{
	bool gains = false;
	for (size_t i = 0; i < work->view.name_count; i++)
		gains |= name_gains_link(&work->view.names[i]);
	if (!gains || work->made.vendor) {
		work->lost = gains ? postgres_lost_mark(&work->view, &work->made) : 0;
		return 0;
	}
	if (POSTGRES_READ(s, postgres_lost_find(c, &work->view, &work->lost)) != 0)
		return ERR_UNCERTAIN;
	lost_set_result(work, ERR_UNCERTAIN);
	return 0;
}

/* The next part of a bisected batch: `size` changes from `begin` on. */
struct slice {
	size_t begin, size;
};

static int slice_apply(struct store_postgres *s, const struct postgres_work *work, struct slice slice)
{
	const struct apply_work *all = work->ctx;
	struct apply_work some = {.rules = all->rules,
	                          .row = all->row,
	                          .writes = all->writes + slice.begin,
	                          .n = slice.size,
	                          .outcomes = all->outcomes + slice.begin,
	                          .all = true};
	struct postgres_work brief = *work;
	brief.ctx = &some;
	brief.is_brief = true;
	int r = write_once(s, &brief, NULL) ?: lost_find(s, &some);
	/* although all rows were fetched: a continuing race, or an id is taken */
	if (r == 0 && some.lost > 0)
		lost_set_result(&some, ERR_CONFLICT);
	apply_work_reset(&some);
	return r;
}

/* A row stays locked: halves the batch to find the changes that need it, and fails only those. Any other
 * failure, or the timeout, fails all that have not been applied yet. */
static int apply_by_bisection(struct store_postgres *s, const struct postgres_work *work)
{
	const struct apply_work *all = work->ctx;
	atomic_store_explicit(&s->blocked_ms, clock_mono_ms(), memory_order_relaxed);
	if (all->n == 1)
		return ERR_UNAVAILABLE;
	int64_t until_ms = clock_mono_ms() + WRITE_TIMEOUT_MS;
	struct slice slice = {.size = (all->n + 1) / 2};
	while (slice.begin < all->n) {
		int r = clock_mono_ms() < until_ms ? slice_apply(s, work, slice) : ERR_UNAVAILABLE;
		if (r == ERR_BUSY && slice.size > 1) {
			slice.size = (slice.size + 1) / 2;
			continue;
		}
		int error = r ? postgres_write_note(s, postgres_error(r)) : 0;
		for (size_t i = 0; error != 0 && i < slice.size; i++)
			all->outcomes[slice.begin + i] = (struct store_outcome){.result = error};
		if (r != 0 && r != ERR_BUSY)
			until_ms = 0;
		slice.begin += slice.size;
		size_t left = all->n - slice.begin;
		slice.size = r == 0 ? MIN(slice.size, left) : left;
	}
	return 0;
}

static int apply_some(struct store_postgres *s, struct apply_work *ctx)
{
	struct postgres_work work = postgres_work(s, apply_run, ctx);
	work.can_serialize = s->kind.has_advisory_locks;
	work.is_brief = is_blocked(s);
	int r = write_once(s, &work, NULL);
	if (r == ERR_BUSY) {
		apply_work_reset(ctx); /* nothing was committed */
		return apply_by_bisection(s, &work);
	}
	return r ? r : lost_find(s, ctx);
}

/* Applies the changes again whose inserts were lost, with all rows fetched. The others are committed; a
 * failure affects only these. */
static void apply_lost(struct store_postgres *s, const struct apply_work *first)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct store_write *writes = arena_alloc(&arena, first->n * sizeof(*writes));
	struct store_outcome *outcomes = arena_alloc(&arena, first->n * sizeof(*outcomes));
	struct apply_work again = {
	    .rules = first->rules, .row = first->row, .writes = writes, .outcomes = outcomes, .all = true};
	int r = writes && outcomes ? 0 : ERR_NOMEM;
	for (size_t i = 0; r == 0 && i < first->n; i++) {
		if (view_lost(&first->view, &first->writes[i]) == ERR_CONFLICT)
			writes[again.n++] = first->writes[i];
	}
	if (r == 0)
		r = postgres_write_note(s, postgres_error(apply_some(s, &again)));
	if (r == 0 && again.lost > 0)
		lost_set_result(&again, ERR_CONFLICT);
	for (size_t i = 0, at = 0; i < first->n; i++) {
		if (view_lost(&first->view, &first->writes[i]) == ERR_CONFLICT)
			first->outcomes[i] = r ? (struct store_outcome){.result = postgres_error(r)}
			                       : outcomes[at++];
	}
	apply_work_reset(&again);
}

/* ERR_NOT_FOUND: the row has another version. */
static int apply(struct store_postgres *s, const struct slot_row *row, struct store_write *writes, size_t n)
{
	struct store_outcome *outcomes = calloc(n, sizeof(*outcomes));
	if (!outcomes)
		return ERR_NOMEM;
	struct apply_work work = {
	    .rules = &s->rules, .row = row, .writes = writes, .n = n, .outcomes = outcomes};
	int r = apply_some(s, &work);
	if (r == 0 && work.lost > 0)
		apply_lost(s, &work);
	apply_work_reset(&work);
	if (s->replicas) /* failed changes may have been applied, too */
		postgres_replicas_changed(s->replicas, writes, n);
	for (size_t i = 0; r == 0 && i < n; i++)
		outcome_publish(&outcomes[i], &writes[i]);
	free(outcomes);
	return r;
}

int postgres_apply(struct store_postgres *s, const struct slot_row *row, struct store_write *writes, size_t n)
{
	int r = n > 0 ? POSTGRES_WRITE(s, apply(s, row, writes, n)) : 0;
	return postgres_slots_error(r);
}
