#include "os/task.h"

#include "os/clock.h"
#include "os/thread.h"

#include <errno.h>

#define SECOND_NS INT64_C(1000000000)

/*
 * Waking takes no lock, so it must not meet a thread that falls asleep. A waker sets `woken`, then posts
 * `wake`. The thread looks at `woken`, then waits for a post; so either it sees the flag, or it finds the
 * post. A post without a flag costs one more look.
 */

/* After the delay. By the real clock: a test's clock does not wake sleepers. */
static int64_t due_after(int64_t delay_ms)
{
	struct timespec at = clock_mono_after((uint64_t)MAX(delay_ms, 0));
	return delay_ms < 0 ? INT64_MAX : at.tv_sec * SECOND_NS + at.tv_nsec;
}

static void *task_thread(void *arg)
{
	struct task *t = arg;
	if (t->config.nice >= TASK_ONLY_WHEN_IDLE)
		thread_only_when_idle();
	else if (t->config.nice > 0)
		thread_step_back(t->config.nice);
	int64_t due_ns = due_after(t->config.first_ms); /* INT64_MAX: when it is woken */
	while (!task_is_stopping(t)) {
		const struct timespec at = {.tv_sec = due_ns / SECOND_NS, .tv_nsec = due_ns % SECOND_NS};
		if (due_ns <= due_after(0) || atomic_load(&t->woken)) {
			/* pairs with task_wake; before the run, so that it sees all */
			atomic_exchange(&t->woken, false);
			due_ns = due_after(t->config.run(t));
		} else if (due_ns == INT64_MAX) {
			sem_wait(&t->wake);
		} else {
			sem_clockwait(&t->wake, CLOCK_MONOTONIC, &at);
		}
	}
	if (t->config.end)
		t->config.end(t);
	pthread_mutex_lock(&t->lock);
	t->ended = true;
	pthread_cond_broadcast(&t->changed);
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

int task_start(struct task *t, const struct task_config *config, struct err *e)
{
	*t = (struct task){.config = *config, .started = true};
	sem_init(&t->wake, 0, 0);
	pthread_mutex_init(&t->lock, NULL);
	cond_init_mono(&t->changed);
	int r = thread_start(&t->thread, config->name, task_thread, t, e);
	if (r < 0)
		t->started = false;
	return r;
}

void task_wake(struct task *t)
{
	if (!atomic_exchange(&t->woken, true) && t->started)
		sem_post(&t->wake);
}

void task_ask_stop(struct task *t)
{
	if (t->started && !atomic_exchange(&t->stopping, true))
		sem_post(&t->wake);
}

bool task_wait_end(struct task *t, uint64_t timeout_ms)
{
	if (!t->started)
		return true;
	struct timespec at = clock_mono_after(timeout_ms);
	pthread_mutex_lock(&t->lock);
	while (!t->ended && cond_wait_until(&t->changed, &t->lock, &at))
		;
	bool ended = t->ended;
	pthread_mutex_unlock(&t->lock);
	return ended;
}

/* Several may stop a task: one of them joins its thread, and the others wait for that. */
void task_stop(struct task *t)
{
	if (!t->started)
		return;
	task_ask_stop(t);
	pthread_mutex_lock(&t->lock);
	if (!t->joining) {
		t->joining = true;
		pthread_mutex_unlock(&t->lock);
		pthread_join(t->thread, NULL);
		pthread_mutex_lock(&t->lock);
		t->joined = true;
		pthread_cond_broadcast(&t->changed);
	}
	while (!t->joined)
		pthread_cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

bool task_sleep(struct task *t, uint64_t ms)
{
	struct timespec at = clock_mono_after(ms);
	/* A post may be of a wake-up; its flag stays, and the thread looks at it after this run. */
	while (!atomic_load(&t->stopping) &&
	       (sem_clockwait(&t->wake, CLOCK_MONOTONIC, &at) == 0 || errno == EINTR))
		;
	return atomic_load(&t->stopping);
}
