#include "store/ring_walk.h"

#include "os/clock.h"

#include <time.h>

enum { PAGE_KEYS = 1000, MOVE_KEYS = 200, WAIT_PAUSE_MS = 50 };

static int walk_tell(struct walk *w, size_t from, int64_t waits_ms)
{
	struct reshard_progress progress = {.looked_at = w->looked_at,
	                                    .moved = w->r->moved,
	                                    .walk = w->tidies ? 0 : w->number,
	                                    .part = w->s->parts[from].address,
	                                    .waits_ms = waits_ms};
	if (!w->r->progress || w->r->progress(w->r->ctx, &progress))
		return 0;
	return err_set(w->e, ERR_BUSY, "stopped; 'curt reshard' goes on from here");
}

bool walk_waits(struct walk *w, struct patience *p, size_t part, int *result)
{
	int64_t now_ms = clock_mono_ms();
	if (*result != ERR_UNAVAILABLE)
		return false;
	if (p->since_ms == 0)
		p->since_ms = now_ms;
	if (now_ms - p->since_ms >= w->r->patience_ms)
		return false;
	int r = walk_tell(w, part, MAX(now_ms - p->since_ms, 1));
	if (r != 0) {
		*result = r;
		return false;
	}
	nanosleep(&(struct timespec){.tv_nsec = WAIT_PAUSE_MS * 1000000L}, NULL);
	return true;
}

/* Which of two it is, to say so. */
static size_t who_is_away(const struct walk *w, size_t from, size_t to)
{
	struct store *part = ring_store(w->s, from);
	return !part || store_ping(part, NULL) != 0 ? from : to;
}

static int move_fail(const struct walk *w, size_t from, size_t to, int r)
{
	struct str source = w->s->parts[from].address, target = w->s->parts[to].address;
	if (r == ERR_BUSY)
		return r; /* it was stopped, and that is said */
	if (r == ERR_CONFLICT)
		return err_set(w->e, r, "somebody else has changed the ring meanwhile; look at --status");
	if (r == ERR_CORRUPT)
		return err_set(w->e, r,
		               "a link in %.*s has the id of another one in %.*s, so it cannot move there; "
		               "docs/sharding.md says under 'Restoring a part' how to find and mend it",
		               STR_ARG(source), STR_ARG(target));
	return err_set(w->e, r, "cannot move keys from %.*s to %.*s (%s)", STR_ARG(source), STR_ARG(target),
	               err_name(r));
}

static int move_patiently(struct walk *w, size_t from, size_t to, const struct str *keys, size_t n)
{
	struct patience patience = {0};
	int r;
	do
		r = ring_move_keys(w->s, w->view->plan.epoch, from, to, keys, n);
	while (r == ERR_UNAVAILABLE && walk_waits(w, &patience, who_is_away(w, from, to), &r));
	if (r != 0)
		return move_fail(w, from, to, r);
	w->r->moved += n;
	return 0;
}

/* Of a page, what must go from one part to another. */
static int page_move(struct walk *w, size_t from, size_t to, const struct str *keys, const size_t *places,
                     size_t n)
{
	struct str batch[MOVE_KEYS];
	size_t count = 0;
	int r = 0;
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (places[i] == to)
			batch[count++] = keys[i];
		if (count == MOVE_KEYS || (i + 1 == n && count > 0)) {
			r = w->r->dry_run ? 0 : move_patiently(w, from, to, batch, count);
			w->found[from][to] += count;
			count = 0;
		}
		if (r == 0 && i % MOVE_KEYS == 0)
			r = walk_tell(w, from, 0);
	}
	return r;
}

static int page_move_all(struct walk *w, size_t from, const struct str *keys, size_t n)
{
	size_t places[PAGE_KEYS];
	uint64_t targets = 0;
	for (size_t i = 0; i < n; i++) {
		/* What is not its own has come already, or is a stray. */
		bool is_its = view_old(w->view, keys[i]) == from;
		places[i] = is_its ? w->wanted->numbers[ring_find(w->wanted->circle, keys[i])] : from;
		targets |= (uint64_t)1 << places[i];
	}
	targets &= ~((uint64_t)1 << from);
	int r = 0;
	for (size_t to = 0; r == 0 && to < w->s->part_count; to++) {
		if (targets >> to & 1)
			r = page_move(w, from, to, keys, places, n);
	}
	return r;
}

/* Under the locks and the epoch of a move, which goes nowhere. */
static int strays_remove(struct walk *w, size_t from, const struct str *keys, size_t n)
{
	struct store *part = ring_store(w->s, from);
	struct part_move *move;
	int r = part->ops->part->move_begin(part, w->view->plan.epoch, keys, n, &move);
	return r == 0 ? part->ops->part->move_end(part, move, true) : r;
}

static int page_tidy(struct walk *w, size_t from, const struct str *keys, size_t n)
{
	struct str strays[PAGE_KEYS];
	struct patience patience = {0};
	size_t count = 0;
	int r = 0;
	for (size_t i = 0; i < n; i++) {
		if (view_old(w->view, keys[i]) != from)
			strays[count++] = keys[i];
	}
	w->r->strays += count;
	if (count == 0 || w->r->dry_run)
		return 0;
	do
		r = strays_remove(w, from, strays, count);
	while (walk_waits(w, &patience, from, &r));
	if (r == ERR_CONFLICT)
		return err_set(w->e, r, "somebody else has changed the ring meanwhile; look at --status");
	return r == 0 || r == ERR_BUSY ? r
	                               : err_set(w->e, r, "cannot remove keys of other parts from %.*s (%s)",
	                                         STR_ARG(w->s->parts[from].address), err_name(r));
}

static int page_do(struct walk *w, size_t from, const struct str *keys, size_t n)
{
	w->looked_at += n;
	int r = walk_tell(w, from, 0);
	if (r != 0)
		return r;
	return w->tidies ? page_tidy(w, from, keys, n) : page_move_all(w, from, keys, n);
}

static int page_read(struct walk *w, size_t from, struct str after, struct arena *arena, struct str *keys,
                     size_t *ret_count)
{
	struct store *part = ring_store(w->s, from);
	struct patience patience = {0};
	int r;
	do
		r = part->ops->part->keys_after(part, after, PAGE_KEYS, arena, keys, ret_count);
	while (walk_waits(w, &patience, from, &r));
	if (r == 0 || r == ERR_BUSY)
		return r;
	return err_set(w->e, r, "cannot read the keys of %.*s (%s)", STR_ARG(w->s->parts[from].address),
	               err_name(r));
}

static int walk_part(struct walk *w, size_t from)
{
	char last[KEY_BYTES_MAX];
	struct str after = STR_NULL;
	size_t count;
	int r;
	do {
		CLEANUP(arena_release) struct arena arena = {0};
		struct str keys[PAGE_KEYS];
		count = 0;
		r = page_read(w, from, after, &arena, keys, &count);
		if (r != 0 || count == 0)
			return r;
		r = page_do(w, from, keys, count);
		after = str_n(last, MIN(keys[count - 1].len, sizeof(last)));
		memcpy(last, keys[count - 1].ptr, after.len);
	} while (r == 0);
	return r;
}

/* Those that went to a part before the walk came to it were looked at twice. */
static uint64_t seen_twice(const struct walk *w)
{
	const size_t *members = w->view->members;
	uint64_t count = 0;
	for (size_t to = 1; to < w->view->plan.members.count && !w->r->dry_run; to++) {
		for (size_t from = 0; from < to; from++)
			count += w->found[members[from]][members[to]];
	}
	return count;
}

static int walk_all(struct walk *w)
{
	int r = 0;
	w->number++;
	w->looked_at = 0;
	for (size_t i = 0; r == 0 && i < w->view->plan.members.count; i++)
		r = walk_part(w, w->view->members[i]);
	if (w->number == 1)
		w->r->looked_at = w->looked_at - seen_twice(w);
	return r;
}

static void flows_give(struct walk *w)
{
	for (size_t from = 0; from < RING_PARTS_MAX; from++) {
		for (size_t to = 0; to < RING_PARTS_MAX; to++) {
			if (w->found[from][to] == 0)
				continue;
			w->r->flows[w->r->flow_count++] = (struct reshard_flow){
			    w->s->parts[from].address, w->s->parts[to].address, w->found[from][to]};
			w->r->moved += w->r->dry_run ? w->found[from][to] : 0;
		}
	}
}

int walk_tidy(struct walk *w)
{
	int r = 0;
	w->tidies = true;
	for (size_t i = 0; r == 0 && i < w->view->plan.members.count; i++)
		r = walk_part(w, w->view->members[i]);
	w->tidies = false;
	return r;
}

int walk_move(struct walk *w)
{
	uint64_t before;
	int r;
	do {
		before = w->r->moved;
		r = walk_all(w);
	} while (r == 0 && !w->r->dry_run && w->r->moved > before);
	flows_give(w);
	return r;
}
