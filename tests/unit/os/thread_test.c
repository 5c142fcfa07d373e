#include "lib/test.h"
#include "os/thread.h"

#include <sched.h>
#include <signal.h>

struct seen {
	char name[16];
	sigset_t mask;
};

static void *look(void *arg)
{
	struct seen *seen = arg;
	pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
	pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
	return seen;
}

TEST(a_thread_has_its_name_and_argument_and_returns_its_result)
{
	struct seen seen = {.name = ""};
	struct err e;
	pthread_t thread;
	void *result = NULL;
	assert_int_equal(thread_start(&thread, "fifteen letters", look, &seen, &e), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, &seen);
	assert_string_equal(seen.name, "fifteen letters");
}

TEST(signals_are_blocked_in_the_thread_and_as_before_in_its_creator)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR1, SIGCHLD, SIGALRM};
	struct seen seen = {.name = ""};
	struct err e;
	pthread_t thread;
	sigset_t before, after;
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(thread_start(&thread, "t", look, &seen, &e), 0);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_int_equal(pthread_join(thread, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		assert_true(sigismember(&seen.mask, signals[i]));
		assert_int_equal(sigismember(&after, signals[i]), sigismember(&before, signals[i]));
		assert_false(sigismember(&after, signals[i]));
	}
}

static void *step_down(void *arg)
{
	int *policy = arg;
	thread_only_when_idle();
	*policy = sched_getscheduler(0);
	return NULL;
}

TEST(a_thread_may_run_in_idle_time_only_and_the_others_are_as_before)
{
	int policy = -1;
	struct err e;
	pthread_t thread;
	assert_int_equal(thread_start(&thread, "t", step_down, &policy, &e), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(policy, SCHED_IDLE);
	assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
}

TEST_MAIN()
