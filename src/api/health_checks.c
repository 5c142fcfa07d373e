#include "api/health_checks.h"

#include "os/clock.h"
#include "os/task.h"
#include "os/thread.h"

#include <stdlib.h>

struct check_task {
	struct health_checks *checks;
	struct health_check check;
	struct task task;
	/* Under the lock. */
	bool is_running;    /* or about to be */
	int64_t started_ms; /* monotonic */
	struct health_result result;
};

struct health_checks {
	pthread_mutex_t lock;
	pthread_cond_t finished;
	size_t count;
	struct check_task tasks[];
};

static int64_t check_run(struct task *t)
{
	struct check_task *a = container_of(t, struct check_task, task);
	struct health_result result = {0};
	result.code = a->check.run(a->check.ctx, &result.why);
	pthread_mutex_lock(&a->checks->lock);
	a->result = result;
	a->is_running = false;
	pthread_cond_broadcast(&a->checks->finished);
	pthread_mutex_unlock(&a->checks->lock);
	return TASK_ON_WAKE;
}

/* How long a caller that came at `began_ms` still waits. */
static int64_t left_ms_locked(const struct health_checks *c, int64_t began_ms)
{
	int64_t end_ms = 0;
	for (size_t i = 0; i < c->count; i++) {
		if (c->tasks[i].is_running)
			end_ms = MAX(end_ms, began_ms + (int64_t)c->tasks[i].check.timeout_ms);
	}
	return end_ms - clock_mono_ms();
}

void health_checks_run(struct health_checks *c, struct health_result *ret)
{
	int64_t began_ms = clock_mono_ms();
	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < c->count; i++) {
		struct check_task *a = &c->tasks[i];
		if (a->is_running)
			continue;
		a->started_ms = began_ms;
		a->is_running = true;
		task_wake(&a->task);
	}
	for (int64_t left_ms; (left_ms = left_ms_locked(c, began_ms)) > 0;) {
		struct timespec at = clock_mono_after((uint64_t)left_ms);
		cond_wait_until(&c->finished, &c->lock, &at);
	}
	for (size_t i = 0; i < c->count; i++) {
		const struct check_task *a = &c->tasks[i];
		ret[i] = a->result;
		if (a->is_running)
			ret[i].code = err_set(&ret[i].why, ERR_UNAVAILABLE, "no answer for %.1f s",
			                      (double)(clock_mono_ms() - a->started_ms) / 1000);
	}
	pthread_mutex_unlock(&c->lock);
}

int health_checks_new(const struct health_check *list, size_t n, struct health_checks **ret, struct err *e)
{
	ASSERT(n <= HEALTH_CHECKS_MAX);
	struct health_checks *c = calloc(1, sizeof(*c) + n * sizeof(struct check_task));
	if (!c)
		return err_set(e, ERR_NOMEM, "out of memory for the health checks");
	pthread_mutex_init(&c->lock, NULL);
	cond_init_mono(&c->finished);
	c->count = n;
	int r = 0;
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct check_task *a = &c->tasks[i];
		a->checks = c;
		a->check = list[i];
		const struct task_config config = {
		    .name = list[i].name, .run = check_run, .first_ms = TASK_ON_WAKE};
		r = task_start(&a->task, &config, e);
	}
	if (r < 0) {
		health_checks_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void health_checks_free(struct health_checks *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->count; i++)
		task_stop(&c->tasks[i].task);
	pthread_cond_destroy(&c->finished);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
