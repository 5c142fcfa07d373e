#include "link/sweep.h"

#include "link/links_private.h"
#include "os/clock.h"
#include "os/thread.h"

enum {
	BATCH_MIN = 1,
	BATCH_FIRST = 16,
	BATCH_MAX = 512,
	AIM_US = 2000,
	BUSY_MS = 20, /* between two checks for idle time */
	BUSY_MAX = 25,
};

/* As many as would have taken AIM_US, at most twice as many as before: later steps find fewer pages in
 * memory. A batch that was not full says nothing about larger ones. */
static size_t batch_next(size_t batch, size_t count, int64_t took_us)
{
	size_t fitting = (size_t)((int64_t)count * AIM_US / MAX(took_us, 1));
	if (took_us > AIM_US)
		batch = MIN(batch, fitting);
	else if (count == batch)
		batch = MIN(2 * batch, fitting);
	return MIN(MAX(batch, (size_t)BATCH_MIN), (size_t)BATCH_MAX);
}

/* A link that was extended or removed meanwhile is no failure. */
static bool is_failure(int result)
{
	return result != 0 && result != ERR_CONFLICT && result != ERR_NOT_FOUND;
}

/* Returns the number removed, or an error if it is 0. Changes are by name, so names are looked up first;
 * removed links have none. */
static int sweep(struct links *l, const uint64_t *ids, size_t count, int64_t now_ms, struct metrics *m,
                 int64_t *ret_took_us)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct store_lookup *reads = arena_zalloc(&arena, count * sizeof(*reads));
	struct store_write *writes = arena_zalloc(&arena, count * sizeof(*writes));
	size_t n = 0;
	int removed = 0;
	if (!reads || !writes)
		return ERR_NOMEM;
	for (size_t i = 0; i < count; i++)
		reads[i] = (struct store_lookup){.ref.id = ids[i], .arena = &arena, .fresh = true};
	int failure = links_get(l, reads, count, m);
	if (failure != 0)
		return failure;
	for (size_t i = 0; i < count; i++) {
		if (reads[i].result == 0)
			writes[n++] = (struct store_write){.kind = STORE_LINK_SWEEP,
			                                   .now_ms = now_ms,
			                                   .arena = &arena,
			                                   .ref = links_ref(l, reads[i].link.key)};
		else if (is_failure(reads[i].result))
			failure = reads[i].result;
	}
	int64_t start_ns = clock_mono_ns();
	links_apply(l, writes, n, m);
	*ret_took_us = (clock_mono_ns() - start_ns) / 1000;
	for (size_t i = 0; i < n; i++) {
		removed += writes[i].result == 0;
		if (is_failure(writes[i].result))
			failure = writes[i].result;
	}
	return removed > 0 ? removed : failure;
}

static int step_locked(struct sweep *s, struct links *l, int64_t now_ms, struct metrics *m,
                       struct sweep_outcome *ret)
{
	uint64_t ids[BATCH_MAX];
	size_t batch = s->batch ? MIN(s->batch, (size_t)BATCH_MAX) : BATCH_FIRST;
	struct store_expired expired = {.now_ms = now_ms, .max = batch, .ids = ids};
	struct sweep_outcome outcome = {0};
	int r = store_expired(l->store, &expired);
	if (r == 0 && expired.count > 0)
		r = sweep(l, ids, expired.count, now_ms, m, &outcome.took_us);
	if (r < 0)
		return r;
	outcome.removed = (size_t)r;
	outcome.more = expired.count == batch &&
	               outcome.removed > 0; /* links that cannot be removed are not tried for ever */
	s->batch = expired.count > 0 ? batch_next(batch, expired.count, outcome.took_us) : batch;
	*ret = outcome;
	return 0;
}

int sweep_step(struct sweep *s, struct links *l, int64_t now_ms, struct metrics *m, struct sweep_outcome *ret)
{
	pthread_mutex_lock(&l->sweep_lock);
	int r = step_locked(s, l, now_ms, m, ret);
	pthread_mutex_unlock(&l->sweep_lock);
	return r;
}

/* True: stop. */
static bool idle_wait(const struct sweep_run *run, struct sweep *s)
{
	for (unsigned looks = 0; !thread_has_room(); looks++) {
		if (run->wait(run->ctx, BUSY_MS))
			return true;
		if (looks == BUSY_MAX) {
			s->batch = BATCH_MIN;
			return false;
		}
	}
	return false;
}

int sweep_run(struct sweep_run *run)
{
	struct sweep s = {0};
	struct sweep_outcome step;
	run->removed = 0;
	run->more = true;
	/* At least one step: a low-priority thread may have waited longer than that for the CPU. */
	for (bool first = true; run->more && (first || clock_mono_ms() < run->until_ms); first = false) {
		if (idle_wait(run, &s))
			break;
		int r = sweep_step(&s, run->links, clock_real_ms(), run->metrics, &step);
		if (r < 0)
			return r;
		run->removed += step.removed;
		run->more = step.more;
		if (run->more && run->wait(run->ctx, (uint64_t)step.took_us / 1000 + 1))
			break;
	}
	return 0;
}
