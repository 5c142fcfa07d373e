/*
 * Batches of changes. Each is one transaction, unless somebody holds a row that one of them wants: then those
 * who want it are found by doing the batch in parts, so that nobody else fails.
 */
#include "os/clock.h"
#include "store/outcome.h"
#include "store/postgres_change.h"
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
	uint64_t epoch;
	const struct store_write *writes;
	size_t n;
	struct store_outcome *outcomes;
};

static int apply_run(struct postgres_txn *t, void *ctx)
{
	const struct apply_work *work = ctx;
	memset(work->outcomes, 0, work->n * sizeof(*work->outcomes)); /* it may be done again */
	if (work->epoch != 0)
		postgres_epoch_hold(t, work->epoch);
	return postgres_change(t, work->writes, work->n, work->outcomes);
}

/* While somebody holds a row, others are not to wait again and again for those who want it. */
static bool is_held(struct store_postgres *s)
{
	int64_t held_ms = atomic_load_explicit(&s->held_ms, memory_order_relaxed);
	return held_ms != 0 && clock_mono_ms() - held_ms < HELD_MS;
}

/* The next part of a batch that is done in parts: `size` of them from `begin` on. */
struct piece {
	size_t begin, size;
};

static int piece_apply(struct store_postgres *s, const struct postgres_work *work, struct piece piece)
{
	const struct apply_work *all = work->ctx;
	struct apply_work some = {.epoch = all->epoch,
	                          .writes = all->writes + piece.begin,
	                          .n = piece.size,
	                          .outcomes = all->outcomes + piece.begin};
	struct postgres_work brief = *work;
	brief.ctx = &some;
	brief.is_brief = true;
	return write_once(s, &brief, NULL);
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

/* ERR_NOT_FOUND is what another epoch comes to. */
static int apply(struct store_postgres *s, uint64_t epoch, bool in_ring, struct store_write *writes, size_t n)
{
	struct store_outcome *outcomes = calloc(n, sizeof(*outcomes));
	if (!outcomes)
		return ERR_NOMEM;
	struct apply_work ctx = {.epoch = epoch, .writes = writes, .n = n, .outcomes = outcomes};
	struct postgres_work work = {.run = apply_run,
	                             .ctx = &ctx,
	                             .in_ring = in_ring,
	                             .is_distributed = s->kind.is_distributed,
	                             .gives_way = s->kind.has_advisory_locks,
	                             .is_brief = is_held(s)};
	int r = write_once(s, &work, NULL);
	if (r == ERR_BUSY)
		r = apply_in_pieces(s, &work);
	if (s->replicas) /* also what failed may have happened */
		postgres_replicas_changed(s->replicas, writes, n);
	for (size_t i = 0; r == 0 && i < n; i++)
		outcome_publish(&outcomes[i], &writes[i]);
	free(outcomes);
	return r;
}

int postgres_apply_at(struct store_postgres *s, uint64_t epoch, bool in_ring, struct store_write *writes,
                      size_t n)
{
	return n > 0 ? POSTGRES_WRITE(s, apply(s, epoch, in_ring, writes, n)) : 0;
}
