#include "queue/consumer.h"

#include "obs/log.h"
#include "os/clock.h"
#include "os/failpoint.h"
#include "os/task.h"
#include "os/thread.h"

#include <stdlib.h>

enum {
	RETRY_MS = 1000,
	NICE = 5,            /* below the threads that serve requests */
	LAST_READ_MS = 2000, /* how long a stopping consumer continues to read */
	SLOW_MS = 5000,      /* a commit that takes longer is reported */
};

struct queue_consumer {
	struct queue_consumer_config config;
	int64_t committed_ms; /* monotonic; the task's own */
	struct task task;

	pthread_mutex_t lock;    /* guards what follows */
	struct err trouble;      /* empty: none */
	int64_t commit_since_ms; /* start of the commit under way; 0: none */
	/* Each request to catch up gets a number. mark_end serves all requests made before it. One end is
	 * marked at a time. */
	uint64_t requested;    /* the last number */
	uint64_t marked;       /* the last request served by the marked end; only the task changes it */
	uint64_t caught_up;    /* the last request whose end is reached; likewise */
	unsigned waiting;      /* threads in queue_consumer_catch_up */
	bool is_cancelled;     /* waiting is over */
	pthread_cond_t caught; /* caught_up, is_cancelled or waiting has changed */
};

static void set_trouble(struct queue_consumer *p, const char *what, int r)
{
	pthread_mutex_lock(&p->lock);
	bool was_well = p->trouble.text[0] == '\0';
	if (r < 0)
		err_set(&p->trouble, r, "%s; events wait in the queue", what);
	else
		p->trouble.text[0] = '\0';
	pthread_mutex_unlock(&p->lock);
	if (r < 0 && was_well)
		log_error("events", "%s; events wait in the queue: task=%s error=%s", what, p->config.name,
		          err_name(r));
	else if (r == 0 && !was_well)
		log_info("events", "events are processed again: task=%s", p->config.name);
}

int queue_consumer_trouble(struct queue_consumer *p, struct err *e)
{
	pthread_mutex_lock(&p->lock);
	int64_t slow_ms = p->commit_since_ms ? clock_mono_ms() - p->commit_since_ms : 0;
	int r = 0;
	if (p->trouble.text[0])
		r = err_set(e, ERR_UNAVAILABLE, "%s", p->trouble.text);
	else if (slow_ms > SLOW_MS)
		r = err_set(e, ERR_UNAVAILABLE,
		            "the commit of a batch has taken %lld s so far; events wait in the queue",
		            (long long)slow_ms / 1000);
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* Catching up */

/* A refresh that begins after this call finds all events that were in the queue before that request. */
static uint64_t last_request(struct queue_consumer *p)
{
	pthread_mutex_lock(&p->lock);
	uint64_t requested = p->requested;
	pthread_mutex_unlock(&p->lock);
	return requested;
}

int queue_consumer_catch_up(struct queue_consumer *p, uint64_t timeout_ms)
{
	if (!p->config.queue->ops->mark_end)
		return ERR_UNAVAILABLE;
	struct timespec at = clock_mono_after(timeout_ms);
	pthread_mutex_lock(&p->lock);
	uint64_t number = ++p->requested;
	p->waiting++;
	task_wake(&p->task);
	while (!p->is_cancelled && p->caught_up < number && cond_wait_until(&p->caught, &p->lock, &at))
		;
	int r = p->caught_up >= number ? 0 : ERR_UNAVAILABLE;
	if (--p->waiting == 0)
		pthread_cond_broadcast(&p->caught); /* pairs with waiters_leave */
	pthread_mutex_unlock(&p->lock);
	return r;
}

void queue_consumer_cancel_waits(struct queue_consumer *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->is_cancelled = true;
	pthread_cond_broadcast(&p->caught);
	pthread_mutex_unlock(&p->lock);
}

static void waiters_leave(struct queue_consumer *p)
{
	pthread_mutex_lock(&p->lock);
	while (p->waiting > 0)
		pthread_cond_wait(&p->caught, &p->lock);
	pthread_mutex_unlock(&p->lock);
}

/* Rounds */

static int batch_gather(struct queue_consumer *p)
{
	const struct queue_consumer_config *c = &p->config;
	uint64_t requested = last_request(p);
	int r = c->queue->ops->refresh(c->queue);
	/* Requests made while an end is marked wait for the next one: an end that moves might never be
	 * reached. */
	if (r == 0 && p->marked <= p->caught_up && requested != p->marked) {
		c->queue->ops->mark_end(c->queue);
		pthread_mutex_lock(&p->lock);
		p->marked = requested;
		pthread_mutex_unlock(&p->lock);
	}
	c->handler->begin(c->ctx);
	while (r == 0 && !c->handler->is_full(c->ctx)) {
		struct queue_event ev;
		int got = c->queue->ops->next(c->queue, &ev);
		if (got <= 0)
			return got;
		r = c->handler->add(c->ctx, c->queue, &ev);
		if (r < 0)
			c->queue->ops->put_back(c->queue);
	}
	return r == ERR_LIMIT ? 0 : r;
}

static void set_commit_since(struct queue_consumer *p, int64_t since_ms)
{
	pthread_mutex_lock(&p->lock);
	p->commit_since_ms = since_ms;
	pthread_mutex_unlock(&p->lock);
}

/* Retries until it succeeds or the task is stopped. 0, or why nothing was committed. */
static int batch_commit(struct queue_consumer *p, const struct advance *advances, size_t count)
{
	const struct queue_consumer_config *c = &p->config;
	for (;;) {
		set_commit_since(p, clock_mono_ms());
		int r = c->handler->commit(c->ctx, advances, count);
		set_commit_since(p, 0);
		set_trouble(p, c->refuses, r == ERR_UNCERTAIN ? 0 : r);
		if (r == 0 || r == ERR_UNCERTAIN)
			return r;
		if (task_sleep(&p->task, RETRY_MS))
			return r;
	}
}

static int round_failed(struct queue_consumer *p, int r)
{
	p->config.queue->ops->rewind(p->config.queue);
	return r == ERR_UNCERTAIN ? 1 : r;
}

/* One round. >0: there may be more events; 0: caught up; <0: it failed. */
static int round_run(struct queue_consumer *p)
{
	const struct queue_consumer_config *c = &p->config;
	struct queue *q = c->queue;
	int r = batch_gather(p);
	if (r < 0) {
		set_trouble(p, "cannot read events", r == ERR_UNCERTAIN ? 0 : r);
		return round_failed(p, r);
	}
	const struct advance *advances;
	size_t count = q->ops->advances(q, &advances);
	bool was_full = c->handler->is_full(c->ctx), behind = q->ops->is_behind(q);
	bool is_idle = c->idle_ms && clock_mono_ms() - p->committed_ms >= (int64_t)c->idle_ms;
	if (count > 0 || is_idle) {
		failpoint("queue-gathered");
		r = batch_commit(p, advances, count);
		failpoint("queue-delivered");
		if (r == 0)
			r = q->ops->commit(q);
		if (r < 0)
			return round_failed(p, r);
		failpoint("queue-committed");
		p->committed_ms = clock_mono_ms();
	}
	struct err why;
	r = q->ops->trouble(q, &why);
	set_trouble(p, why.text, r);
	return r < 0 && !was_full ? r : behind;
}

static int64_t consumer_run(struct task *t)
{
	struct queue_consumer *p = container_of(t, struct queue_consumer, task);
	const struct queue_consumer_config *c = &p->config;
	int r = round_run(p);
	if (p->marked != p->caught_up && c->queue->ops->end_is_reached(c->queue)) {
		pthread_mutex_lock(&p->lock);
		p->caught_up = p->marked;
		pthread_cond_broadcast(&p->caught);
		pthread_mutex_unlock(&p->lock);
	}
	if (c->handler->maintain)
		c->handler->maintain(c->ctx, r == 0);
	if (c->queue->ops->retention)
		c->queue->ops->retention(c->queue);
	if (r < 0) /* a request to catch up does not shorten it */
		task_sleep(t, RETRY_MS);
	return r == 0 && last_request(p) == p->marked ? (int64_t)c->interval_ms : 0;
}

static void consumer_end(struct task *t)
{
	struct queue_consumer *p = container_of(t, struct queue_consumer, task);
	int64_t until_ms = clock_mono_ms() + LAST_READ_MS;
	while (clock_mono_ms() < until_ms && round_run(p) > 0)
		;
	p->config.handler->finish(p->config.ctx);
}

/* Starting and stopping */

int queue_consumer_start(const struct queue_consumer_config *config, struct queue_consumer **ret,
                         struct err *e)
{
	struct queue_consumer *p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	p->config = *config;
	p->committed_ms = clock_mono_ms();
	pthread_mutex_init(&p->lock, NULL);
	cond_init_mono(&p->caught);
	const struct task_config task = {
	    .name = config->name, .run = consumer_run, .end = consumer_end, .nice = NICE};
	int r = task_start(&p->task, &task, e);
	if (r < 0) {
		queue_consumer_stop(p);
		return r;
	}
	*ret = p;
	return 0;
}

void queue_consumer_ask_stop(struct queue_consumer *p)
{
	queue_consumer_cancel_waits(p);
	task_ask_stop(&p->task);
}

bool queue_consumer_wait_stop(struct queue_consumer *p, uint64_t timeout_ms)
{
	return task_wait_end(&p->task, timeout_ms);
}

void queue_consumer_stop(struct queue_consumer *p)
{
	if (!p)
		return;
	queue_consumer_ask_stop(p);
	task_stop(&p->task);
	waiters_leave(p);
	pthread_cond_destroy(&p->caught);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
