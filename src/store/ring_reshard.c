#include "store/reshard.h"

#include "store/ring_walk.h"

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

/* To all parts of the ring that moves. */
static int declare_patiently(struct walk *w, const struct ring_plan *plan, struct err *e)
{
	struct patience patience = {0};
	int r;
	do
		r = ring_declare_all(w->s, plan, view_olds(w->view) | view_news(w->view), e);
	while (walk_waits(w, &patience, w->s->home, &r));
	return r;
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

/* That all parts can take a new ring is tried first, as it is before the move begins. */
static int finish(struct walk *w, struct err *e)
{
	struct store_ring *s = w->s;
	const struct ring_view *v = w->view;
	struct ring_plan plan = {.epoch = v->plan.epoch + 1, .home = v->plan.home, .members = v->plan.target};
	struct err why = {""};
	int r = declare_patiently(w, &v->plan, &why);
	if (r == 0)
		r = ring_declare_home(s, &plan, &why);
	if (r != 0)
		return err_set(e, r, "all keys have moved, but the ring is not declared yet: %s", why.text);
	r = declare_patiently(w, &plan, &why);
	int learned = ring_learn(s, e);
	if (r != 0)
		return err_set(e, r,
		               "all keys have moved, but %s; its keys are out of reach until then: 'curt "
		               "reshard --status' shows it",
		               why.text);
	return learned;
}

static int move_and_finish(struct walk *w, struct err *e)
{
	int r = walk_move(w);
	return r == 0 ? finish(w, e) : r;
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
		return walk_move(w);
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

/* Those who are in the ring, and those who shall be. */
static int members_check(const struct store_ring *s, const struct ring_view *v, const struct wanted *w,
                         struct err *e)
{
	if (s->home == PART_MISSING)
		return ring_missing_tell(
		    s, &v->plan.members.at[plan_parts_find(&v->plan.members, v->plan.home)], e);
	int r = ring_missing_check(s, v, e);
	if (r != 0)
		return r;
	if (view_moves(v) && !plan_parts_equal(&v->plan.target, &w->list))
		return err_set(
		    e, ERR_INVALID,
		    "a move to other parts was begun before; finish it first: 'curt reshard --status' "
		    "shows which");
	return 0;
}

/* Before keys move: what lies in a wrong part might be taken for right afterwards. Also finds a part that has
 * not taken the ring. */
static int tidy(struct walk *w, const struct ring_view *v, struct err *e)
{
	if (view_moves(v))
		return 0;
	w->view = v;
	int r = w->r->dry_run ? 0 : begin_try(w->s, v, e);
	return r == 0 ? walk_tidy(w) : r;
}

static int reshard_checked(struct walk *w, const struct ring_view *v, struct err *e)
{
	struct reshard *r = w->r;
	r->was_begun = view_moves(v);
	int result = tidy(w, v, e);
	r->is_settled = !view_moves(v) && plan_parts_equal(&v->plan.members, &w->wanted->list);
	return result == 0 && !r->is_settled ? reshard(w, v, e) : result;
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
	struct walk w = {.s = s, .wanted = &wanted, .r = r, .e = e};
	result = members_check(s, v, &wanted, e);
	if (result == 0)
		result = newcomers_check(s, v, &wanted, e);
	if (result == 0)
		result = reshard_checked(&w, v, e);
	ring_view_unref(v);
	ring_free(wanted.circle);
	return result;
}
