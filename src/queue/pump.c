#include "queue/pump.h"

#include "obs/log.h"
#include "os/clock.h"
#include "os/failpoint.h"
#include "os/task.h"
#include "os/thread.h"

#include <stdlib.h>

enum {
	RETRY_MS = 1000,
	NICE = 5,            /* visitors come first */
	LAST_READ_MS = 2000, /* how long a stopping pump goes on reading */
	SLOW_MS = 5000,      /* a batch that is under way for so long is worth a word */
};

struct pump {
	struct pump_config config;
	int64_t committed_ms; /* monotonic; the task's own */
	struct task task;

	pthread_mutex_t lock;    /* guards what follows */
	struct err trouble;      /* empty: none */
	int64_t commit_since_ms; /* of the batch that is under way; 0: none is */
	/* Whoever wants to catch up gets the next number. A mark says where all streams ended; it is for all
	 * numbers that were given out before. There is one at a time. */
	uint64_t asked;        /* the last number given out */
	uint64_t marked_for;   /* the last that the last mark is for; changed by the pump alone */
	uint64_t caught_up;    /* likewise, of the last mark that was reached */
	unsigned waiting;      /* threads in pump_catch_up */
	bool let_go;           /* nobody may wait any more */
	pthread_cond_t caught; /* caught_up, let_go or waiting has changed */
};

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

int pump_catch_up(struct pump *p, uint64_t timeout_ms)
{
	if (!p->config.queue->ops->mark)
		return ERR_UNAVAILABLE;
	struct timespec at = clock_mono_after(timeout_ms);
	pthread_mutex_lock(&p->lock);
	uint64_t number = ++p->asked;
	p->waiting++;
	task_wake(&p->task);
	while (!p->let_go && p->caught_up < number && cond_wait_until(&p->caught, &p->lock, &at))
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
	/* Those who come while a mark is not reached wait for the next one: a mark that moves might never be.
	 */
	if (r == 0 && p->marked_for <= p->caught_up && asked != p->marked_for) {
		c->queue->ops->mark(c->queue);
		pthread_mutex_lock(&p->lock);
		p->marked_for = asked;
		pthread_mutex_unlock(&p->lock);
	}
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
		if (task_sleep(&p->task, RETRY_MS))
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

static int64_t pump_run(struct task *t)
{
	struct pump *p = container_of(t, struct pump, task);
	const struct pump_config *c = &p->config;
	int r = round_run(p);
	if (p->marked_for != p->caught_up && c->queue->ops->is_reached(c->queue)) {
		pthread_mutex_lock(&p->lock);
		p->caught_up = p->marked_for;
		pthread_cond_broadcast(&p->caught);
		pthread_mutex_unlock(&p->lock);
	}
	c->consumer->chores(c->ctx, r == 0);
	c->queue->ops->retention(c->queue);
	if (r < 0) /* not sooner for a wake-up: who wants to catch up cannot make it work */
		task_sleep(t, RETRY_MS);
	/* Who came while the last mark was not reached waits for the next one. */
	return r == 0 && asked_now(p) == p->marked_for ? (int64_t)c->interval_ms : 0;
}

static void pump_end(struct task *t)
{
	struct pump *p = container_of(t, struct pump, task);
	int64_t until_ms = clock_mono_ms() + LAST_READ_MS;
	while (clock_mono_ms() < until_ms && round_run(p) > 0)
		;
	p->config.consumer->finish(p->config.ctx);
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
	cond_init_mono(&p->caught);
	const struct task_config task = {
	    .name = config->name, .run = pump_run, .end = pump_end, .nice = NICE};
	int r = task_start(&p->task, &task, e);
	if (r < 0) {
		pump_stop(p);
		return r;
	}
	*ret = p;
	return 0;
}

void pump_ask_end(struct pump *p)
{
	pump_let_go(p);
	task_ask_stop(&p->task);
}

bool pump_wait_end(struct pump *p, uint64_t timeout_ms)
{
	return task_wait_end(&p->task, timeout_ms);
}

void pump_stop(struct pump *p)
{
	if (!p)
		return;
	pump_ask_end(p);
	task_stop(&p->task);
	waiters_leave(p);
	pthread_cond_destroy(&p->caught);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
