#include "link/sweep.h"

#include "os/clock.h"

#include <stdlib.h>

enum { BATCH_MIN = 16, BATCH_MAX = 512, AIM_US = 3000 };

/* As many as would have taken the time that is aimed at; growing by doubling at most, as the first steps find
 * pages in memory that later ones do not. A batch that was not full says nothing about larger ones. */
static size_t batch_next(size_t batch, size_t count, int64_t took_us)
{
	size_t fitting = (size_t)((int64_t)count * AIM_US / MAX(took_us, 1));
	if (took_us > AIM_US)
		batch = MIN(batch, fitting);
	else if (count == batch)
		batch = MIN(2 * batch, fitting);
	return MIN(MAX(batch, (size_t)BATCH_MIN), (size_t)BATCH_MAX);
}

/* One that was prolonged or removed meanwhile is as it should be. */
static bool is_failure(int result)
{
	return result != 0 && result != ERR_CONFLICT && result != ERR_NOT_FOUND;
}

/* The number that were removed, or the failure if there are none. */
static int reap(struct links *l, const uint64_t *ids, size_t count, int64_t now_ms, struct metrics *m,
                int64_t *ret_took_us)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct store_write *writes = calloc(count, sizeof(*writes));
	int removed = 0, failure = 0;
	if (!writes)
		return ERR_NOMEM;
	for (size_t i = 0; i < count; i++)
		writes[i] = (struct store_write){
		    .kind = STORE_LINK_REAP, .now_ms = now_ms, .arena = &arena, .ref.id = ids[i]};
	int64_t start_ns = clock_mono_ns();
	links_apply(l, writes, count, m);
	*ret_took_us = (clock_mono_ns() - start_ns) / 1000;
	for (size_t i = 0; i < count; i++) {
		removed += writes[i].result == 0;
		if (is_failure(writes[i].result))
			failure = writes[i].result;
	}
	free(writes);
	return removed > 0 ? removed : failure;
}

static int step_locked(struct sweep *s, struct links *l, int64_t now_ms, struct metrics *m,
                       struct sweep_outcome *ret)
{
	uint64_t ids[BATCH_MAX];
	size_t batch = s->batch ? MIN(s->batch, (size_t)BATCH_MAX) : BATCH_MIN;
	struct store_over over = {.now_ms = now_ms, .max = batch, .ids = ids};
	struct sweep_outcome outcome = {0};
	int r = links_over(l, &over);
	if (r == 0 && over.count > 0)
		r = reap(l, ids, over.count, now_ms, m, &outcome.took_us);
	if (r < 0)
		return r;
	outcome.removed = (size_t)r;
	outcome.more = over.count == batch && outcome.removed > 0; /* what cannot go is not tried for ever */
	s->batch = over.count > 0 ? batch_next(batch, over.count, outcome.took_us) : batch;
	*ret = outcome;
	return 0;
}

int sweep_step(struct sweep *s, struct links *l, int64_t now_ms, struct metrics *m, struct sweep_outcome *ret)
{
	pthread_mutex_lock(links_sweep_lock(l));
	int r = step_locked(s, l, now_ms, m, ret);
	pthread_mutex_unlock(links_sweep_lock(l));
	return r;
}
