/*
 * What the store of several parts is made of. For its own files only: store_ring.c has the role's operations
 * and says why they are right, ring_lookup.c, ring_read.c and ring_change.c the reads and changes of links,
 * ring_learn.c finds out who is in the ring, ring_first.c how it begins, ring_view.c keeps what was found,
 * ring_late.c opens parts that were away, ring_move.c moves keys.
 */
#pragma once

#include "base/ring.h"
#include "store/backends.h"
#include "store/part.h"
#include "store/ring_fan.h"
#include "store/ring_plan.h"
#include "store/ring_worker.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
	PART_NAME_BYTES = 16,
	PART_NAME_TEXT = 2 * PART_NAME_BYTES,
	PART_MISSING = RING_PARTS_MAX, /* the number of a part for which no URL is configured */
	PART_SLOTS,
};

/* One that was configured. */
struct ring_part {
	_Atomic(struct store *) store; /* NULL: it was away, and is opened later */
	struct store_ring_part config;
	struct str address;
	char name[PART_NAME_TEXT + 1];  /* under `learning`; empty: nobody has asked it yet */
	atomic_bool answers;            /* it did the last time */
	_Atomic uint64_t refused_epoch; /* that it does not know yet; 0: it has answered since */
	int64_t refused_ms;             /* under `view_lock`: since when */
};

/* The ring as it was learned once; never changes. */
struct ring_view {
	atomic_uint refs;
	struct arena arena;
	struct ring_plan plan;
	size_t members[RING_PARTS_MAX]; /* of plan.members: parts' numbers */
	size_t targets[RING_PARTS_MAX]; /* of plan.target */
	struct ring *old, *new;         /* over these; `new` is NULL while nothing moves */
};

struct store_ring {
	struct store base;
	struct store_ops ops; /* without what its parts cannot do */
	atomic_uint calls;    /* under way */
	struct arena arena;
	size_t part_count;
	struct ring_part parts[RING_PARTS_MAX];
	size_t home; /* for as long as the ring lives; PART_MISSING only for who looks at it (ring_first.c) */
	struct fan *fan;
	pthread_mutex_t learning;  /* one at a time asks who is in the ring */
	pthread_mutex_t view_lock; /* guards the pointer; taken last */
	struct ring_view *view;
	_Atomic uint64_t counter_seen; /* STORE_LINK_COUNTER is at least this */
	atomic_uint turn;              /* whose turn it is to give keys back */
	struct ring_worker *late;      /* opens what was away; NULL: nothing was */
	struct ring_worker *helper;    /* learns, and tells parts that are behind */
};

/* --- parts; sets of them are bits by number --- */

typedef int ring_call_fn(void *ctx, struct store *part, size_t number);

/* Calls it for each part of the set, side by side. results[number] is what it returned; ERR_UNAVAILABLE for
 * the missing one. */
void ring_each(struct store_ring *s, uint64_t parts, ring_call_fn *call, void *ctx, int results[PART_SLOTS]);

/* The worst of the results: 0 when all are. */
int ring_worst(uint64_t parts, const int results[PART_SLOTS]);

/* The parts that have something to do, when `begin` says where each one's share begins. */
static inline uint64_t parts_with_work(const size_t begin[PART_SLOTS + 1])
{
	uint64_t set = 0;
	for (size_t part = 0; part < PART_SLOTS; part++) {
		if (begin[part] < begin[part + 1])
			set |= (uint64_t)1 << part;
	}
	return set;
}

/* NULL while it has not been there since the start. */
static inline struct store *ring_store(struct store_ring *s, size_t number)
{
	return atomic_load_explicit(&s->parts[number].store,
	                            memory_order_acquire); /* pairs with ring_late.c */
}

/* Opens what was away at the start; true when all are there. */
bool ring_late_open(struct store_ring *s);

/* --- views --- */

struct ring_view *ring_view_get(struct store_ring *s);
void ring_view_unref(struct ring_view *v);
void ring_view_put(struct store_ring *s, struct ring_view *v); /* takes the reference */
bool ring_view_is_current(struct store_ring *s, const struct ring_view *v);

static inline bool view_moves(const struct ring_view *v)
{
	return v->new != NULL;
}

static inline size_t view_old(const struct ring_view *v, struct str key)
{
	return v->members[ring_find(v->old, key)];
}

/* Where the key shall be: for ever, or when it has moved. */
static inline size_t view_new(const struct ring_view *v, struct str key)
{
	return v->new ? v->targets[ring_find(v->new, key)] : view_old(v, key);
}

uint64_t view_olds(const struct ring_view *v);
uint64_t view_news(const struct ring_view *v);

/* What asks all parts asks the old ones before the new ones: what is under way is seen in one of them. */
enum { PHASES_MAX = 2 };

static inline int view_phases(const struct ring_view *v)
{
	return view_moves(v) ? PHASES_MAX : 1;
}

static inline uint64_t view_phase(const struct ring_view *v, int phase)
{
	return phase == 0 ? view_olds(v) : view_news(v);
}

/* What a part's answer to a call under the view's epoch comes to: ERR_CONFLICT is ERR_UNAVAILABLE when the
 * part has refused that epoch for so long that waiting for it would only hold others up. */
int ring_part_verdict(struct store_ring *s, const struct ring_view *v, size_t number, int result);

/* Does it under the ring as it is known, and again under the new one whenever it returns ERR_CONFLICT;
 * ERR_UNAVAILABLE when that does not end within seconds. */
int ring_try(struct store_ring *s, int (*once)(struct store_ring *s, const struct ring_view *v, void *ctx),
             void *ctx);

/* For reads that carry no epoch, after them: ERR_CONFLICT when the view had ended, or why nobody knows. */
int ring_view_confirm(struct store_ring *s, const struct ring_view *v);

/* --- learning --- */

/* At the start: finds the ring, or makes it if that is wanted; then it must be fit to serve from. */
int ring_learn_first(struct store_ring *s, bool make, struct err *e);

/* Asks all parts, and tells those that are behind. False when one of them could not be told, or is not there.
 */
bool ring_catch_up(struct store_ring *s);

/* Asks all parts now. `e` says what is wrong with the ring, if anything is. */
int ring_learn(struct store_ring *s, struct err *e);

/* The same; *ret_known: one of them knows of a ring. */
int ring_learn_known(struct store_ring *s, bool *ret_known, struct err *e);

/* Says why a part of the plan is PART_MISSING. */
int ring_missing_tell(const struct store_ring *s, const struct plan_part *part, struct err *e);
/* 0, or that of the first that is missing, of those who are in the ring and those who shall be. */
int ring_missing_check(const struct store_ring *s, const struct ring_view *v, struct err *e);

/* Does it hold links or accounts? */
int ring_part_is_used(struct store *part, bool *ret);

/* Makes it the ring: at the home first, which decides when two try at once (ERR_CONFLICT). */
int ring_declare_home(struct store_ring *s, const struct ring_plan *plan, struct err *e);

/* Makes sure that all these parts know it. What fails is left to whoever learns the new ring. */
int ring_declare_all(struct store_ring *s, const struct ring_plan *plan, uint64_t parts, struct err *e);

/* --- moving --- */

/* Moves all that lies under the keys; they differ from each other. ERR_CONFLICT: there is another ring by
 * now. ERR_CORRUPT: an id would be there twice. ERR_UNAVAILABLE: it is in `from` still, or in both, or in
 * `to`; it may be tried again. */
int ring_move_keys(struct store_ring *s, uint64_t epoch, size_t from, size_t to, const struct str *keys,
                   size_t n);

/* --- the role's operations on links --- */

int ring_lookup(struct store *base, struct store_lookup *reads, size_t n);
int ring_apply(struct store *base, struct store_write *writes, size_t n);
int ring_list(struct store *base, struct store_list *page);
int ring_tagged(struct store *base, struct str tag, size_t max, uint64_t *ret_ids, size_t *ret_count);
int ring_over(struct store *base, struct store_over *over);
int ring_permitted(struct store *base, uint64_t link, struct arena *arena, uint64_t **ret, size_t *ret_count);

static inline struct store *ring_home(struct store_ring *s)
{
	return ring_store(s, s->home);
}

static inline struct store_ring *ring_self(struct store *base)
{
	return container_of(base, struct store_ring, base);
}
