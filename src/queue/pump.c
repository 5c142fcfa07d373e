#include "queue/pump.h"

#include "obs/log.h"
#include "os/clock.h"
#include "os/failpoint.h"
#include "os/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum {
	RETRY_MS = 1000,
	NICE = 5,            /* visitors come first */
	LAST_READ_MS = 2000, /* how long a stopping pump goes on reading */
	SLOW_MS = 5000,      /* a batch that is under way for so long is worth a word */
};

struct pump {
	struct pump_config config;
	int64_t committed_ms; /* monotonic; the thread's own */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	bool stopping;
	bool ended;
	struct err trouble;      /* empty: none */
	int64_t commit_since_ms; /* of the batch that is under way; 0: none is */
	/* Whoever wants to catch up gets the next number. A mark says where all streams ended; it is for all
	 * numbers that were given out before. There is one at a time. */
	uint64_t asked;        /* the last number given out */
	uint64_t marked_for;   /* the last that the last mark is for; changed by the pump alone */
	uint64_t caught_up;    /* likewise, of the last mark that was reached */
	unsigned waiting;      /* threads in pump_catch_up */
	bool let_go;           /* nobody may wait any more */
	pthread_cond_t caught; /* caught_up, stopping, ended or waiting has changed */
};

/* Waiting */

/* Sleeps, or until the end is asked for; when `hurry`, also until somebody wants to catch up. */
static bool wait_ms(struct pump *p, uint64_t ms, bool hurry)
{
	struct timespec at = clock_mono_after(ms);
	pthread_mutex_lock(&p->lock);
	while (!p->stopping && !(hurry && p->asked > p->marked_for) &&
	       pthread_cond_timedwait(&p->wake, &p->lock, &at) != ETIMEDOUT)
		;
	bool stopping = p->stopping;
	pthread_mutex_unlock(&p->lock);
	return stopping;
}

static bool is_stopping(struct pump *p)
{
	pthread_mutex_lock(&p->lock);
	bool stopping = p->stopping;
	pthread_mutex_unlock(&p->lock);
	return stopping;
}

static void set_trouble(struct pump *p, const char *what, int r)
{
	pthread_mutex_lock(&p->lock);
	bool was_well = p->trouble.text[0] == '\0';
	if (r < 0)
		err_set(&p->trouble, r, "%s; events wait meanwhile", what);
	else
		p->trouble.text[0] = '\0';
	pthread_mutex_unlock(&p->lock);
	if (r < 0 && was_well)
		log_error("events", "%s (%s); events wait meanwhile", what, err_name(r));
	else if (r == 0 && !was_well)
		log_info("events", "%s: it goes on", p->config.name);
}

int pump_trouble(struct pump *p, struct err *e)
{
	pthread_mutex_lock(&p->lock);
	int64_t slow_ms = p->commit_since_ms ? clock_mono_ms() - p->commit_since_ms : 0;
	int r = 0;
	if (p->trouble.text[0])
		r = err_set(e, ERR_UNAVAILABLE, "%s", p->trouble.text);
	else if (slow_ms > SLOW_MS)
		r = err_set(e, ERR_UNAVAILABLE,
		            "a batch has been under way for %lld s; events wait meanwhile",
		            (long long)slow_ms / 1000);
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* Catching up */

/* The last number given out; what was there before it was is found by a refresh that begins now. */
static uint64_t asked_now(struct pump *p)
{
	pthread_mutex_lock(&p->lock);
	uint64_t asked = p->asked;
	pthread_mutex_unlock(&p->lock);
	return asked;
}

/* After a refresh that began when `asked` was the last number. Those who come while a mark is not reached
 * wait for the next one: a mark that moves might never be. */
static void mark_make(struct pump *p, uint64_t asked)
{
	struct queue *q = p->config.queue;
	if (p->marked_for > p->caught_up || asked == p->marked_for)
		return;
	q->ops->mark(q);
	pthread_mutex_lock(&p->lock);
	p->marked_for = asked;
	pthread_mutex_unlock(&p->lock);
}

static void mark_settle(struct pump *p)
{
	struct queue *q = p->config.queue;
	if (p->marked_for == p->caught_up || !q->ops->is_reached(q))
		return;
	pthread_mutex_lock(&p->lock);
	p->caught_up = p->marked_for;
	pthread_cond_broadcast(&p->caught);
	pthread_mutex_unlock(&p->lock);
}

int pump_catch_up(struct pump *p, uint64_t timeout_ms)
{
	if (!p->config.queue->ops->mark)
		return ERR_UNAVAILABLE;
	struct timespec at = clock_mono_after(timeout_ms);
	pthread_mutex_lock(&p->lock);
	uint64_t number = ++p->asked;
	p->waiting++;
	pthread_cond_signal(&p->wake);
	while (!p->stopping && !p->let_go && p->caught_up < number &&
	       pthread_cond_timedwait(&p->caught, &p->lock, &at) != ETIMEDOUT)
		;
	int r = p->caught_up >= number ? 0 : ERR_UNAVAILABLE;
	if (--p->waiting == 0)
		pthread_cond_broadcast(&p->caught); /* pairs with waiters_leave */
	pthread_mutex_unlock(&p->lock);
	return r;
}

void pump_let_go(struct pump *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->let_go = true;
	pthread_cond_broadcast(&p->caught);
	pthread_mutex_unlock(&p->lock);
}

static void waiters_leave(struct pump *p)
{
	pthread_mutex_lock(&p->lock);
	while (p->waiting > 0)
		pthread_cond_wait(&p->caught, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

/* Rounds */

static int batch_gather(struct pump *p)
{
	const struct pump_config *c = &p->config;
	uint64_t asked = asked_now(p);
	int r = c->queue->ops->refresh(c->queue);
	if (r == 0)
		mark_make(p, asked);
	c->consumer->begin(c->ctx);
	while (r == 0 && !c->consumer->is_full(c->ctx)) {
		struct queue_event ev;
		int got = c->queue->ops->next(c->queue, &ev);
		if (got <= 0)
			return got;
		r = c->consumer->add(c->ctx, c->queue, &ev);
		if (r < 0)
			c->queue->ops->put_back(c->queue);
	}
	return r == ERR_LIMIT ? 0 : r;
}

static void set_commit_since(struct pump *p, int64_t since_ms)
{
	pthread_mutex_lock(&p->lock);
	p->commit_since_ms = since_ms;
	pthread_mutex_unlock(&p->lock);
}

/* Tries until it works or the end is asked for. 0, or why nothing was committed. */
static int batch_commit(struct pump *p, const struct advance *advances, size_t count)
{
	const struct pump_config *c = &p->config;
	for (;;) {
		set_commit_since(p, clock_mono_ms());
		int r = c->consumer->commit(c->ctx, advances, count);
		set_commit_since(p, 0);
		set_trouble(p, c->refuses, r == ERR_UNCERTAIN ? 0 : r);
		if (r == 0 || r == ERR_UNCERTAIN)
			return r;
		if (wait_ms(p, RETRY_MS, false))
			return r;
	}
}

static int round_failed(struct pump *p, int r)
{
	p->config.queue->ops->rewind(p->config.queue);
	return r == ERR_UNCERTAIN ? 1 : r;
}

/* One round. >0: there may be more at once; 0: caught up; <0: something failed. */
static int round_run(struct pump *p)
{
	const struct pump_config *c = &p->config;
	struct queue *q = c->queue;
	int r = batch_gather(p);
	if (r < 0) {
		set_trouble(p, "events cannot be read", r == ERR_UNCERTAIN ? 0 : r);
		return round_failed(p, r);
	}
	const struct advance *advances;
	size_t count = q->ops->advances(q, &advances);
	bool was_full = c->consumer->is_full(c->ctx), behind = q->ops->is_behind(q);
	bool is_idle = c->idle_ms && clock_mono_ms() - p->committed_ms >= (int64_t)c->idle_ms;
	if (count > 0 || is_idle) {
		failpoint("pump-gathered");
		r = batch_commit(p, advances, count);
		failpoint("pump-taken");
		if (r == 0)
			r = q->ops->commit(q);
		if (r < 0)
			return round_failed(p, r);
		failpoint("pump-committed");
		p->committed_ms = clock_mono_ms();
	}
	struct err why;
	r = q->ops->trouble(q, &why);
	set_trouble(p, why.text, r);
	return r < 0 && !was_full ? r : behind;
}

static void *pump_thread(void *arg)
{
	struct pump *p = arg;
	const struct pump_config *c = &p->config;
	thread_step_back(NICE);
	for (bool stopping = false; !stopping;) {
		int r = round_run(p);
		mark_settle(p);
		c->consumer->chores(c->ctx, r == 0);
		c->queue->ops->tidy(c->queue);
		stopping = r > 0 ? is_stopping(p) : wait_ms(p, r < 0 ? RETRY_MS : c->interval_ms, r == 0);
	}
	int64_t until_ms = clock_mono_ms() + LAST_READ_MS;
	while (clock_mono_ms() < until_ms && round_run(p) > 0)
		;
	c->consumer->finish(c->ctx);
	pthread_mutex_lock(&p->lock);
	p->ended = true;
	pthread_cond_broadcast(&p->caught);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Starting and stopping */

int pump_start(const struct pump_config *config, struct pump **ret, struct err *e)
{
	struct pump *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	p->config = *config;
	p->committed_ms = clock_mono_ms();
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->wake, &attr);
	pthread_cond_init(&p->caught, &attr);
	pthread_condattr_destroy(&attr);
	int r = thread_start(&p->thread, config->name, pump_thread, p, e);
	p->started = r == 0;
	if (r < 0) {
		pump_stop(p);
		return r;
	}
	*ret = p;
	return 0;
}

void pump_ask_end(struct pump *p)
{
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_signal(&p->wake);
	pthread_cond_broadcast(&p->caught);
	pthread_mutex_unlock(&p->lock);
}

bool pump_wait_end(struct pump *p, uint64_t timeout_ms)
{
	struct timespec at = clock_mono_after(timeout_ms);
	pthread_mutex_lock(&p->lock);
	while (!p->ended && pthread_cond_timedwait(&p->caught, &p->lock, &at) != ETIMEDOUT)
		;
	bool ended = p->ended;
	pthread_mutex_unlock(&p->lock);
	return ended;
}

void pump_stop(struct pump *p)
{
	if (!p)
		return;
	if (p->started) {
		pump_ask_end(p);
		pthread_join(p->thread, NULL);
		waiters_leave(p);
	}
	pthread_cond_destroy(&p->wake);
	pthread_cond_destroy(&p->caught);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
