#include "link/quota_sync.h"

#include "base/list.h"
#include "obs/log.h"
#include "os/clock.h"

#include <stdlib.h>

enum {
	BATCH_MAX = 1024,
	WAIT_MAX_MS = 1000,    /* between two syncs of an unused meter */
	SMALL_SHARE = 16,      /* of its share, what a server holds while nearly unused */
	SMALL_MIN = 8,         /* and at least so many, if available */
	PREFETCH = 4,          /* times the use since the last sync, a server holds */
	UNREPORTED_SHARE = 40, /* of the limit, the most unreported use */
	RETRY_MS = 200,        /* retry after a failure */
	GRANT_ONLY_MS = 1000,  /* how long a server keeps to its grant without an answer */
	SERVERS_MS = 500,      /* maximum interval, to be counted and to count servers */
	/* How long grants are valid while this process is stopped: the limiter reuses them after
	 * LIMITER_SERVER_MS. */
	HOLD_MS = LIMITER_SERVER_MS - SERVERS_MS,
};

/* A meter with a current period, as the limiter knows it. */
struct synced_meter {
	struct list link;
	struct meter_share *share;
	uint32_t start;       /* of the period that all below refers to */
	bool is_idle;         /* not used since the last sync */
	bool sync_missed;     /* the last sync failed */
	bool took_fair_share; /* it has taken its fair share without an answer */
	uint32_t count;       /* used here at the last sync */
	uint64_t grant;       /* published: the count that this server may reach */
	uint64_t period;      /* the limiter's period id; 0: never synced */
	uint64_t others;      /* used or held by others at the last sync */
	int64_t end_ms;       /* the limiter's end of the period; monotonic */
	int64_t answered_ms;
	int64_t cautious_until_ms; /* others may not have reported their use of an outage yet */
	int64_t next_ms;
	int64_t wait_ms; /* 0: new */
};

/* What a sync reports of a meter. */
struct round_use {
	struct synced_meter *synced;
	uint32_t max;
	uint32_t count;
	bool lowers; /* its grant is lowered */
};

struct quota_sync {
	struct limiter *limiter;
	struct quota quota;
	struct list active;
	int64_t asked_ms;
	int64_t answer_ms;   /* duration of the last call */
	int64_t answered_ms; /* when servers were last counted */
	int64_t failing_ms;  /* start of the outage; INT64_MAX: none */
	int64_t cautious_until_ms;
	bool again; /* sync again at once: meters are waiting, or a grant is returned */
	struct round_use reported[BATCH_MAX];
	struct limiter_use uses[BATCH_MAX];
	size_t use_count;
	_Atomic uint64_t rounds, failures, meters;
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

static void settled_drop(struct quota_sync *s, struct synced_meter *t)
{
	t->share->synced = NULL;
	list_remove(&t->link);
	free(t);
	atomic_fetch_sub_explicit(&s->meters, 1, memory_order_relaxed);
}

void quota_sync_free(struct quota_sync *s)
{
	if (!s)
		return;
	struct list *node;
	while ((node = list_pop(&s->active))) /* the meters are freed */
		free(container_of(node, struct synced_meter, link));
	free(s);
}

/* Takes the meters that workers have queued. */
static void take_queued(struct quota_sync *s)
{
	struct meter_share *share = atomic_exchange_explicit(&s->quota.queued, NULL, memory_order_acquire);
	while (share) {
		struct meter_share *next = share->next_queued;
		/* From here on it may be queued again. */
		atomic_store_explicit(&share->is_queued, false, memory_order_release);
		if (!share->synced && (share->synced = calloc(1, sizeof(struct synced_meter)))) {
			share->synced->share = share;
			list_push(&s->active, &share->synced->link);
			atomic_fetch_add_explicit(&s->meters, 1, memory_order_relaxed);
		}
		if (share->synced)
			share->synced->next_ms = INT64_MIN;
		share = next;
	}
}

static uint32_t servers_of(const struct quota_sync *s)
{
	return atomic_load_explicit(&s->quota.servers, memory_order_relaxed);
}

static void word_set(_Atomic uint64_t *word, uint32_t start, uint64_t number)
{
	atomic_store_explicit(word, meter_pack(start, (uint32_t)MIN(number, UINT32_MAX)),
	                      memory_order_relaxed);
}

static void grant_put(struct synced_meter *t, uint64_t grant)
{
	t->grant = grant;
	word_set(&t->share->grant, t->start, grant);
}

static void period_begin(const struct quota_sync *s, struct synced_meter *t, uint32_t start, uint32_t max,
                         int64_t mono_ms)
{
	*t = (struct synced_meter){
	    .link = t->link,
	    .share = t->share,
	    .start = start,
	    .end_ms = INT64_MAX,
	    .answered_ms = mono_ms,
	    .wait_ms = SYNC_MS,
	};
	grant_put(t, meter_initial_grant(max, servers_of(s)));
}

static uint64_t saturating_sub(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* How many to hold beyond the use so far: a few times what is needed between two syncs, and the fair share
 * after a refusal. An unused meter returns most of its grant, down to a small part, so that the next
 * request need not wait. It rounds down: the last one is for servers that need it. */
static uint64_t wanted_grant(const struct quota_sync *s, const struct synced_meter *t, uint32_t count,
                             uint32_t max, bool refused)
{
	uint32_t servers = servers_of(s);
	uint64_t whole = saturating_sub(max, t->others + count);
	uint64_t part = meter_fair_share(whole, servers);
	uint64_t small = MAX(part / SMALL_SHARE, SMALL_MIN);
	if (t->is_idle)
		return MIN(whole / MAX(servers, (uint32_t)SERVERS_MIN),
		           MAX(saturating_sub(t->grant, count) / PREFETCH, small));
	if (refused || servers < SERVERS_MIN)
		return part;
	return MIN(part, MAX(small, (uint64_t)PREFETCH * saturating_sub(count, t->count)));
}

static struct limiter_use limiter_use_of(const struct synced_meter *t, uint32_t max, uint32_t count,
                                         uint64_t want, int64_t mono_ms)
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

/* Is it too early to take what others seem not to need? They may have had no answer either. */
static bool is_cautious(const struct synced_meter *t, int64_t mono_ms)
{
	return mono_ms < t->cautious_until_ms || mono_ms - t->answered_ms >= LIMITER_SERVER_MS;
}

static void report(struct quota_sync *s, struct synced_meter *t, uint32_t max, uint32_t count,
                   int64_t mono_ms)
{
	bool refused = atomic_exchange_explicit(&t->share->has_refused, false, memory_order_relaxed);
	t->is_idle = t->count == count && !refused;
	uint64_t want = wanted_grant(s, t, count, max, refused);
	uint64_t keep = MIN(count + want, (uint64_t)max);
	bool lowers = t->grant > keep && !t->sync_missed;
	if (is_cautious(t, mono_ms))
		want = MIN(want, saturating_sub(meter_fair_share(max, servers_of(s)), count));
	uint32_t start = t->start;
	if (lowers) { /* first here, then at the limiter: the answer may be lost */
		grant_put(t, keep);
		meter_now(t->share->meter, mono_ms, &start, &count);
	}
	if (start != t->start)
		return;
	s->reported[s->use_count] = (struct round_use){
	    .synced = t, .max = max, .count = count, .lowers = lowers};
	s->uses[s->use_count++] = limiter_use_of(t, max, count, want, mono_ms);
}

/* False: there is nothing to sync any more. */
static bool sync_prepare(struct quota_sync *s, struct synced_meter *t, int64_t mono_ms)
{
	struct meter *m = t->share->meter;
	uint32_t max = atomic_load_explicit(&m->max, memory_order_relaxed);
	uint32_t start, count;
	if (!meter_now(m, mono_ms, &start, &count))
		return false;
	if (start != t->start || t->wait_ms == 0)
		period_begin(s, t, start, max, mono_ms);
	if (mono_ms >= t->end_ms || max == 0) /* it has ended at the limiter, or there is no limit */
		t->next_ms = mono_ms + SYNC_PAD_MS;
	else
		report(s, t, max, count, mono_ms);
	return true;
}

/* A refusal shortens the interval of an unused meter. */
static bool is_due(const struct synced_meter *t, int64_t mono_ms)
{
	return t->next_ms <= mono_ms ||
	       (t->wait_ms > SYNC_MS && t->next_ms - t->wait_ms + SYNC_MS <= mono_ms &&
	        atomic_load_explicit(&t->share->has_refused, memory_order_relaxed));
}

/* Round robin: if there are more than one call can sync, all wait equally long. */
static void gather(struct quota_sync *s, int64_t mono_ms)
{
	s->use_count = 0;
	uint64_t left = atomic_load_explicit(&s->meters, memory_order_relaxed);
	for (; left > 0 && s->use_count < BATCH_MAX; left--) {
		struct synced_meter *t = container_of(list_pop(&s->active), struct synced_meter, link);
		list_push(&s->active, &t->link);
		if (is_due(t, mono_ms) && !sync_prepare(s, t, mono_ms))
			settled_drop(s, t);
	}
}

static void plan_next(struct synced_meter *t, const struct round_use *reported, int64_t mono_ms)
{
	/* Not while it still returns grants, nor while it holds what others may need. */
	bool quiet = t->is_idle && !reported->lowers &&
	             (t->others + t->grant < reported->max || t->grant <= reported->count);
	t->wait_ms = quiet ? MIN(t->wait_ms * 2, WAIT_MAX_MS) : SYNC_MS;
	t->count = reported->count;
	t->next_ms = mono_ms + t->wait_ms;
}

/* After how many uses to sync at once: before a busy server runs out, and so often that a crash loses
 * little. */
static uint64_t unreported_max(uint64_t held, uint32_t max)
{
	return MIN((held + 1) / 2, MAX(max / UNREPORTED_SHARE, SMALL_MIN));
}

/* The period continues at the limiter: takes its end and grant. */
static void period_update(struct quota_sync *s, struct synced_meter *t, const struct round_use *reported,
                          const struct limiter_use *use, int64_t mono_ms)
{
	if (mono_ms - t->answered_ms >= LIMITER_SERVER_MS)
		t->cautious_until_ms = mono_ms + LIMITER_CALM_MS;
	t->answered_ms = mono_ms;
	t->sync_missed = t->took_fair_share = false;
	t->period = use->period;
	t->others = use->others;
	t->end_ms = mono_ms + (int64_t)use->left_ms;
	/* Never before it ends at the limiter: later use counts for the next period. */
	uint32_t end = meter_units(mono_ms + s->answer_ms + (int64_t)use->left_ms + SYNC_PAD_MS);
	word_set(&t->share->end, t->start, MAX(end, t->start + 1));
	word_set(&t->share->used_elsewhere, t->start, t->others);
	uint64_t most = MAX(saturating_sub(reported->max, t->others), (uint64_t)reported->count);
	bool over = use->grant > most;
	word_set(&t->share->sync_at, t->start,
	         reported->count +
	             unreported_max(saturating_sub(MIN(use->grant, most), reported->count), reported->max));
	grant_put(t, MIN(use->grant, most));
	plan_next(t, reported, mono_ms);
	if (over) {
		t->next_ms = mono_ms;
		s->again = true;
	}
}

static void sync_answered(struct quota_sync *s, const struct round_use *reported,
                          const struct limiter_use *use, int64_t mono_ms)
{
	struct synced_meter *t = reported->synced;
	if (use->period && (!t->period || use->period <= t->period)) {
		period_update(s, t, reported, use, mono_ms);
		return;
	}
	if (use->period) /* the next period has begun there */
		word_set(&t->share->end, t->start, MAX(meter_units(mono_ms), t->start + 1));
	t->next_ms = mono_ms + SYNC_PAD_MS;
}

/* Without an answer a server keeps to its grant for a moment, then takes its fair share of what was free. */
static void sync_failed(struct quota_sync *s, const struct round_use *reported, int64_t mono_ms)
{
	struct synced_meter *t = reported->synced;
	uint32_t servers = servers_of(s);
	int64_t since_ms = t->period ? t->answered_ms : MIN(t->answered_ms, s->failing_ms);
	t->next_ms = mono_ms + RETRY_MS;
	t->sync_missed = true;
	if (t->took_fair_share || mono_ms - since_ms < GRANT_ONLY_MS)
		return;
	t->took_fair_share = true;
	uint64_t part = servers == 1 ? reported->max : meter_fair_share(reported->max, servers);
	if (t->period) {
		uint64_t free = saturating_sub(reported->max, t->others + t->grant);
		part = t->grant + (servers == 1 ? free : meter_fair_share(free, servers));
	}
	grant_put(t, MAX(t->grant, part));
	if (!t->period) { /* no request need wait for a sync */
		uint32_t period_ms = atomic_load_explicit(&t->share->meter->period_ms, memory_order_relaxed);
		word_set(&t->share->end, t->start, t->start + meter_units(period_ms));
	}
}

static void log_state(struct quota_sync *s, int r, int64_t mono_ms)
{
	bool was_away = s->failing_ms != INT64_MAX;
	if (r < 0 && !was_away) {
		log_warn("limits", "limiter failed, each server continues with its share error=%s",
		         err_name(r));
		s->failing_ms = mono_ms;
	}
	if (r == 0 && was_away) {
		log_info("limits", "limiter recovered");
		s->failing_ms = INT64_MAX;
	}
}

/* After an outage other servers may come back later than this one. */
static void servers_update(struct quota_sync *s, unsigned servers, int64_t mono_ms)
{
	if (mono_ms - s->answered_ms >= LIMITER_SERVER_MS)
		s->cautious_until_ms = mono_ms + LIMITER_CALM_MS;
	s->answered_ms = mono_ms;
	if (mono_ms < s->cautious_until_ms)
		servers = MAX(servers, servers_of(s));
	atomic_store_explicit(&s->quota.servers, servers, memory_order_relaxed);
}

static void sync_meters(struct quota_sync *s, int64_t mono_ms)
{
	unsigned servers = 0;
	int64_t asked_ms = clock_mono_ms();
	int r = s->limiter->ops->sync(s->limiter, s->uses, s->use_count, &servers);
	s->answer_ms = clock_mono_ms() - asked_ms;
	/* Measured from before the call: the limiter starts later. */
	atomic_store_explicit(&s->quota.until, meter_units(mono_ms + HOLD_MS), memory_order_relaxed);
	atomic_fetch_add_explicit(&s->rounds, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->failures, r < 0, memory_order_relaxed);
	s->asked_ms = mono_ms;
	log_state(s, r, mono_ms);
	if (servers > 0)
		servers_update(s, servers, mono_ms);
	for (size_t i = 0; i < s->use_count; i++) {
		if (s->uses[i].synced)
			sync_answered(s, &s->reported[i], &s->uses[i], mono_ms);
		else
			sync_failed(s, &s->reported[i], mono_ms);
	}
}

void quota_sync_once(struct quota_sync *s, int64_t mono_ms)
{
	take_queued(s);
	gather(s, mono_ms);
	s->again = s->use_count == BATCH_MAX;
	if (s->use_count > 0 || s->asked_ms + SERVERS_MS <= mono_ms)
		sync_meters(s, mono_ms);
}

static int64_t quota_sync_run(struct task *t)
{
	struct quota_sync *s = container_of(t, struct quota_sync, quota.task);
	quota_sync_once(s, clock_mono_ms());
	return s->again ? 0 : list_empty(&s->active) ? SERVERS_MS : SYNC_MS;
}

int quota_sync_start(struct quota_sync *s, struct err *e)
{
	quota_sync_once(s, clock_mono_ms()); /* to know the number of servers at once */
	return task_start(&s->quota.task, &(struct task_config){.name = "quota-sync", .run = quota_sync_run},
	                  e);
}

/* Reports the final use of every meter. */
static void report_final(struct quota_sync *s)
{
	int64_t mono_ms = s->asked_ms;
	unsigned servers;
	struct list *node = s->active.next;
	int r = 0;
	while (node != &s->active && r == 0) {
		for (s->use_count = 0; node != &s->active && s->use_count < BATCH_MAX; node = node->next) {
			struct synced_meter *t = container_of(node, struct synced_meter, link);
			uint32_t start, count;
			if (!t->period || !meter_now(t->share->meter, mono_ms, &start, &count) ||
			    start != t->start)
				continue;
			grant_put(t, count);
			s->uses[s->use_count++] = limiter_use_of(t, count, count, 0, mono_ms);
		}
		r = s->limiter->ops->sync(s->limiter, s->uses, s->use_count, &servers);
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
	report_final(s);
}

struct quota_sync_stats quota_sync_stats(struct quota_sync *s)
{
	return (struct quota_sync_stats){
	    .servers = atomic_load_explicit(&s->quota.servers, memory_order_relaxed),
	    .rounds = atomic_load_explicit(&s->rounds, memory_order_relaxed),
	    .failures = atomic_load_explicit(&s->failures, memory_order_relaxed),
	    .meters = atomic_load_explicit(&s->meters, memory_order_relaxed),
	};
}
