/*
 * The role `store` over several stores, its parts. A key lies in the part that consistent hashing of its text
 * chooses (base/ring.h); what belongs to no key lies in one of them, the home. part.h says what parts offer.
 *
 * While nothing moves it is simple: a key has one part, that part's own transactions and its one unique name
 * decide, and calls that are about several keys go to their parts side by side, each for itself.
 *
 * Moving. When members are to become others, the ring is declared anew under the next epoch, with both. Keys
 * whose part stays are none the wiser. For the others, old and new part differ, and these hold:
 *
 *  1. Nobody writes by an earlier epoch any more once all parts know this one: they refuse it, and before
 * they said so they let those end that they had admitted. The move begins after that.
 *  2. Nothing is ever put into an old part: creates go to the new one. (A row that is reaped by its number
 *     alone may leave a resting name in its place.)
 *  3. Whoever changes a key first moves it himself (ring_move_keys), and then asks the new part only. To move
 *     is to lock all that lies under the key in the old part, to write it to the new one durably, and to
 *     remove it from the old. If somebody else is moving it, the lock waits for him and then finds nothing.
 * So when the change begins, the old part has nothing under the key, and by 2 never will again: the new part
 *     alone decides, and no change is lost or made twice. A move that died half way has left the key in both,
 *     alike, since nobody can have changed either: the old one was not free of it. It is moved again.
 *  4. A lookup asks the old part, and if that has nothing, the new one, in this order. Found in the old one
 * it is right: by 3 no change has ended that is not in it. Not found there, it was never made, or is removed,
 *     or is in the new part: since it gets there before it leaves, and never goes back, asking there next
 *     cannot miss it.
 *  5. When a walk over all old parts has found nothing that must move, by 2 nothing will come. The ring is
 *     declared once more, with the new members only. Who still asks by the epoch before is refused at once.
 *
 * Reads that ask all parts (lists, rows by number) ask all old ones, then all new ones, for the reason in 4,
 * and take what comes twice for one. They carry no epoch, so they ask afterwards whether it is still the
 * same.
 *
 * A part that is away fails what is about its keys, and nothing else.
 *
 * A part that was restored from a backup may have keys that are another part's by now: strays. Lookups do not
 * ask for them there, lists leave them out, what moves to where one lies takes its place, and before a move
 * begins they are removed (ring_walk.c), so that none is ever taken for a link of its part.
 */
#include "store/backends.h"
#include "store/ring_core.h"
#include "store/rules.h"

#include <stdlib.h>

enum { THREADS_PER_PART = 4, THREADS_MAX = 32 };

/* --- parts --- */

struct part_task {
	struct fan_task task;
	ring_call_fn *call;
	void *ctx;
	struct store *part;
	size_t number;
	int *result;
};

static void part_task_run(struct fan_task *task)
{
	const struct part_task *t = container_of(task, struct part_task, task);
	*t->result = t->call(t->ctx, t->part, t->number);
}

void ring_each(struct store_ring *s, uint64_t parts, ring_call_fn *call, void *ctx, int results[PART_SLOTS])
{
	struct part_task tasks[RING_PARTS_MAX];
	struct fan_task *list[RING_PARTS_MAX];
	size_t count = 0;
	results[PART_MISSING] = parts >> PART_MISSING & 1 ? ERR_UNAVAILABLE : 0;
	for (size_t i = 0; i < s->part_count; i++) {
		struct store *part = ring_store(s, i);
		bool asked = parts >> i & 1;
		results[i] = asked && !part ? ERR_UNAVAILABLE : 0;
		if (!asked || !part)
			continue;
		tasks[count] = (struct part_task){{.run = part_task_run}, call, ctx,
		                                  s->parts[i].store,      i,    &results[i]};
		list[count] = &tasks[count].task;
		count++;
	}
	fan_run(s->fan, list, count);
}

int ring_worst(uint64_t parts, const int results[PART_SLOTS])
{
	int worst = 0;
	for (size_t i = 0; i < PART_SLOTS; i++) {
		if (parts >> i & 1 && results[i] != 0)
			worst = results[i];
	}
	return worst;
}

/* --- what lies at the home --- */

static int ring_users(struct store *base, struct store_users *page)
{
	return store_users(ring_home(ring_self(base)), page);
}

static int ring_keys(struct store *base, struct store_keys *page)
{
	return store_keys(ring_home(ring_self(base)), page);
}

static int ring_accounts(struct store *base, struct store_account *reads, size_t n, struct arena *arena)
{
	return store_accounts(ring_home(ring_self(base)), reads, n, arena);
}

static int ring_lease(struct store *base, struct str counter, uint64_t count, uint64_t *ret_first)
{
	return store_lease(ring_home(ring_self(base)), counter, count, ret_first);
}

static int ring_constant(struct store *base, struct str name, void *value, size_t len)
{
	return store_constant(ring_home(ring_self(base)), name, value, len);
}

static int ring_version(struct store *base, uint64_t *ret)
{
	struct store *home = ring_home(ring_self(base));
	return home->ops->version(home, ret);
}

static int ring_forget(struct store *base, struct str from, struct str before)
{
	struct store *home = ring_home(ring_self(base));
	return home->ops->forget(home, from, before);
}

/* --- totals --- */

struct totals {
	uint64_t node;
	const struct store_count *counts;
	size_t n;
};

static int clicks_call(void *ctx, struct store *part, size_t number)
{
	(void)number;
	const struct totals *t = ctx;
	return store_set_clicks(part, t->node, t->counts, t->n);
}

static int clicks_once(struct store_ring *s, const struct ring_view *v, void *ctx)
{
	int results[PART_SLOTS], r = 0;
	for (int phase = 0; phase < view_phases(v); phase++) {
		ring_each(s, view_phase(v, phase), clicks_call, ctx, results);
		int worst = ring_worst(view_phase(v, phase), results);
		r = worst ? worst : r;
	}
	return r == 0 ? ring_view_confirm(s, v) : r;
}

static int ring_set_clicks(struct store *base, uint64_t node, const struct store_count *counts, size_t n)
{
	struct totals t = {node, counts, n};
	return ring_try(ring_self(base), clicks_once, &t);
}

/* --- keys that come back --- */

/* Each time another part is asked first. None come back while keys move: a move that died has left some in
 * two parts. */
static int ring_claim(struct store *base, int64_t now_ms, uint64_t rest_ms, size_t max, uint64_t *ret_ids,
                      size_t *ret_count)
{
	struct store_ring *s = ring_self(base);
	calls_enter(&s->calls);
	struct ring_view *v = ring_view_get(s);
	size_t members = v->plan.members.count, count = 0;
	unsigned turn = atomic_fetch_add(&s->turn, 1);
	int r = 0;
	for (size_t i = 0; i < members && count < max && !view_moves(v); i++) {
		size_t number = v->members[(turn + i) % members], more = 0;
		struct store *part = number == PART_MISSING ? NULL : ring_store(s, number);
		int failed = part ? part->ops->claim(part, now_ms, rest_ms, max - count, ret_ids + count,
		                                     &more)
		                  : ERR_UNAVAILABLE;
		r = failed ? failed : r;
		count += failed ? 0 : more;
	}
	ring_view_unref(v);
	calls_leave(&s->calls);
	*ret_count = count;
	return count > 0 ? 0 : r;
}

/* --- health and life --- */

struct pings {
	struct err sentences[PART_SLOTS];
	uint64_t epochs[PART_SLOTS];
};

static int ping_call(void *ctx, struct store *part, size_t number)
{
	CLEANUP(arena_release) struct arena arena = {0};
	struct pings *p = ctx;
	struct str text;
	int r = store_ping(part, &p->sentences[number]);
	return r == 0 ? part->ops->part->ring_get(part, &arena, &p->epochs[number], &text) : r;
}

/* 0 also while it has not been behind for long. */
static int behind_check(struct store_ring *s, const struct ring_view *v, size_t number, uint64_t epoch,
                        struct err *e)
{
	int r = ring_part_verdict(s, v, number, epoch < v->plan.epoch ? ERR_CONFLICT : 0);
	if (r != ERR_UNAVAILABLE)
		return 0;
	return err_set(e, r, "part %.*s does not take the ring's description: a transaction stays open there",
	               STR_ARG(s->parts[number].address));
}

static int ping_all(struct store_ring *s, const struct ring_view *v, struct pings *p, struct err *e)
{
	int results[PART_SLOTS];
	uint64_t parts = view_olds(v) | view_news(v);
	ring_each(s, parts, ping_call, p, results);
	for (size_t i = 0; i < s->part_count; i++) {
		if (results[i] != 0)
			return err_set(e, results[i], "part %.*s: %s", STR_ARG(s->parts[i].address),
			               p->sentences[i].text[0] ? p->sentences[i].text : err_name(results[i]));
	}
	int r = ring_missing_check(s, v, e);
	for (size_t i = 0; r == 0 && i < s->part_count; i++) {
		if (parts >> i & 1)
			r = behind_check(s, v, i, p->epochs[i], e);
	}
	return r < 0 ? ERR_UNAVAILABLE : 0;
}

static int ring_ping(struct store *base, struct err *e)
{
	struct store_ring *s = ring_self(base);
	struct pings *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	calls_enter(&s->calls);
	struct ring_view *v = ring_view_get(s);
	int r = ping_all(s, v, p, e);
	ring_view_unref(v);
	calls_leave(&s->calls);
	free(p);
	return r;
}

static void release(struct store_ring *s)
{
	fan_free(s->fan);
	ring_view_unref(s->view);
	pthread_mutex_destroy(&s->learning);
	pthread_mutex_destroy(&s->view_lock);
	arena_release(&s->arena);
	free(s);
}

static void workers_end(struct store_ring *s)
{
	ring_worker_free(s->late);
	ring_worker_free(s->helper);
}

static void ring_close(struct store *base)
{
	struct store_ring *s = ring_self(base);
	calls_wait(&s->calls);
	workers_end(s);
	for (size_t i = 0; i < s->part_count; i++) {
		store_free(ring_store(s, i));
		free(s->parts[i].config.ctx);
	}
	release(s);
}

static const struct store_ops ring_ops = {
    .free = ring_close,
    .lookup = ring_lookup,
    .apply = ring_apply,
    .list = ring_list,
    .tagged = ring_tagged,
    .set_clicks = ring_set_clicks,
    .permitted = ring_permitted,
    .over = ring_over,
    .users = ring_users,
    .keys = ring_keys,
    .accounts = ring_accounts,
    .lease = ring_lease,
    .constant = ring_constant,
    .ping = ring_ping,
    .version = ring_version,
    .forget = ring_forget,
    .claim = ring_claim,
};

static int workers_begin(struct store_ring *s, struct err *e)
{
	bool all = true;
	for (size_t i = 0; i < s->part_count; i++)
		all &= ring_store(s, i) != NULL;
	int r = all ? 0 : ring_worker_new(s, "curt-ring-late", ring_late_open, &s->late, e);
	if (r == 0)
		r = ring_worker_new(s, "curt-ring-help", ring_catch_up, &s->helper, e);
	return r;
}

static int init(struct store_ring *s, const struct store_ring_part *parts, size_t n, bool make, struct err *e)
{
	const struct store_ops *kind = NULL;
	for (size_t i = 0; i < n; i++) {
		struct ring_part *part = &s->parts[i];
		*part = (struct ring_part){.config = parts[i],
		                           .address = arena_str(&s->arena, parts[i].address)};
		atomic_init(&part->store, parts[i].store);
		if (!part->address.ptr)
			return err_set(e, ERR_NOMEM, "out of memory");
		if (parts[i].store)
			kind = parts[i].store->ops;
	}
	if (!kind)
		return err_set(e, ERR_UNAVAILABLE, "no part of the ring answers");
	ASSERT(kind->part);
	s->part_count = n;
	s->ops = ring_ops;
	s->ops.claim = kind->claim ? ring_claim : NULL;
	s->ops.version = kind->version ? ring_version : NULL;
	s->ops.forget = kind->forget ? ring_forget : NULL;
	s->base.ops = &s->ops;
	int r = fan_new(n > 1 ? (unsigned)MIN(n * THREADS_PER_PART, THREADS_MAX) : 0, &s->fan, e);
	if (r == 0)
		r = ring_learn_first(s, make, e);
	return r == 0 ? workers_begin(s, e) : r;
}

int store_ring_open(const struct store_ring_part *parts, size_t n, bool make, struct store **ret,
                    struct err *e)
{
	if (n == 0 || n > RING_PARTS_MAX)
		return err_set(e, ERR_INVALID, "a ring has 1 to %d parts, not %zu", RING_PARTS_MAX, n);
	struct store_ring *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	pthread_mutex_init(&s->learning, NULL);
	pthread_mutex_init(&s->view_lock, NULL);
	int r = init(s, parts, n, make, e);
	if (r != 0) {
		workers_end(s);
		release(s);
		return r;
	}
	*ret = &s->base;
	return 0;
}
