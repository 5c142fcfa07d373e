#include "store/reshard.h"

#include "store/ring_core.h"

#include <time.h>

enum { PAGE_KEYS = 1000, MOVE_KEYS = 200, MOVE_TRIES = 5, MOVE_PAUSE_MS = 50 };

/* --- who shall be in it --- */

static bool leaves(const struct reshard *r, struct str address)
{
	for (size_t i = 0; i < r->leave_count; i++) {
		if (str_eq(r->leave[i], address))
			return true;
	}
	return false;
}

static int leave_check(const struct store_ring *s, const struct reshard *r, struct err *e)
{
	for (size_t i = 0; i < r->leave_count; i++) {
		size_t k = 0;
		while (k < s->part_count && !str_eq(s->parts[k].address, r->leave[i]))
			k++;
		if (k == s->part_count)
			return err_set(e, ERR_INVALID,
			               "%.*s is no address of a part in store.url; --status shows them",
			               STR_ARG(r->leave[i]));
		if (k == s->home)
			return err_set(
			    e, ERR_INVALID,
			    "%.*s is the ring's home, where accounts and counters are: it cannot leave",
			    STR_ARG(r->leave[i]));
	}
	return 0;
}

struct wanted {
	struct plan_part parts[RING_PARTS_MAX];
	size_t numbers[RING_PARTS_MAX];
	struct plan_parts list;
	struct ring *circle;
};

static int wanted_init(const struct store_ring *s, const struct reshard *r, struct wanted *w, struct err *e)
{
	struct str names[RING_PARTS_MAX];
	*w = (struct wanted){.list.at = w->parts};
	for (size_t i = 0; i < s->part_count; i++) {
		const struct ring_part *part = &s->parts[i];
		if (!part->answers)
			return err_set(e, ERR_UNAVAILABLE, "%.*s does not answer; all parts must be there",
			               STR_ARG(part->address));
		if (leaves(r, part->address))
			continue;
		names[w->list.count] = str_of(part->name);
		w->numbers[w->list.count] = i;
		w->parts[w->list.count++] = (struct plan_part){str_of(part->name), part->address};
	}
	w->circle = ring_new(names, w->list.count);
	return w->circle ? 0 : err_set(e, ERR_NOMEM, "out of memory");
}

/* --- walking --- */

struct walk {
	struct store_ring *s;
	const struct ring_view *view;
	const struct wanted *wanted;
	struct reshard *r;
	struct err *e;
	unsigned number;
	uint64_t looked_at;
	uint64_t found[RING_PARTS_MAX][RING_PARTS_MAX]; /* that must move, from and to */
};

static int walk_tell(struct walk *w, size_t from)
{
	struct reshard_progress progress = {.looked_at = w->looked_at,
	                                    .moved = w->r->moved,
	                                    .walk = w->number,
	                                    .part = w->s->parts[from].address};
	if (!w->r->progress || w->r->progress(w->r->ctx, &progress))
		return 0;
	return err_set(w->e, ERR_BUSY, "stopped; 'curt reshard' goes on from here");
}

/* A server that is just starting again is no reason to give up. */
static int move_patiently(struct walk *w, size_t from, size_t to, const struct str *keys, size_t n)
{
	int r = 0;
	for (unsigned tries = 0; tries < MOVE_TRIES; tries++) {
		r = ring_move_keys(w->s, w->view->plan.epoch, from, to, keys, n);
		if (r != ERR_UNAVAILABLE)
			break;
		nanosleep(&(struct timespec){.tv_nsec = MOVE_PAUSE_MS * 1000000L}, NULL);
	}
	if (r == ERR_CONFLICT)
		return err_set(w->e, r, "somebody else has changed the ring meanwhile; look at --status");
	if (r != 0)
		return err_set(w->e, r, "cannot move keys from %.*s to %.*s (%s)",
		               STR_ARG(w->s->parts[from].address), STR_ARG(w->s->parts[to].address),
		               err_name(r));
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
			r = walk_tell(w, from);
	}
	return r;
}

static int page_do(struct walk *w, size_t from, const struct str *keys, size_t n)
{
	size_t places[PAGE_KEYS];
	uint64_t targets = 0;
	for (size_t i = 0; i < n; i++) {
		places[i] = w->wanted->numbers[ring_find(w->wanted->circle, keys[i])];
		targets |= (uint64_t)1 << places[i];
	}
	targets &= ~((uint64_t)1 << from);
	w->looked_at += n;
	int r = walk_tell(w, from);
	for (size_t to = 0; r == 0 && to < w->s->part_count; to++) {
		if (targets >> to & 1)
			r = page_move(w, from, to, keys, places, n);
	}
	return r;
}

static int walk_part(struct walk *w, size_t from)
{
	struct store *part = ring_store(w->s, from);
	char last[KEY_BYTES_MAX];
	struct str after = STR_NULL;
	size_t count;
	int r;
	do {
		CLEANUP(arena_release) struct arena arena = {0};
		struct str keys[PAGE_KEYS];
		count = 0;
		r = part->ops->part->keys_after(part, after, PAGE_KEYS, &arena, keys, &count);
		if (r != 0)
			return err_set(w->e, r, "cannot read the keys of %.*s (%s)",
			               STR_ARG(w->s->parts[from].address), err_name(r));
		if (count == 0)
			return 0;
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

/* Until a walk finds nothing. */
static int move_all(struct walk *w)
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

/* --- declaring --- */

/* The members by the addresses that they have now. */
static struct plan_parts members_now(const struct store_ring *s, const struct ring_view *v,
                                     struct plan_part *parts)
{
	for (size_t i = 0; i < v->plan.members.count; i++) {
		parts[i] = v->plan.members.at[i];
		if (v->members[i] != PART_MISSING)
			parts[i].address = s->parts[v->members[i]].address;
	}
	return (struct plan_parts){parts, v->plan.members.count};
}

/* Does the ring as it is known now lead where we want? 0: it does, and keys move; 1: all is done; otherwise
 * ERR_CONFLICT. */
static int progress_check(const struct ring_view *v, const struct wanted *w, struct err *e)
{
	if (view_moves(v) && plan_parts_equal(&v->plan.target, &w->list))
		return 0;
	if (!view_moves(v) && plan_parts_equal(&v->plan.members, &w->list))
		return 1;
	return err_set(e, ERR_CONFLICT, "somebody else has changed the ring meanwhile; look at --status");
}

/* A transaction that stays open in a part (of a server that hangs, say) would keep that part from taking the
 * new ring, and its keys would be out of reach until it ends. To declare what a part knows already changes
 * nothing, but waits in the same way. */
static int begin_try(struct store_ring *s, const struct ring_view *v, struct err *e)
{
	struct err why = {""};
	int r = ring_declare_all(s, &v->plan, view_olds(v), &why);
	return r == 0 ? 0 : err_set(e, r, "nothing was changed: %s", why.text);
}

/* Makes the ring that is checked move, unless it does. */
static int begin_declare(struct store_ring *s, const struct ring_view *v, const struct wanted *w,
                         struct err *e)
{
	struct plan_part parts[RING_PARTS_MAX];
	struct ring_plan plan = {.epoch = v->plan.epoch + 1,
	                         .home = v->plan.home,
	                         .members = members_now(s, v, parts),
	                         .target = w->list};
	if (view_moves(v))
		return 0;
	int r = begin_try(s, v, e);
	if (r == 0)
		r = ring_declare_home(s, &plan, e);
	return r == ERR_CONFLICT ? 0 : r; /* what was declared instead is looked at next */
}

/* *ret is the ring that moves, when no part lets anybody in by an earlier one; NULL when somebody else has
 * finished the move. */
static int begin(struct store_ring *s, const struct ring_view *checked, const struct wanted *w,
                 struct ring_view **ret, struct err *e)
{
	*ret = NULL;
	int r = begin_declare(s, checked, w, e);
	if (r == 0)
		r = ring_learn(s, e);
	if (r != 0)
		return r;
	struct ring_view *v = ring_view_get(s);
	r = progress_check(v, w, e);
	if (r == 0)
		r = ring_declare_all(s, &v->plan, view_olds(v) | view_news(v), e);
	if (r == 0)
		*ret = v;
	else
		ring_view_unref(v);
	return MIN(r, 0);
}

/* A part that does not hear of it now will when it is asked next. */
static int finish(struct store_ring *s, const struct ring_view *v, struct err *e)
{
	struct ring_plan plan = {.epoch = v->plan.epoch + 1, .home = v->plan.home, .members = v->plan.target};
	int r = ring_declare_home(s, &plan, e);
	if (r != 0)
		return r;
	(void)ring_declare_all(s, &plan, view_olds(v) | view_news(v), NULL);
	return ring_learn(s, e);
}

static int move_and_finish(struct walk *w, struct err *e)
{
	int r = move_all(w);
	return r == 0 ? finish(w->s, w->view, e) : r;
}

/* Two may do the same at once; the one who comes second to the end is content with that. */
static int conflict_settle(struct store_ring *s, const struct wanted *w, int error)
{
	if (error != ERR_CONFLICT || ring_learn(s, NULL) != 0)
		return error;
	struct ring_view *v = ring_view_get(s);
	bool done = progress_check(v, w, NULL) == 1;
	ring_view_unref(v);
	return done ? 0 : error;
}

static int reshard(struct walk *w, const struct ring_view *checked, struct err *e)
{
	struct ring_view *v = NULL;
	if (w->r->dry_run) {
		w->view = checked;
		return move_all(w);
	}
	int r = begin(w->s, checked, w->wanted, &v, e);
	if (r != 0)
		return r;
	w->view = v;
	if (v)
		r = conflict_settle(w->s, w->wanted, move_and_finish(w, e));
	else
		w->r->is_settled = true;
	ring_view_unref(v);
	return r;
}

/* Links of its own would turn up among those of the ring. */
static int newcomers_check(struct store_ring *s, const struct ring_view *v, const struct wanted *w,
                           struct err *e)
{
	for (size_t i = 0; i < w->list.count && !view_moves(v); i++) {
		bool used = false;
		struct str address = w->list.at[i].address;
		if (plan_parts_find(&v->plan.members, w->list.at[i].name) < v->plan.members.count)
			continue;
		int r = ring_part_is_used(ring_store(s, w->numbers[i]), &used);
		if (r != 0)
			return err_set(e, r, "%.*s does not answer (%s)", STR_ARG(address), err_name(r));
		if (used)
			return err_set(
			    e, ERR_INVALID,
			    "%.*s holds links or accounts of its own; only an empty database can join",
			    STR_ARG(address));
	}
	return 0;
}

static int members_check(const struct ring_view *v, const struct wanted *w, struct err *e)
{
	if (view_moves(v) && !plan_parts_equal(&v->plan.target, &w->list))
		return err_set(
		    e, ERR_INVALID,
		    "a move to other parts was begun before; finish it first: 'curt reshard --status' "
		    "shows which");
	for (size_t i = 0; i < v->plan.members.count; i++) {
		if (v->members[i] == PART_MISSING)
			return err_set(
			    e, ERR_INVALID,
			    "the ring has a part at %.*s that store.url does not list; add its URL, and "
			    "--leave ADDRESS if it shall leave",
			    STR_ARG(v->plan.members.at[i].address));
	}
	return 0;
}

int store_reshard(struct store *ring, struct reshard *r, struct err *e)
{
	struct store_ring *s = ring_self(ring);
	struct wanted wanted = {.circle = NULL};
	int result = ring_learn(s, e);
	if (result == 0)
		result = leave_check(s, r, e);
	if (result == 0)
		result = wanted_init(s, r, &wanted, e);
	if (result != 0)
		return result;
	struct ring_view *v = ring_view_get(s);
	result = members_check(v, &wanted, e);
	if (result == 0)
		result = newcomers_check(s, v, &wanted, e);
	r->was_begun = view_moves(v);
	r->is_settled = !view_moves(v) && plan_parts_equal(&v->plan.members, &wanted.list);
	if (result == 0 && !r->is_settled) {
		struct walk w = {.s = s, .wanted = &wanted, .r = r, .e = e};
		result = reshard(&w, v, e);
	}
	ring_view_unref(v);
	ring_free(wanted.circle);
	return result;
}

/* --- status --- */

static struct ring_status_part *status_find(struct ring_status *status, struct str address)
{
	for (size_t i = 0; i < status->part_count; i++) {
		if (str_eq(status->parts[i].address, address))
			return &status->parts[i];
	}
	struct ring_status_part *part = &status->parts[status->part_count++];
	part->address = address;
	return part;
}

/* What the plan calls it, or what is configured for it. */
static struct ring_status_part *status_of(const struct store_ring *s, struct ring_status *status,
                                          const struct plan_part *part, size_t number, struct arena *arena)
{
	struct str address = number == PART_MISSING ? arena_str(arena, part->address)
	                                            : s->parts[number].address;
	return status_find(status, address);
}

int store_ring_status(struct store *ring, struct arena *arena, struct ring_status *ret, struct err *e)
{
	struct store_ring *s = ring_self(ring);
	int r = ring_learn(s, e);
	if (r != 0)
		return r;
	struct ring_view *v = ring_view_get(s);
	*ret = (struct ring_status){.epoch = v->plan.epoch, .moves = view_moves(v)};
	for (size_t i = 0; i < s->part_count; i++) {
		struct ring_status_part *part = status_find(ret, s->parts[i].address);
		part->is_configured = true;
		part->answers = s->parts[i].answers;
		part->is_home = i == s->home;
	}
	for (size_t i = 0; i < v->plan.members.count; i++)
		status_of(s, ret, &v->plan.members.at[i], v->members[i], arena)->is_member = true;
	for (size_t i = 0; i < v->plan.target.count; i++)
		status_of(s, ret, &v->plan.target.at[i], v->targets[i], arena)->is_target = true;
	ring_view_unref(v);
	return 0;
}
