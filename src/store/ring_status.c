/* Who is in a ring, and giving up one that is lost. */
#include "store/reshard.h"
#include "store/ring_core.h"

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

struct known {
	uint64_t epochs[PART_SLOTS];
};

static int known_call(void *ctx, struct store *part, size_t number)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct known *known = ctx;
	struct str text;
	return part->ops->part->ring_get(part, &arena, &known->epochs[number], &text);
}

static void status_parts(struct store_ring *s, const struct ring_view *v, struct ring_status *ret)
{
	uint64_t parts = (view_olds(v) | view_news(v)) & ~((uint64_t)1 << PART_MISSING);
	struct known known = {{0}};
	int results[PART_SLOTS];
	ring_each(s, parts, known_call, &known, results);
	for (size_t i = 0; i < s->part_count; i++) {
		struct ring_status_part *part = status_find(ret, s->parts[i].address);
		part->is_configured = true;
		part->answers = s->parts[i].answers;
		part->is_home = i == s->home;
		part->is_behind = parts >> i & 1 && results[i] == 0 && known.epochs[i] < v->plan.epoch;
	}
}

int store_ring_status(struct store *ring, struct arena *arena, struct ring_status *ret, struct err *e)
{
	struct store_ring *s = ring_self(ring);
	int r = ring_learn(s, e);
	if (r != 0)
		return r;
	struct ring_view *v = ring_view_get(s);
	*ret = (struct ring_status){.epoch = v->plan.epoch, .moves = view_moves(v)};
	status_parts(s, v, ret);
	for (size_t i = 0; i < v->plan.members.count; i++) {
		const struct plan_part *member = &v->plan.members.at[i];
		struct ring_status_part *part = status_of(s, ret, member, v->members[i], arena);
		part->is_member = true;
		part->is_lost = v->members[i] == PART_MISSING && part->is_configured;
		part->is_home = str_eq(member->name, v->plan.home);
	}
	for (size_t i = 0; i < v->plan.target.count; i++) {
		struct ring_status_part *part = status_of(s, ret, &v->plan.target.at[i], v->targets[i],
		                                          arena);
		part->is_target = true;
		part->is_lost = v->targets[i] == PART_MISSING && part->is_configured;
	}
	ring_view_unref(v);
	return 0;
}

/* --- giving up --- */

/* The parts but one; *ret_number: that one's, if it is among them. */
static struct plan_parts parts_without(const struct store_ring *s, const struct plan_parts *parts,
                                       const size_t *numbers, struct str address, struct plan_part *room,
                                       size_t *ret_number)
{
	struct plan_parts rest = {.at = room};
	for (size_t i = 0; i < parts->count; i++) {
		bool is_missing = numbers[i] == PART_MISSING;
		if (str_eq(is_missing ? parts->at[i].address : s->parts[numbers[i]].address, address))
			*ret_number = numbers[i];
		else
			room[rest.count++] = parts->at[i];
	}
	return rest;
}

static int forget_check(const struct store_ring *s, const struct ring_view *v, struct str address,
                        const struct ring_plan *plan, size_t number, bool sure, struct err *e)
{
	if (plan->members.count + plan->target.count == v->plan.members.count + v->plan.target.count)
		return err_set(e, ERR_INVALID, "%.*s is no address of a member; --status shows them",
		               STR_ARG(address));
	if (plan_parts_find(&plan->members, plan->home) == plan->members.count)
		return err_set(e, ERR_INVALID,
		               "%.*s is the ring's home, where accounts and counters are: it cannot be given "
		               "up; restore it from a backup",
		               STR_ARG(address));
	if (s->home == PART_MISSING || !s->parts[s->home].answers)
		return err_set(e, ERR_UNAVAILABLE, "the ring's home does not answer; it must be there");
	if (number != PART_MISSING && s->parts[number].answers)
		return err_set(e, ERR_INVALID, "%.*s answers, so nothing needs to be lost: use --leave",
		               STR_ARG(address));
	if (!sure)
		return err_set(
		    e, ERR_INVALID,
		    "to give up %.*s is to lose all links that lie there, one of %zu parts of them: they "
		    "answer 404, their names can be taken by others, and a backup of it is of no use "
		    "afterwards; say --yes if that shall be",
		    STR_ARG(address), v->plan.members.count);
	return 0;
}

int store_ring_forget(struct store *ring, struct str address, bool sure, struct err *e)
{
	struct store_ring *s = ring_self(ring);
	struct plan_part members[RING_PARTS_MAX], targets[RING_PARTS_MAX];
	size_t number = PART_MISSING;
	int r = ring_learn(s, e);
	if (r != 0)
		return r;
	struct ring_view *v = ring_view_get(s);
	struct ring_plan plan = {
	    .epoch = v->plan.epoch + 1,
	    .home = v->plan.home,
	    .members = parts_without(s, &v->plan.members, v->members, address, members, &number),
	    .target = parts_without(s, &v->plan.target, v->targets, address, targets, &number)};
	r = forget_check(s, v, address, &plan, number, sure, e);
	if (plan_parts_equal(&plan.members, &plan.target))
		plan.target.count = 0; /* it was the only one who came or went */
	uint64_t rest = (view_olds(v) | view_news(v)) & ~((uint64_t)1 << PART_MISSING);
	rest &= ~((uint64_t)1 << number);
	if (r == 0)
		r = ring_declare_all(s, &v->plan, rest, e); /* they can take a new one */
	if (r == 0)
		r = ring_declare_home(s, &plan, e);
	if (r == 0)
		r = ring_declare_all(s, &plan, rest, e);
	ring_view_unref(v);
	return r;
}
