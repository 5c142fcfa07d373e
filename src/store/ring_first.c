/*
 * How a ring begins: it is found, or made. Servers that make it at the same moment, from lists in different
 * orders, must make the same one; so the part with the smallest name keeps whom the first of them chose as
 * the home, and the home keeps what the first of them wrote.
 */
#include "store/ring_core.h"
#include "store/rules.h"

#include <sodium.h>

int ring_part_is_used(struct store *part, bool *ret)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct store_users users = {.limit = 1, .arena = &arena};
	struct str key;
	size_t count = 0;
	int r = store_users(part, &users);
	if (r == 0)
		r = part->ops->part->keys_after(part, STR_NULL, 1, &arena, &key, &count);
	*ret = users.count > 0 || count > 0;
	return r;
}

/* Which of the parts has been a store of its own until now, if one has. */
static int used_find(struct store_ring *s, size_t *ret, struct err *e)
{
	*ret = s->part_count;
	for (size_t i = 0; i < s->part_count; i++) {
		bool used;
		int r = ring_part_is_used(ring_store(s, i), &used);
		if (r != 0)
			return err_set(e, r, "%.*s does not answer (%s)", STR_ARG(s->parts[i].address),
			               err_name(r));
		if (used && *ret < s->part_count)
			return err_set(
			    e, ERR_INVALID,
			    "%.*s and %.*s both hold links or accounts, but never were one ring; list "
			    "one of them only, or empty the other",
			    STR_ARG(s->parts[*ret].address), STR_ARG(s->parts[i].address));
		if (used)
			*ret = i;
	}
	return 0;
}

/* Whom all take for the home when nobody has links yet: `first`, unless another was chosen before. */
static int home_choose(struct store_ring *s, size_t first, size_t *ret, struct err *e)
{
	uint8_t name[PART_NAME_BYTES];
	char text[PART_NAME_TEXT + 1];
	size_t judge = 0, bytes = 0;
	for (size_t i = 1; i < s->part_count; i++)
		judge = strcmp(s->parts[i].name, s->parts[judge].name) < 0 ? i : judge;
	ASSERT(sodium_hex2bin(name, sizeof(name), s->parts[first].name, PART_NAME_TEXT, NULL, &bytes, NULL) ==
	       0);
	int r = store_constant(ring_store(s, judge), STR("ring-home"), name, sizeof(name));
	if (r != 0)
		return err_set(e, r, "%.*s does not answer (%s)", STR_ARG(s->parts[judge].address),
		               err_name(r));
	sodium_bin2hex(text, sizeof(text), name, sizeof(name));
	for (*ret = 0; *ret < s->part_count; ++*ret) {
		if (strcmp(s->parts[*ret].name, text) == 0)
			return 0;
	}
	return err_set(e, ERR_INVALID,
	               "another server is making a ring of %.*s and databases that store.url does not list; "
	               "give all servers the same list",
	               STR_ARG(s->parts[judge].address));
}

/* All are empty: all are in it. One has been a store of its own: it is the ring, and the others wait to be
 * taken in by `curt reshard`. */
static int ring_make(struct store_ring *s, struct err *e)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct plan_part parts[RING_PARTS_MAX];
	size_t used, home;
	int r = used_find(s, &used, e);
	if (r != 0)
		return r;
	bool alone = used < s->part_count;
	home = used;
	r = alone ? 0 : home_choose(s, 0, &home, e);
	if (r != 0)
		return r;
	for (size_t i = 0; i < s->part_count; i++)
		parts[i] = (struct plan_part){str_of(s->parts[i].name), s->parts[i].address};
	struct ring_plan plan = {.epoch = 1,
	                         .home = parts[home].name,
	                         .members = {alone ? &parts[home] : parts, alone ? 1 : s->part_count}};
	struct str text = ring_plan_write(&plan, &arena);
	if (!text.ptr)
		return err_set(e, ERR_NOMEM, "out of memory");
	struct store *first = ring_store(s, home);
	r = first->ops->part->ring_set(first, plan.epoch, text);
	if (r != 0 && r != ERR_CONFLICT) /* another process made it at the same moment */
		return err_set(e, r, "%.*s does not take the ring's description (%s)",
		               STR_ARG(s->parts[home].address), err_name(r));
	return 0;
}

static int all_answer(const struct store_ring *s, struct err *e)
{
	for (size_t i = 0; i < s->part_count; i++) {
		if (!s->parts[i].answers)
			return err_set(e, ERR_UNAVAILABLE,
			               "%.*s does not answer, and without it nobody knows whether there is a "
			               "ring already",
			               STR_ARG(s->parts[i].address));
	}
	return 0;
}

/* Nobody waits for it yet: the parts are told here. */
static int find_or_make(struct store_ring *s, bool make, struct err *e)
{
	bool known;
	int r = ring_learn_known(s, &known, e);
	if (r != 0 || known)
		return r;
	r = all_answer(s, e);
	if (r == 0 && !make)
		return err_set(e, ERR_NOT_FOUND,
		               "the databases are no ring yet, and servers that use one of them alone would "
		               "not find what moves; restart all servers with the whole list in store.url "
		               "first");
	if (r == 0)
		r = ring_make(s, e);
	if (r == 0)
		r = ring_learn(s, e);
	if (r == 0)
		(void)ring_catch_up(s); /* who does not hear of it now will when it is asked */
	return r;
}

/* --- whether it is whole --- */

static bool is_listed(const struct store_ring *s, struct str address)
{
	for (size_t i = 0; i < s->part_count; i++) {
		if (str_eq(s->parts[i].address, address))
			return true;
	}
	return false;
}

int ring_missing_tell(const struct store_ring *s, const struct plan_part *part, struct err *e)
{
	if (is_listed(s, part->address))
		return err_set(e, ERR_UNAVAILABLE,
		               "the database at %.*s is not the one that was in the ring; put that one back, "
		               "from a backup if need be, or give it up: 'curt reshard --forget %.*s'",
		               STR_ARG(part->address), STR_ARG(part->address));
	return err_set(e, ERR_INVALID,
	               "the ring has a part at %.*s that store.url does not list; add its URL",
	               STR_ARG(part->address));
}

int ring_missing_check(const struct store_ring *s, const struct ring_view *v, struct err *e)
{
	for (size_t i = 0; i < v->plan.members.count; i++) {
		if (v->members[i] == PART_MISSING)
			return ring_missing_tell(s, &v->plan.members.at[i], e);
	}
	for (size_t i = 0; i < v->plan.target.count; i++) {
		if (v->targets[i] == PART_MISSING)
			return ring_missing_tell(s, &v->plan.target.at[i], e);
	}
	return 0;
}

/* A part that is lost is as good as away; one that nobody has listed is a mistake in the settings. */
static int members_check(const struct store_ring *s, struct err *e)
{
	const struct ring_view *v = s->view;
	const struct plan_parts *lists[] = {&v->plan.members, &v->plan.target};
	const size_t *const numbers[] = {v->members, v->targets};
	for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
		for (size_t i = 0; i < lists[k]->count; i++) {
			const struct plan_part *part = &lists[k]->at[i];
			if (numbers[k][i] == PART_MISSING && !is_listed(s, part->address))
				return ring_missing_tell(s, part, e);
		}
	}
	return 0;
}

static int home_check(const struct store_ring *s, struct err *e)
{
	const struct plan_parts *members = &s->view->plan.members;
	const struct plan_part *home = &members->at[plan_parts_find(members, s->view->plan.home)];
	if (s->home != PART_MISSING && s->parts[s->home].answers)
		return 0;
	return err_set(
	    e, ERR_UNAVAILABLE, "%.*s %s; it is the ring's home, where accounts are", STR_ARG(home->address),
	    s->home == PART_MISSING ? "is not the database that was in the ring, which must be put "
	                              "back, from a backup if need be"
	                            : "does not answer");
}

/* --- ids --- */

struct last_ids {
	uint64_t of[PART_SLOTS];
};

static int last_id_call(void *ctx, struct store *part, size_t number)
{
	struct last_ids *last = ctx;
	return part->ops->part->link_id_last(part, &last->of[number]);
}

/* A home that was restored from a backup would give out ids again. */
static int counter_raise(struct store_ring *s, struct err *e)
{
	struct store *home = ring_home(s);
	struct last_ids last = {{0}};
	int results[PART_SLOTS];
	uint64_t highest = 0, next, first;
	ring_each(s, view_olds(s->view) | view_news(s->view), last_id_call, &last, results);
	for (size_t i = 0; i < s->part_count; i++)
		highest = MAX(highest, last.of[i]);
	int r = home->ops->part->counter(home, STORE_LINK_COUNTER, &next);
	if (r == 0 && next <= highest)
		r = store_lease(home, STORE_LINK_COUNTER, highest - next + 1, &first);
	return r ? err_set(e, r, "%.*s does not answer (%s)", STR_ARG(s->parts[s->home].address), err_name(r))
	         : 0;
}

int ring_learn_first(struct store_ring *s, bool make, struct err *e)
{
	int r = find_or_make(s, make, e);
	if (r != 0)
		return r;
	s->home = s->view->members[plan_parts_find(&s->view->plan.members, s->view->plan.home)];
	if (!make)
		return 0; /* whoever only looks is to see what is wrong */
	r = members_check(s, e);
	if (r == 0)
		r = home_check(s, e);
	return r == 0 ? counter_raise(s, e) : r;
}
