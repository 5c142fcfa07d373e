/*
 * Who is in the ring. Every part keeps the ring's description under an epoch, and the highest one holds. A
 * new one is written to the home first: of two that try at once one is refused there, so an epoch never means
 * two things. Whoever finds a part behind brings it up to date, so it does not matter if the one who declared
 * a new ring died on the way. (Nobody relies on a part being up to date before he has seen it so himself.)
 *
 * A part is known by its name, which stays with its data. By its address it is known only as long as it has
 * not answered since the start: if another one turns up there, it has another epoch and refuses all calls.
 */
#include "os/clock.h"
#include "store/ring_core.h"
#include "store/rules.h"

#include <sodium.h>
#include <stdlib.h>

enum { LEARN_MS = 5000, LEARN_PAUSE_MAX_MS = 10 };

/* What the parts say. */
struct learned {
	struct arena arenas[RING_PARTS_MAX];
	char names[RING_PARTS_MAX][PART_NAME_TEXT + 1];
	uint64_t epochs[RING_PARTS_MAX];
	struct str texts[RING_PARTS_MAX];
	int results[PART_SLOTS];
};

static void learned_freep(struct learned **l)
{
	for (size_t i = 0; *l && i < RING_PARTS_MAX; i++)
		arena_release(&(*l)->arenas[i]);
	free(*l);
}

static uint64_t configured(const struct store_ring *s)
{
	return ((uint64_t)1 << s->part_count) - 1;
}

static int learn_part(void *ctx, struct store *part, size_t number)
{
	struct learned *l = ctx;
	uint8_t name[PART_NAME_BYTES];
	randombytes_buf(name, sizeof(name));
	int r = store_constant(part, STR("part-name"), name, sizeof(name));
	if (r == 0)
		r = part->ops->part->ring_get(part, &l->arenas[number], &l->epochs[number],
		                              &l->texts[number]);
	sodium_bin2hex(l->names[number], sizeof(l->names[number]), name, sizeof(name));
	return r;
}

static int ask_all_locked(struct store_ring *s, struct learned *l, struct err *e)
{
	ring_each(s, configured(s), learn_part, l, l->results);
	for (size_t i = 0; i < s->part_count; i++) {
		atomic_store(&s->parts[i].answers, l->results[i] == 0);
		if (l->results[i] == 0 && strcmp(s->parts[i].name, l->names[i]) != 0)
			memcpy(s->parts[i].name, l->names[i], sizeof(l->names[i]));
		if (l->results[i] == ERR_CORRUPT || l->results[i] == ERR_INVALID)
			return err_set(
			    e, l->results[i],
			    "the part at %.*s is not one of curt's (%s); look at it before anything "
			    "is written there",
			    STR_ARG(s->parts[i].address), err_name(l->results[i]));
	}
	for (size_t i = 0; i < s->part_count; i++) {
		for (size_t k = 0; k < i; k++) {
			if (s->parts[i].name[0] && strcmp(s->parts[i].name, s->parts[k].name) == 0)
				return err_set(e, ERR_INVALID,
				               "store.url names one database twice: %.*s and %.*s",
				               STR_ARG(s->parts[k].address), STR_ARG(s->parts[i].address));
		}
	}
	return 0;
}

/* Who knows the highest epoch; part_count when none knows any. */
static int best_find(const struct store_ring *s, const struct learned *l, size_t *ret, struct err *e)
{
	size_t best = s->part_count;
	for (size_t i = 0; i < s->part_count; i++) {
		if (l->results[i] != 0 || l->epochs[i] == 0)
			continue;
		if (best == s->part_count || l->epochs[i] > l->epochs[best])
			best = i;
		else if (l->epochs[i] == l->epochs[best] && !str_eq(l->texts[i], l->texts[best]))
			return err_set(e, ERR_CORRUPT,
			               "%.*s and %.*s belong to two different rings; store.url must list the "
			               "parts of one",
			               STR_ARG(s->parts[best].address), STR_ARG(s->parts[i].address));
	}
	*ret = best;
	return 0;
}

/* --- making a view --- */

static size_t part_find_locked(const struct store_ring *s, const struct plan_part *wanted)
{
	for (size_t i = 0; i < s->part_count; i++) {
		if (str_eq(str_of(s->parts[i].name), wanted->name))
			return i;
	}
	for (size_t i = 0; i < s->part_count; i++) {
		if (!s->parts[i].name[0] && str_eq(s->parts[i].address, wanted->address))
			return i;
	}
	return PART_MISSING;
}

static struct ring *circle_new_locked(const struct store_ring *s, const struct plan_parts *parts,
                                      size_t *numbers)
{
	struct str names[RING_PARTS_MAX];
	for (size_t i = 0; i < parts->count; i++) {
		names[i] = parts->at[i].name;
		numbers[i] = part_find_locked(s, &parts->at[i]);
	}
	return ring_new(names, parts->count);
}

static int view_new_locked(const struct store_ring *s, uint64_t epoch, struct str text,
                           struct ring_view **ret, struct err *e)
{
	struct ring_view *v = calloc(1, sizeof(*v));
	if (!v)
		return err_set(e, ERR_NOMEM, "out of memory");
	atomic_init(&v->refs, 1);
	int r = ring_plan_read(text, epoch, &v->arena, &v->plan);
	if (r == 0) {
		v->old = circle_new_locked(s, &v->plan.members, v->members);
		if (v->plan.target.count > 0)
			v->new = circle_new_locked(s, &v->plan.target, v->targets);
		if (!v->old || (v->plan.target.count > 0 && !v->new))
			r = ERR_NOMEM;
	}
	if (r != 0) {
		ring_view_unref(v);
		return err_set(e, r, "the ring's description cannot be read (%s)", err_name(r));
	}
	*ret = v;
	return 0;
}

/* --- bringing parts up to date --- */

struct declaration {
	uint64_t epoch;
	struct str text;
};

static int declare_part(void *ctx, struct store *part, size_t number)
{
	(void)number;
	const struct declaration *d = ctx;
	int r = part->ops->part->ring_set(part, d->epoch, d->text);
	return r == ERR_CONFLICT ? 0 : r; /* somebody was faster */
}

/* Without the lock: a part lets those end that it has admitted, and that may take long. False when one of
 * them is still behind. */
static bool help(struct store_ring *s, const struct learned *l, size_t best)
{
	struct declaration d = {l->epochs[best], l->texts[best]};
	uint64_t behind = 0;
	for (size_t i = 0; i < s->part_count; i++) {
		if (l->results[i] == 0 && l->epochs[i] < d.epoch)
			behind |= (uint64_t)1 << i;
	}
	int results[PART_SLOTS];
	struct ring_view *v = ring_view_get(s);
	behind &= v->plan.epoch == d.epoch ? view_olds(v) | view_news(v) : 0;
	ring_view_unref(v);
	ring_each(s, behind, declare_part, &d, results);
	return ring_worst(behind, results) == 0;
}

/* What nobody could read again would be the end of the ring. */
static int declaration_make(const struct ring_plan *plan, struct arena *arena, struct declaration *ret,
                            struct err *e)
{
	struct ring_plan same;
	struct str text = ring_plan_write(plan, arena);
	if (!text.ptr)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = ring_plan_read(text, plan->epoch, arena, &same);
	if (r != 0)
		return err_set(e, r, "the new ring makes no sense (%s); it is not written", err_name(r));
	*ret = (struct declaration){plan->epoch, text};
	return 0;
}

int ring_declare_home(struct store_ring *s, const struct ring_plan *plan, struct err *e)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct declaration d = {0};
	struct store *home = ring_home(s);
	int r = declaration_make(plan, &arena, &d, e);
	if (r != 0)
		return r;
	bool was_whole = plan->members.count == 1 && plan->target.count > 0;
	r = was_whole ? home->ops->part->ring_set_whole(home, d.epoch, d.text)
	              : home->ops->part->ring_set(home, d.epoch, d.text);
	if (r == ERR_CONFLICT)
		return err_set(e, r, "somebody else has changed the ring at this moment; look at --status");
	if (r != 0)
		return err_set(e, r, "%.*s does not take the new ring (%s)",
		               STR_ARG(s->parts[s->home].address), err_name(r));
	return 0;
}

int ring_declare_all(struct store_ring *s, const struct ring_plan *plan, uint64_t parts, struct err *e)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct declaration d = {0};
	int results[PART_SLOTS];
	int r = declaration_make(plan, &arena, &d, e);
	if (r != 0)
		return r;
	ring_each(s, parts, declare_part, &d, results);
	for (size_t i = 0; i < s->part_count; i++) {
		if (results[i] != 0)
			return err_set(e, results[i],
			               "%.*s does not take the ring's description (%s): it is away, or a "
			               "transaction stays open there",
			               STR_ARG(s->parts[i].address), err_name(results[i]));
	}
	return 0;
}

/* --- learning --- */

static int take_locked(struct store_ring *s, uint64_t epoch, struct str text, struct err *e)
{
	struct ring_view *v = NULL;
	if (s->view && epoch < s->view->plan.epoch)
		return 0; /* who knows better is away */
	int r = view_new_locked(s, epoch, text, &v, e);
	if (v)
		ring_view_put(s, v);
	return r;
}

/* *ret_best: who knew it; part_count when nobody knows of a ring. */
static int learn_locked(struct store_ring *s, struct learned *l, size_t *ret_best, struct err *e)
{
	*ret_best = s->part_count;
	if (!l)
		return err_set(e, ERR_NOMEM, "out of memory");
	int r = ask_all_locked(s, l, e);
	if (r == 0)
		r = best_find(s, l, ret_best, e);
	if (r == 0 && *ret_best < s->part_count)
		r = take_locked(s, l->epochs[*ret_best], l->texts[*ret_best], e);
	return r;
}

static struct learned *learned_new(void)
{
	return calloc(1, sizeof(struct learned));
}

int ring_learn_known(struct store_ring *s, bool *ret_known, struct err *e)
{
	CLEANUP(learned_freep) struct learned *l = learned_new();
	size_t best;
	pthread_mutex_lock(&s->learning);
	int r = learn_locked(s, l, &best, e);
	pthread_mutex_unlock(&s->learning);
	*ret_known = best < s->part_count;
	ring_worker_poke(s->helper);
	return r;
}

int ring_learn(struct store_ring *s, struct err *e)
{
	bool known;
	int r = ring_learn_known(s, &known, e);
	return r == 0 && !known ? err_set(e, ERR_UNAVAILABLE, "no part of the ring answers") : r;
}

/* Until it is back, or given up; it tells nobody of the ring, nor does it refuse an old one. */
static bool lacks_one(struct store_ring *s)
{
	struct ring_view *v = ring_view_get(s);
	bool lacks = (view_olds(v) | view_news(v)) >> PART_MISSING & 1;
	ring_view_unref(v);
	return lacks;
}

bool ring_catch_up(struct store_ring *s)
{
	CLEANUP(learned_freep) struct learned *l = learned_new();
	size_t best;
	pthread_mutex_lock(&s->learning);
	int r = learn_locked(s, l, &best, NULL);
	pthread_mutex_unlock(&s->learning);
	return r != 0 || best == s->part_count || (help(s, l, best) && !lacks_one(s));
}

/* A new ring is written there first, so nobody else needs to be asked, who might not answer. */
static int home_ask_locked(struct store_ring *s)
{
	CLEANUP(arena_release) struct arena arena = {0};
	uint64_t epoch = 0;
	struct str text = STR_NULL;
	struct store *home = ring_home(s);
	int r = home->ops->part->ring_get(home, &arena, &epoch, &text);
	return r == 0 && epoch > s->view->plan.epoch ? take_locked(s, epoch, text, NULL) : r;
}

/* If it fails, so will the calls, and say why. */
static void learn_again_locked(struct store_ring *s)
{
	CLEANUP(learned_freep) struct learned *l = NULL;
	size_t best;
	if (home_ask_locked(s) == 0)
		return;
	l = learned_new();
	(void)learn_locked(s, l, &best, NULL);
}

static void learn_again(struct store_ring *s, const struct ring_view *v, unsigned tries)
{
	pthread_mutex_lock(&s->learning);
	if (ring_view_is_current(s, v))
		learn_again_locked(s);
	bool same = ring_view_is_current(s, v);
	pthread_mutex_unlock(&s->learning);
	if (same)
		ring_worker_poke(s->helper); /* it is the part that is behind */
	if (tries > 1) {
		long pause_ms = MIN(tries, LEARN_PAUSE_MAX_MS);
		nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
	}
}

int ring_try(struct store_ring *s, int (*once)(struct store_ring *s, const struct ring_view *v, void *ctx),
             void *ctx)
{
	int r;
	bool again;
	unsigned tries = 0;
	int64_t end_ms = 0;
	calls_enter(&s->calls);
	do {
		struct ring_view *v = ring_view_get(s);
		r = once(s, v, ctx);
		if (r == ERR_CONFLICT && end_ms == 0)
			end_ms = clock_mono_ms() + LEARN_MS;
		again = r == ERR_CONFLICT && clock_mono_ms() < end_ms;
		if (again)
			learn_again(s, v, ++tries);
		ring_view_unref(v);
	} while (again);
	calls_leave(&s->calls);
	return r == ERR_CONFLICT ? ERR_UNAVAILABLE : r;
}

int ring_view_confirm(struct store_ring *s, const struct ring_view *v)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct store_lookup nothing = {.arena = &arena};
	struct store *home = ring_home(s);
	return home->ops->part->lookup(home, v->plan.epoch, &nothing, 1);
}
