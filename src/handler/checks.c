#include "handler/checks.h"

#include "os/clock.h"
#include "os/task.h"
#include "os/thread.h"

#include <stdlib.h>

struct waiter {
	struct checks *checks;
	struct check check;
	struct task task;
	/* Under the lock. */
	bool asked;       /* the task has something to do, or does it */
	int64_t asked_ms; /* since when; monotonic */
	struct check_result result;
};

struct checks {
	pthread_mutex_t lock;
	pthread_cond_t answered;
	size_t count;
	struct waiter waiters[];
};

static int64_t check_run(struct task *t)
{
	struct waiter *a = container_of(t, struct waiter, task);
	struct check_result result = {0};
	result.code = a->check.ask(a->check.ctx, &result.why);
	pthread_mutex_lock(&a->checks->lock);
	a->result = result;
	a->asked = false;
	pthread_cond_broadcast(&a->checks->answered);
	pthread_mutex_unlock(&a->checks->lock);
	return TASK_ON_WAKE;
}

/* How long an answer is still waited for by somebody who came at `began_ms`. */
static int64_t left_ms_locked(const struct checks *c, int64_t began_ms)
{
	int64_t end_ms = 0;
	for (size_t i = 0; i < c->count; i++) {
		if (c->waiters[i].asked)
			end_ms = MAX(end_ms, began_ms + (int64_t)c->waiters[i].check.patience_ms);
	}
	return end_ms - clock_mono_ms();
}

static void settle_locked(const struct waiter *a, struct check_result *ret)
{
	if (!a->asked) {
		*ret = a->result;
		return;
	}
	ret->code = err_set(&ret->why, ERR_UNAVAILABLE, "no answer for %.1f s",
	                    (double)(clock_mono_ms() - a->asked_ms) / 1000);
}

void checks_ask(struct checks *c, struct check_result *ret)
{
	int64_t began_ms = clock_mono_ms();
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < c->count; i++) {
		struct waiter *a = &c->waiters[i];
		if (a->asked)
			continue;
		a->asked_ms = began_ms;
		a->asked = true;
		task_wake(&a->task);
	}
	for (int64_t left_ms; (left_ms = left_ms_locked(c, began_ms)) > 0;) {
		struct timespec at = clock_mono_after((uint64_t)left_ms);
		cond_wait_until(&c->answered, &c->lock, &at);
	}
	for (size_t i = 0; i < c->count; i++)
		settle_locked(&c->waiters[i], &ret[i]);
	pthread_mutex_unlock(&c->lock);
}

int checks_new(const struct check *list, size_t n, struct checks **ret, struct err *e)
{
	ASSERT(n <= CHECKS_MAX);
	struct checks *c = calloc(1, sizeof(*c) + n * sizeof(struct waiter));
	if (!c)
		return err_set(e, ERR_NOMEM, "out of memory");
	pthread_mutex_init(&c->lock, NULL);
	cond_init_mono(&c->answered);
	c->count = n;
	int r = 0;
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct waiter *a = &c->waiters[i];
		a->checks = c;
		a->check = list[i];
		const struct task_config config = {
		    .name = list[i].name, .run = check_run, .first_ms = TASK_ON_WAKE};
		r = task_start(&a->task, &config, e);
	}
	if (r < 0) {
		checks_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void checks_free(struct checks *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->count; i++)
		task_stop(&c->waiters[i].task);
	pthread_cond_destroy(&c->answered);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
