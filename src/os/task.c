#include "os/task.h"

#include "os/clock.h"
#include "os/thread.h"

#include <errno.h>

#define SECOND_NS INT64_C(1000000000)

/*
 * Waking takes no lock, so it must not meet a lane that falls asleep. A waker sets `woken`, then posts
 * `wake`. The lane looks at every `woken`, then waits for a post; so either it sees the flag, or it finds the
 * post. A post without a flag costs one more look.
 */

/* After the delay. By the real clock: a test's clock does not wake sleepers. */
static int64_t due_after(int64_t delay_ms)
{
	struct timespec at = clock_mono_after((uint64_t)MAX(delay_ms, 0));
	return delay_ms < 0 ? INT64_MAX : at.tv_sec * SECOND_NS + at.tv_nsec;
}

/* The first in turn that has something to do. NULL: none, until ret_until_ns at the latest. */
static struct task *next_locked(const struct lane *l, int64_t *ret_until_ns)
{
	int64_t now_ns = due_after(0);
	*ret_until_ns = INT64_MAX;
	for (struct list *i = l->tasks.next; i != &l->tasks; i = i->next) {
		struct task *t = container_of(i, struct task, link);
		if (t->due_ns <= now_ns || atomic_load(&t->woken) || task_is_stopping(t))
			return t;
		*ret_until_ns = MIN(*ret_until_ns, t->due_ns);
	}
	return NULL;
}

static void run_locked(struct lane *l, struct task *t)
{
	list_remove(&t->link);
	list_push(&l->tasks, &t->link);
	pthread_mutex_unlock(&l->lock);
	atomic_exchange(&t->woken, false); /* pairs with task_wake; before the run, so that it sees all */
	int64_t delay_ms = t->run(t);
	pthread_mutex_lock(&l->lock);
	t->due_ns = due_after(delay_ms);
}

static void end_locked(struct lane *l, struct task *t)
{
	pthread_mutex_unlock(&l->lock);
	if (t->end)
		t->end(t);
	pthread_mutex_lock(&l->lock);
	list_remove(&t->link);
	t->ended = true;
	l->stopping |= l == &t->own;
	pthread_cond_broadcast(&l->changed); /* pairs with task_wait_end: a shared lane's task may go now */
}

static void *lane_run(void *arg)
{
	struct lane *l = arg;
	if (l->nice >= TASK_ONLY_WHEN_IDLE)
		thread_only_when_idle();
	else if (l->nice > 0)
		thread_step_back(l->nice);
	pthread_mutex_lock(&l->lock);
	while (!l->stopping) {
		int64_t until_ns;
		struct task *t = next_locked(l, &until_ns);
		if (t && task_is_stopping(t)) {
			end_locked(l, t);
		} else if (t) {
			run_locked(l, t);
		} else {
			pthread_mutex_unlock(&l->lock);
			struct timespec at = {.tv_sec = until_ns / SECOND_NS,
			                      .tv_nsec = until_ns % SECOND_NS};
			sem_clockwait(&l->wake, CLOCK_MONOTONIC, &at);
			pthread_mutex_lock(&l->lock);
		}
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static void lane_init(struct lane *l, int nice)
{
	*l = (struct lane){.nice = nice};
	sem_init(&l->wake, 0, 0);
	pthread_mutex_init(&l->lock, NULL);
	cond_init_mono(&l->changed);
	list_init(&l->tasks);
}

int lane_start(struct lane *l, const char *name, int nice, struct err *e)
{
	lane_init(l, nice);
	int r = thread_start(&l->thread, name, lane_run, l, e);
	l->joined = r < 0;
	return r;
}

void lane_stop(struct lane *l)
{
	if (!l->tasks.next || l->joined)
		return;
	pthread_mutex_lock(&l->lock);
	ASSERT(list_empty(&l->tasks));
	l->stopping = true;
	pthread_mutex_unlock(&l->lock);
	sem_post(&l->wake);
	pthread_join(l->thread, NULL);
	l->joined = true;
}

int task_start(struct task *t, const struct task_config *config, struct err *e)
{
	*t = (struct task){.run = config->run, .end = config->end};
	t->due_ns = due_after(config->first_ms);
	if (config->lane) {
		struct lane *l = t->lane = config->lane;
		pthread_mutex_lock(&l->lock);
		list_push(&l->tasks, &t->link);
		pthread_mutex_unlock(&l->lock);
		sem_post(&l->wake);
		return 0;
	}
	t->lane = &t->own;
	lane_init(&t->own, config->nice);
	list_push(&t->own.tasks, &t->link);
	int r = thread_start(&t->own.thread, config->name, lane_run, &t->own, e);
	if (r < 0)
		t->lane = NULL;
	return r;
}

void task_wake(struct task *t)
{
	if (!atomic_exchange(&t->woken, true) && t->lane)
		sem_post(&t->lane->wake);
}

void task_ask_stop(struct task *t)
{
	if (t->lane && !atomic_exchange(&t->stopping, true))
		sem_post(&t->lane->wake);
}

bool task_wait_end(struct task *t, uint64_t timeout_ms)
{
	struct lane *l = t->lane;
	if (!l)
		return true;
	struct timespec at = clock_mono_after(timeout_ms);
	pthread_mutex_lock(&l->lock);
	while (!t->ended && cond_wait_until(&l->changed, &l->lock, &at))
		;
	bool ended = t->ended;
	pthread_mutex_unlock(&l->lock);
	return ended;
}

/* Several may stop a task: one of them joins its thread, and the others wait for that. */
void task_stop(struct task *t)
{
	struct lane *l = t->lane;
	if (!l)
		return;
	task_ask_stop(t);
	pthread_mutex_lock(&l->lock);
	while (!t->ended)
		pthread_cond_wait(&l->changed, &l->lock);
	if (l == &t->own && !l->joining) {
		l->joining = true;
		pthread_mutex_unlock(&l->lock);
		pthread_join(l->thread, NULL);
		pthread_mutex_lock(&l->lock);
		l->joined = true;
		pthread_cond_broadcast(&l->changed);
	}
	while (l == &t->own && !l->joined)
		pthread_cond_wait(&l->changed, &l->lock);
	pthread_mutex_unlock(&l->lock);
}

bool task_sleep(struct task *t, uint64_t ms)
{
	struct timespec at = clock_mono_after(ms);
	/* A post may be for another task of the lane; its flag stays, and the lane looks again after this. */
	while (!atomic_load(&t->stopping) &&
	       (sem_clockwait(&t->lane->wake, CLOCK_MONOTONIC, &at) == 0 || errno == EINTR))
		;
	return atomic_load(&t->stopping);
}
