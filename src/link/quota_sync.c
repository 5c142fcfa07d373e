#include "link/quota_sync.h"

#include "base/list.h"
#include "obs/log.h"
#include "os/clock.h"

#include <stdlib.h>

enum {
	BATCH_MAX = 1024,
	WAIT_MAX_MS = 1000,    /* between two looks at a meter that nobody uses */
	SMALL_SHARE = 16,      /* of its part, what a server holds while hardly anybody uses it; */
	SMALL_MIN = 8,         /* and at least so many, if they are there */
	AHEAD = 4,             /* times what was used since the last look, a server likes to hold */
	UNREPORTED_SHARE = 40, /* of the limit, what is used before that is told at once */
	AWAY_MS = 200,         /* until a limiter that failed is asked again */
	PATIENCE_MS = 1000,    /* how long a server keeps to its grant while nobody answers */
	SERVERS_MS = 500,      /* how often to ask at least, to be counted and to count */
	/* How long grants hold when this process stands still: others have them after LIMITER_SERVER_MS. */
	HOLD_MS = LIMITER_SERVER_MS - SERVERS_MS,
};

/* A meter with a period under way, as the limiter knows it. */
struct settled {
	struct list link;
	struct meter_share *share;
	uint32_t start;      /* of the meter's period; what follows is about it */
	bool is_idle;        /* nobody has wanted any since it was last settled */
	bool is_missed;      /* nobody answered the last time */
	bool is_only_server; /* nobody has answered for so long that it has taken its part of what was free */
	uint32_t count;      /* used here, when it was last settled */
	uint64_t grant;      /* the count that this server may reach: as published */
	uint64_t period;     /* its name there; 0: it has not been heard of */
	uint64_t others;     /* what the others had used or held, when it was last heard */
	int64_t end_ms;      /* of the period, there; monotonic */
	int64_t answered_ms;
	int64_t calm_until_ms; /* others may not have said yet what they used while nobody answered */
	int64_t next_ms;
	int64_t wait_ms; /* 0: it is new */
};

/* What is told of a meter in a round. */
struct round_use {
	struct settled *settled;
	uint32_t max;
	uint32_t count;
	bool gives; /* its grant was lowered */
};

struct quota_sync {
	struct limiter *limiter;
	struct quota quota;
	struct list active;
	int64_t asked_ms;
	int64_t answer_ms;   /* how long the last answer took */
	int64_t answered_ms; /* the last time the servers were counted */
	int64_t failing_ms;  /* since when the limiter does not answer for all; INT64_MAX: it does */
	int64_t calm_until_ms;
	bool again; /* others wait their turn, or something is given back: make another round at once */
	struct round_use reported[BATCH_MAX];
	struct limiter_use uses[BATCH_MAX];
	size_t use_count;
	_Atomic uint64_t syncs, failures, meters;
	bool stopped;
};

int quota_sync_new(struct limiter *limiter, struct quota_sync **ret, struct err *e)
{
	struct quota_sync *s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, ERR_NOMEM, "out of memory");
	s->limiter = limiter;
	s->asked_ms = INT64_MIN;
	s->answered_ms = INT64_MIN / 2;
	s->failing_ms = INT64_MAX;
	list_init(&s->active);
	*ret = s;
	return 0;
}

struct quota *quota_sync_state(struct quota_sync *s)
{
	return &s->quota;
}

static void settled_drop(struct quota_sync *s, struct settled *t)
{
	t->share->settled = NULL;
	list_remove(&t->link);
	free(t);
	atomic_fetch_sub_explicit(&s->meters, 1, memory_order_relaxed);
}

void quota_sync_free(struct quota_sync *s)
{
	if (!s)
		return;
	struct list *node;
	while ((node = list_pop(&s->active))) /* the meters have gone */
		free(container_of(node, struct settled, link));
	free(s);
}

/* What workers have listed since the last round. */
static void take_listed(struct quota_sync *s)
{
	struct meter_share *share = atomic_exchange_explicit(&s->quota.listed, NULL, memory_order_acquire);
	while (share) {
		struct meter_share *next = share->next_listed;
		/* From here on it may be listed anew. */
		atomic_store_explicit(&share->is_listed, false, memory_order_release);
		if (!share->settled && (share->settled = calloc(1, sizeof(struct settled)))) {
			share->settled->share = share;
			list_push(&s->active, &share->settled->link);
			atomic_fetch_add_explicit(&s->meters, 1, memory_order_relaxed);
		}
		if (share->settled)
			share->settled->next_ms = INT64_MIN;
		share = next;
	}
}

static uint32_t servers_of(const struct quota_sync *s)
{
	return atomic_load_explicit(&s->quota.servers, memory_order_relaxed);
}

static void put(_Atomic uint64_t *word, uint32_t start, uint64_t number)
{
	atomic_store_explicit(word, meter_pack(start, (uint32_t)MIN(number, UINT32_MAX)),
	                      memory_order_relaxed);
}

static void grant_put(struct settled *t, uint64_t grant)
{
	t->grant = grant;
	put(&t->share->grant, t->start, grant);
}

static void period_begin(const struct quota_sync *s, struct settled *t, uint32_t start, uint32_t max,
                         int64_t mono_ms)
{
	*t = (struct settled){
	    .link = t->link,
	    .share = t->share,
	    .start = start,
	    .end_ms = INT64_MAX,
	    .answered_ms = mono_ms,
	    .wait_ms = SETTLE_MS,
	};
	grant_put(t, meter_opening(max, servers_of(s)));
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/*
 * How many this server would like to hold beyond those it has used: a few times what it needs between two
 * looks, and its whole part when somebody was refused. One that nobody uses lets go of most of what it holds,
 * down to a small part, so that the next visitor need not wait; and rounds down: the last one is for those
 * who need it.
 */
static uint64_t want_of(const struct quota_sync *s, const struct settled *t, uint32_t count, uint32_t max,
                        bool refused)
{
	uint32_t servers = servers_of(s);
	uint64_t whole = less(max, t->others + count);
	uint64_t part = meter_part(whole, servers);
	uint64_t small = MAX(part / SMALL_SHARE, SMALL_MIN);
	if (t->is_idle)
		return MIN(whole / MAX(servers, (uint32_t)SERVERS_MIN),
		           MAX(less(t->grant, count) / AHEAD, small));
	if (refused || servers < SERVERS_MIN)
		return part;
	return MIN(part, MAX(small, (uint64_t)AHEAD * less(count, t->count)));
}

static struct limiter_use use_of(const struct settled *t, uint32_t max, uint32_t count, uint64_t want,
                                 int64_t mono_ms)
{
	return (struct limiter_use){
	    .owner = t->share->owner,
	    .what = t->share->what,
	    .period_ms = atomic_load_explicit(&t->share->meter->period_ms, memory_order_relaxed),
	    .max = max,
	    .used = count,
	    .want = want,
	    .grant = t->grant,
	    .period = t->period,
	    .left_ms = t->period && t->end_ms > mono_ms ? (uint64_t)(t->end_ms - mono_ms) : 0,
	};
}

/* Is it too early to take what others do not seem to need? They may have had no answer either. */
static bool is_calm(const struct settled *t, int64_t mono_ms)
{
	return mono_ms < t->calm_until_ms || mono_ms - t->answered_ms >= LIMITER_SERVER_MS;
}

static void tell(struct quota_sync *s, struct settled *t, uint32_t max, uint32_t count, int64_t mono_ms)
{
	bool refused = atomic_exchange_explicit(&t->share->has_refused, false, memory_order_relaxed);
	t->is_idle = t->count == count && !refused;
	uint64_t want = want_of(s, t, count, max, refused);
	uint64_t keep = MIN(count + want, (uint64_t)max);
	bool gives = t->grant > keep && !t->is_missed;
	if (is_calm(t, mono_ms))
		want = MIN(want, less(meter_part(max, servers_of(s)), count));
	uint32_t start = t->start;
	if (gives) { /* first here, then there: an answer may be lost */
		grant_put(t, keep);
		meter_now(t->share->meter, mono_ms, &start, &count);
	}
	if (start != t->start)
		return;
	s->reported[s->use_count] = (struct round_use){
	    .settled = t, .max = max, .count = count, .gives = gives};
	s->uses[s->use_count++] = use_of(t, max, count, want, mono_ms);
}

/* False: there is nothing to settle any more. */
static bool prepare(struct quota_sync *s, struct settled *t, int64_t mono_ms)
{
	struct meter *m = t->share->meter;
	uint32_t max = atomic_load_explicit(&m->max, memory_order_relaxed);
	uint32_t start, count;
	if (!meter_now(m, mono_ms, &start, &count))
		return false;
	if (start != t->start || t->wait_ms == 0)
		period_begin(s, t, start, max, mono_ms);
	if (mono_ms >= t->end_ms || max == 0) /* it is over there; or there is nothing to keep to */
		t->next_ms = mono_ms + SETTLE_PAD_MS;
	else
		tell(s, t, max, count, mono_ms);
	return true;
}

/* Who was refused does not wait as long as a meter that nobody uses. */
static bool is_due(const struct settled *t, int64_t mono_ms)
{
	return t->next_ms <= mono_ms ||
	       (t->wait_ms > SETTLE_MS && t->next_ms - t->wait_ms + SETTLE_MS <= mono_ms &&
	        atomic_load_explicit(&t->share->has_refused, memory_order_relaxed));
}

/* Whoever was looked at goes to the end: when there are more than can be settled in time, all wait equally
 * long. */
static void gather(struct quota_sync *s, int64_t mono_ms)
{
	s->use_count = 0;
	uint64_t left = atomic_load_explicit(&s->meters, memory_order_relaxed);
	for (; left > 0 && s->use_count < BATCH_MAX; left--) {
		struct settled *t = container_of(list_pop(&s->active), struct settled, link);
		list_push(&s->active, &t->link);
		if (is_due(t, mono_ms) && !prepare(s, t, mono_ms))
			settled_drop(s, t);
	}
}

static void plan_next(struct settled *t, const struct round_use *reported, int64_t mono_ms)
{
	/* Not while it still gives back, nor while it holds what others may need. */
	bool quiet = t->is_idle && !reported->gives &&
	             (t->others + t->grant < reported->max || t->grant <= reported->count);
	t->wait_ms = quiet ? MIN(t->wait_ms * 2, WAIT_MAX_MS) : SETTLE_MS;
	t->count = reported->count;
	t->next_ms = mono_ms + t->wait_ms;
}

/* After how many uses to settle at once: before a busy server has none left, and so often that one that is
 * killed takes little with it. */
static uint64_t unreported_max(uint64_t held, uint32_t max)
{
	return MIN((held + 1) / 2, MAX(max / UNREPORTED_SHARE, SMALL_MIN));
}

/* The period goes on there: until when, and how far. */
static void follow(struct quota_sync *s, struct settled *t, const struct round_use *reported,
                   const struct limiter_use *use, int64_t mono_ms)
{
	if (mono_ms - t->answered_ms >= LIMITER_SERVER_MS)
		t->calm_until_ms = mono_ms + LIMITER_CALM_MS;
	t->answered_ms = mono_ms;
	t->is_missed = t->is_only_server = false;
	t->period = use->period;
	t->others = use->others;
	t->end_ms = mono_ms + (int64_t)use->left_ms;
	/* Never before it ends there: what is used after that counts from nothing. */
	uint32_t end = meter_units(mono_ms + s->answer_ms + (int64_t)use->left_ms + SETTLE_PAD_MS);
	put(&t->share->end, t->start, MAX(end, t->start + 1));
	put(&t->share->elsewhere, t->start, t->others);
	uint64_t most = MAX(less(reported->max, t->others), (uint64_t)reported->count);
	bool over = use->grant > most;
	put(&t->share->nudge, t->start,
	    reported->count + unreported_max(less(MIN(use->grant, most), reported->count), reported->max));
	grant_put(t, MIN(use->grant, most));
	plan_next(t, reported, mono_ms);
	if (over) {
		t->next_ms = mono_ms;
		s->again = true;
	}
}

static void answered(struct quota_sync *s, const struct round_use *reported, const struct limiter_use *use,
                     int64_t mono_ms)
{
	struct settled *t = reported->settled;
	if (use->period && (!t->period || use->period <= t->period)) {
		follow(s, t, reported, use, mono_ms);
		return;
	}
	if (use->period) /* another one has begun there */
		put(&t->share->end, t->start, MAX(meter_units(mono_ms), t->start + 1));
	t->next_ms = mono_ms + SETTLE_PAD_MS;
}

/* It keeps to its grant, so that a limiter that stops for a moment does no harm; and then takes its part of
 * what was free when it last heard. */
static void missed(struct quota_sync *s, const struct round_use *reported, int64_t mono_ms)
{
	struct settled *t = reported->settled;
	uint32_t servers = servers_of(s);
	int64_t since_ms = t->period ? t->answered_ms : MIN(t->answered_ms, s->failing_ms);
	t->next_ms = mono_ms + AWAY_MS;
	t->is_missed = true;
	if (t->is_only_server || mono_ms - since_ms < PATIENCE_MS)
		return;
	t->is_only_server = true;
	uint64_t part = servers == 1 ? reported->max : meter_part(reported->max, servers);
	if (t->period) {
		uint64_t free = less(reported->max, t->others + t->grant);
		part = t->grant + (servers == 1 ? free : meter_part(free, servers));
	}
	grant_put(t, MAX(t->grant, part));
	if (!t->period) { /* nobody need wait for more */
		uint32_t period_ms = atomic_load_explicit(&t->share->meter->period_ms, memory_order_relaxed);
		put(&t->share->end, t->start, t->start + meter_units(period_ms));
	}
}

static void say_whether_away(struct quota_sync *s, int r, int64_t mono_ms)
{
	bool was_away = s->failing_ms != INT64_MAX;
	if (r < 0 && !was_away) {
		log_warn("limits",
		         "the servers cannot settle their limits (%s); each goes on with its part of them",
		         err_name(r));
		s->failing_ms = mono_ms;
	}
	if (r == 0 && was_away) {
		log_info("limits", "the servers settle their limits again");
		s->failing_ms = INT64_MAX;
	}
}

/* After a time without an answer the others may come back later than this one. */
static void servers_known(struct quota_sync *s, unsigned servers, int64_t mono_ms)
{
	if (mono_ms - s->answered_ms >= LIMITER_SERVER_MS)
		s->calm_until_ms = mono_ms + LIMITER_CALM_MS;
	s->answered_ms = mono_ms;
	if (mono_ms < s->calm_until_ms)
		servers = MAX(servers, servers_of(s));
	atomic_store_explicit(&s->quota.servers, servers, memory_order_relaxed);
}

static void settle(struct quota_sync *s, int64_t mono_ms)
{
	unsigned servers = 0;
	int64_t asked_ms = clock_mono_ms();
	int r = s->limiter->ops->settle(s->limiter, s->uses, s->use_count, &servers);
	s->answer_ms = clock_mono_ms() - asked_ms;
	/* From before it was asked: there it counts from then on, or later. */
	atomic_store_explicit(&s->quota.until, meter_units(mono_ms + HOLD_MS), memory_order_relaxed);
	atomic_fetch_add_explicit(&s->syncs, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->failures, r < 0, memory_order_relaxed);
	s->asked_ms = mono_ms;
	say_whether_away(s, r, mono_ms);
	if (servers > 0)
		servers_known(s, servers, mono_ms);
	for (size_t i = 0; i < s->use_count; i++) {
		if (s->uses[i].settled)
			answered(s, &s->reported[i], &s->uses[i], mono_ms);
		else
			missed(s, &s->reported[i], mono_ms);
	}
}

void quota_sync_once(struct quota_sync *s, int64_t mono_ms)
{
	take_listed(s);
	gather(s, mono_ms);
	s->again = s->use_count == BATCH_MAX;
	if (s->use_count > 0 || s->asked_ms + SERVERS_MS <= mono_ms)
		settle(s, mono_ms);
}

static int64_t quota_sync_run(struct task *t)
{
	struct quota_sync *s = container_of(t, struct quota_sync, quota.task);
	quota_sync_once(s, clock_mono_ms());
	return s->again ? 0 : list_empty(&s->active) ? SERVERS_MS : SETTLE_MS;
}

int quota_sync_start(struct quota_sync *s, struct err *e)
{
	quota_sync_once(s, clock_mono_ms()); /* so that it knows at once how many there are */
	return task_start(&s->quota.task, &(struct task_config){.name = "settler", .run = quota_sync_run}, e);
}

/* The last word about every meter: what was used. */
static void say_last(struct quota_sync *s)
{
	int64_t mono_ms = s->asked_ms;
	unsigned servers;
	struct list *node = s->active.next;
	int r = 0;
	while (node != &s->active && r == 0) {
		for (s->use_count = 0; node != &s->active && s->use_count < BATCH_MAX; node = node->next) {
			struct settled *t = container_of(node, struct settled, link);
			uint32_t start, count;
			if (!t->period || !meter_now(t->share->meter, mono_ms, &start, &count) ||
			    start != t->start)
				continue;
			grant_put(t, count);
			s->uses[s->use_count++] = use_of(t, count, count, 0, mono_ms);
		}
		r = s->limiter->ops->settle(s->limiter, s->uses, s->use_count, &servers);
	}
}

void quota_sync_stop(struct quota_sync *s)
{
	if (!s || s->stopped)
		return;
	s->stopped = true;
	task_stop(&s->quota.task);
	if (task_was_started(&s->quota.task))
		quota_sync_once(s, clock_mono_ms());
	say_last(s);
}

struct quota_sync_stats quota_sync_stats(struct quota_sync *s)
{
	return (struct quota_sync_stats){
	    .servers = atomic_load_explicit(&s->quota.servers, memory_order_relaxed),
	    .syncs = atomic_load_explicit(&s->syncs, memory_order_relaxed),
	    .failures = atomic_load_explicit(&s->failures, memory_order_relaxed),
	    .meters = atomic_load_explicit(&s->meters, memory_order_relaxed),
	};
}
