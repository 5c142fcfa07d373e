#include "lib/test.h"
#include "os/task.h"
#include "os/thread.h"

#include <sched.h>

enum { LONG_MS = 3600 * 1000, STOPPERS = 8, WAKERS = 4, WAKES = 20000 };

/* A task that counts its runs, and stays in one of them while `gate` is closed. */
struct counted {
	struct task task;
	int64_t delay_ms;
	_Atomic unsigned runs, ends;
	_Atomic bool gate;   /* closed: a run waits */
	_Atomic bool inside; /* a run is under way */
	_Atomic bool sleeps; /* a run sleeps for long, and says whether it was told to stop */
	_Atomic bool was_stopped;
	char thread[16];
};

static int64_t count(struct task *t)
{
	struct counted *c = container_of(t, struct counted, task);
	pthread_getname_np(pthread_self(), c->thread, sizeof(c->thread));
	atomic_store(&c->inside, true);
	atomic_fetch_add(&c->runs, 1);
	if (atomic_load(&c->sleeps))
		atomic_store(&c->was_stopped, task_sleep(t, LONG_MS));
	while (atomic_load(&c->gate))
		until_pause();
	atomic_store(&c->inside, false);
	return c->delay_ms;
}

static void count_end(struct task *t)
{
	struct counted *c = container_of(t, struct counted, task);
	assert_false(atomic_load(&c->inside));
	assert_true(task_is_stopping(t));
	atomic_fetch_add(&c->ends, 1);
}

static void start(struct counted *c, int64_t first_ms)
{
	const struct task_config config = {
	    .name = "counted", .run = count, .end = count_end, .first_ms = first_ms};
	assert_int_equal(task_start(&c->task, &config, NULL), 0);
}

TEST(a_task_runs_again_after_the_delay_that_it_returns)
{
	struct counted c = {.delay_ms = 1};
	start(&c, 0);
	UNTIL(atomic_load(&c.runs) >= 3);
	task_stop(&c.task);
	assert_string_equal(c.thread, "counted");
}

TEST(a_task_on_demand_runs_when_it_is_woken_and_never_else)
{
	struct counted c = {.delay_ms = TASK_ON_WAKE}, other = {.delay_ms = 1};
	start(&c, TASK_ON_WAKE);
	start(&other, 0);
	for (unsigned i = 0; i < 3; i++) {
		unsigned turns = atomic_load(&other.runs);
		UNTIL(atomic_load(&other.runs) > turns + 2); /* time has passed */
		assert_int_equal(atomic_load(&c.runs), i);
		task_wake(&c.task);
		UNTIL(atomic_load(&c.runs) == i + 1);
	}
	task_stop(&c.task);
	task_stop(&other.task);
}

TEST(a_wake_up_comes_before_the_delay)
{
	struct counted c = {.delay_ms = LONG_MS};
	start(&c, LONG_MS);
	task_wake(&c.task);
	UNTIL(atomic_load(&c.runs) == 1);
	task_wake(&c.task);
	UNTIL(atomic_load(&c.runs) == 2);
	task_stop(&c.task);
}

TEST(a_wake_up_during_a_run_causes_another)
{
	struct counted c = {.delay_ms = TASK_ON_WAKE, .gate = true};
	start(&c, 0);
	UNTIL(atomic_load(&c.inside));
	task_wake(&c.task);
	task_wake(&c.task); /* shares the run with the one before */
	assert_int_equal(atomic_load(&c.runs), 1);
	atomic_store(&c.gate, false);
	UNTIL(atomic_load(&c.runs) == 2);
	task_stop(&c.task);
	assert_int_equal(atomic_load(&c.runs), 2);
}

/* What wakers hand over, and what the runs have taken of it. */
struct taken {
	struct task task;
	_Atomic unsigned given;
	_Atomic unsigned taken;
};

static int64_t take(struct task *t)
{
	struct taken *x = container_of(t, struct taken, task);
	atomic_fetch_add(&x->taken, atomic_exchange_explicit(&x->given, 0, memory_order_relaxed));
	return TASK_ON_WAKE;
}

static void *give(void *arg)
{
	struct taken *x = arg;
	for (unsigned i = 0; i < WAKES; i++) {
		atomic_fetch_add_explicit(&x->given, 1, memory_order_relaxed);
		task_wake(&x->task);
	}
	return NULL;
}

TEST(no_wake_up_of_many_threads_is_lost)
{
	struct taken x = {0};
	pthread_t threads[WAKERS];
	const struct task_config config = {.name = "taker", .run = take, .first_ms = TASK_ON_WAKE};
	assert_int_equal(task_start(&x.task, &config, NULL), 0);
	for (size_t i = 0; i < WAKERS; i++)
		assert_int_equal(thread_start(&threads[i], "waker", give, &x, NULL), 0);
	for (size_t i = 0; i < WAKERS; i++)
		pthread_join(threads[i], NULL);
	UNTIL(atomic_load(&x.taken) == WAKERS * WAKES);
	task_stop(&x.task);
}

TEST(stopping_waits_for_the_run_under_way)
{
	struct counted c = {.delay_ms = 0, .gate = true};
	start(&c, 0);
	UNTIL(atomic_load(&c.inside));
	task_ask_stop(&c.task);
	assert_true(task_is_stopping(&c.task));
	assert_false(task_wait_end(&c.task, 1));
	assert_int_equal(atomic_load(&c.ends), 0);
	atomic_store(&c.gate, false);
	assert_true(task_wait_end(&c.task, LONG_MS));
	assert_int_equal(atomic_load(&c.runs), 1);
	assert_int_equal(atomic_load(&c.ends), 1);
	task_stop(&c.task);
}

TEST(stopping_ends_the_sleep_of_a_run)
{
	struct counted c = {.delay_ms = LONG_MS, .sleeps = true};
	start(&c, 0);
	UNTIL(atomic_load(&c.inside));
	task_wake(&c.task); /* does not end the sleep */
	task_stop(&c.task);
	assert_true(atomic_load(&c.was_stopped));
	assert_int_equal(atomic_load(&c.runs), 1);
}

TEST(stopping_ends_the_delay_between_two_runs)
{
	struct counted c = {.delay_ms = LONG_MS};
	start(&c, 0);
	UNTIL(atomic_load(&c.runs) == 1);
	task_stop(&c.task);
	assert_int_equal(atomic_load(&c.runs), 1);
	assert_int_equal(atomic_load(&c.ends), 1);
}

TEST(a_task_that_is_stopped_before_its_first_run_only_ends)
{
	struct counted c = {.delay_ms = 0};
	start(&c, LONG_MS);
	task_stop(&c.task);
	task_stop(&c.task); /* again is fine */
	task_wake(&c.task); /* and this does nothing */
	assert_int_equal(atomic_load(&c.runs), 0);
	assert_int_equal(atomic_load(&c.ends), 1);
}

TEST(a_task_that_was_never_started_can_be_stopped)
{
	struct counted c = {0};
	task_stop(&c.task);
	assert_true(task_wait_end(&c.task, 0));
}

TEST(a_task_may_be_started_again_after_its_stop)
{
	struct counted c = {.delay_ms = LONG_MS};
	for (unsigned i = 1; i <= 3; i++) {
		start(&c, 0);
		UNTIL(atomic_load(&c.runs) == i);
		task_stop(&c.task);
	}
	assert_int_equal(atomic_load(&c.ends), 3);
}

static void *stop_it(void *arg)
{
	struct counted *c = arg;
	task_stop(&c->task);
	assert_false(atomic_load(&c->inside));
	assert_int_equal(atomic_load(&c->ends), 1);
	return NULL;
}

TEST(many_threads_may_stop_a_task)
{
	struct counted c = {.delay_ms = 0, .gate = true};
	pthread_t threads[STOPPERS];
	start(&c, 0);
	UNTIL(atomic_load(&c.inside));
	for (size_t i = 0; i < STOPPERS; i++)
		assert_int_equal(thread_start(&threads[i], "stopper", stop_it, &c, NULL), 0);
	UNTIL(task_is_stopping(&c.task));
	atomic_store(&c.gate, false);
	for (size_t i = 0; i < STOPPERS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&c.runs), 1);
}

TEST(a_blocked_task_does_not_hold_up_another)
{
	struct counted blocked = {.delay_ms = 0, .gate = true}, free = {.delay_ms = 1};
	start(&blocked, 0);
	UNTIL(atomic_load(&blocked.inside));
	start(&free, 0);
	UNTIL(atomic_load(&free.runs) >= 5);
	task_stop(&free.task);
	assert_int_equal(atomic_load(&blocked.runs), 1);
	atomic_store(&blocked.gate, false);
	task_stop(&blocked.task);
}

/* Runs that sleep until the test has woken the task. */
struct napper {
	struct task task;
	_Atomic unsigned runs;
	_Atomic bool is_woken;
};

static int64_t nap(struct task *t)
{
	struct napper *n = container_of(t, struct napper, task);
	atomic_fetch_add(&n->runs, 1);
	while (!atomic_load(&n->is_woken))
		task_sleep(t, 1);
	return TASK_ON_WAKE;
}

TEST(a_wake_up_that_comes_while_a_run_sleeps_is_not_lost)
{
	struct napper n = {0};
	const struct task_config config = {.name = "napper", .run = nap};
	assert_int_equal(task_start(&n.task, &config, NULL), 0);
	UNTIL(atomic_load(&n.runs) == 1);
	task_wake(&n.task);
	atomic_store(&n.is_woken, true);
	UNTIL(atomic_load(&n.runs) == 2);
	task_stop(&n.task);
}

struct policy {
	struct task task;
	_Atomic int policy;
};

static int64_t look_at_policy(struct task *t)
{
	atomic_store(&container_of(t, struct policy, task)->policy, sched_getscheduler(0));
	return TASK_ON_WAKE;
}

TEST(a_task_may_run_in_idle_time_only)
{
	struct policy p = {.policy = -1};
	const struct task_config config = {
	    .name = "idle", .run = look_at_policy, .nice = TASK_ONLY_WHEN_IDLE};
	assert_int_equal(task_start(&p.task, &config, NULL), 0);
	UNTIL(atomic_load(&p.policy) != -1);
	task_stop(&p.task);
	assert_int_equal(atomic_load(&p.policy), SCHED_IDLE);
	assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
}

TEST_MAIN()
