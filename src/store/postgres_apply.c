/*
 * Batches of changes. Each is one transaction, unless somebody holds a row that one of them wants: then those
 * who want it are found by doing the batch in parts, so that nobody else fails.
 */
#include "os/clock.h"
#include "store/postgres_change.h"
#include "store/postgres_feed.h"
#include "store/postgres_replica.h"
#include "store/postgres_rows.h"
#include "store/postgres_store.h"

#include <stdlib.h>

enum { HELD_MS = 5000 };

int postgres_write_note(struct store_postgres *s, int r)
{
	if (r == ERR_UNAVAILABLE || r == ERR_UNCERTAIN || r == ERR_CORRUPT)
		atomic_store_explicit(&s->is_troubled, true, memory_order_relaxed);
	return r;
}

/* ERR_BUSY: somebody holds what it wants. */
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
	bool all;         /* nothing is left to its insert */
	struct view view; /* of the last try, which is the one that counts */
	struct pg_result made;
	size_t lost; /* inserts that found a name taken */
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
	apply_work_reset(work); /* it may be done again */
	memset(work->outcomes, 0, work->n * sizeof(*work->outcomes));
	postgres_slots_hold(t, work->row);
	int r = view_init(&work->view, work->rules, work->writes, work->n);
	if (r == 0)
		r = postgres_fetch_links(t, &work->view, work->all);
	if (r == 0)
		r = decide_links(&work->view, work->writes, work->n, work->outcomes);
	return r ? r : postgres_write_links(t, &work->view, &work->made);
}

/* While somebody holds a row, others are not to wait again and again for those who want it. */
static bool is_held(struct store_postgres *s)
{
	int64_t held_ms = atomic_load_explicit(&s->held_ms, memory_order_relaxed);
	return held_ms != 0 && clock_mono_ms() - held_ms < HELD_MS;
}

/* Whose result is `lost`: ERR_CONFLICT or ERR_UNCERTAIN. */
static void lost_tell(struct apply_work *work, int lost)
{
	for (size_t i = 0; i < work->n; i++) {
		if (view_lost(&work->view, &work->writes[i]) == lost)
			work->outcomes[i] = (struct store_outcome){.result = lost};
	}
}

/* It was committed. Which inserts were lost came with the answer; if that got lost, it is found out. */
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
	lost_tell(work, ERR_UNCERTAIN);
	return 0;
}

/* The next part of a batch that is done in parts: `size` of them from `begin` on. */
struct piece {
	size_t begin, size;
};

static int piece_apply(struct store_postgres *s, const struct postgres_work *work, struct piece piece)
{
	const struct apply_work *all = work->ctx;
	struct apply_work some = {.rules = all->rules,
	                          .row = all->row,
	                          .writes = all->writes + piece.begin,
	                          .n = piece.size,
	                          .outcomes = all->outcomes + piece.begin,
	                          .all = true};
	struct postgres_work brief = *work;
	brief.ctx = &some;
	brief.is_brief = true;
	int r = write_once(s, &brief, NULL);
	if (r == 0)
		r = lost_find(s, &some);
	if (r == 0 && some.lost > 0) /* while all rows were fetched: a race that goes on, or an id is taken */
		lost_tell(&some, ERR_CONFLICT);
	apply_work_reset(&some);
	return r;
}

static void piece_fail(const struct apply_work *all, struct piece piece, int error)
{
	for (size_t i = 0; i < piece.size; i++)
		all->outcomes[piece.begin + i] = (struct store_outcome){.result = error};
}

/* Somebody holds what one of them wants: by halves those who want it are found, and only they fail. After
 * any other failure, or when it takes too long, so do all that have not happened yet. */
static int apply_in_pieces(struct store_postgres *s, const struct postgres_work *work)
{
	const struct apply_work *all = work->ctx;
	atomic_store_explicit(&s->held_ms, clock_mono_ms(), memory_order_relaxed);
	if (all->n == 1)
		return ERR_UNAVAILABLE;
	int64_t until_ms = clock_mono_ms() + WRITE_PATIENCE_MS;
	struct piece piece = {.size = (all->n + 1) / 2};
	while (piece.begin < all->n) {
		int r = clock_mono_ms() < until_ms ? piece_apply(s, work, piece) : ERR_UNAVAILABLE;
		if (r == ERR_BUSY && piece.size > 1) {
			piece.size = (piece.size + 1) / 2;
			continue;
		}
		if (r != 0)
			piece_fail(all, piece, postgres_write_note(s, postgres_error(r)));
		if (r != 0 && r != ERR_BUSY)
			until_ms = 0;
		piece.begin += piece.size;
		size_t left = all->n - piece.begin;
		piece.size = r == 0 ? MIN(piece.size, left) : left;
	}
	return 0;
}

static int apply_some(struct store_postgres *s, struct apply_work *ctx)
{
	struct postgres_work work = postgres_work(s, apply_run, ctx);
	work.gives_way = s->kind.has_advisory_locks;
	work.is_brief = is_held(s);
	int r = write_once(s, &work, NULL);
	if (r == ERR_BUSY) {
		apply_work_reset(ctx); /* nothing came of it */
		return apply_in_pieces(s, &work);
	}
	return r ? r : lost_find(s, ctx);
}

/* Decides again for those whose insert was lost, with all rows fetched. The others have happened: a failure
 * is only theirs. */
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
		lost_tell(&again, ERR_CONFLICT);
	for (size_t i = 0, at = 0; i < first->n; i++) {
		if (view_lost(&first->view, &first->writes[i]) == ERR_CONFLICT)
			first->outcomes[i] = r ? (struct store_outcome){.result = postgres_error(r)}
			                       : outcomes[at++];
	}
	apply_work_reset(&again);
}

/* ERR_NOT_FOUND is what another version of the row comes to. */
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
	if (s->replicas) /* also what failed may have happened */
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
