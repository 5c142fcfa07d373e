#include "os/thread.h"

#include "os/clock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	NAME_BYTES = 16, /* the kernel's own limit, with the NUL */
	PROBE_NS = 50 * 1000,
	ROOM_FACTOR = 4,
};

struct start {
	void *(*run)(void *);
	void *arg;
	char name[NAME_BYTES];
};

/* The thread names itself: its creator could not do so safely once the thread may have ended. */
static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;
	free(arg);
	pthread_setname_np(pthread_self(), start.name);
	return start.run(start.arg);
}

int thread_start(pthread_t *ret, const char *name, void *(*run)(void *), void *arg, struct err *e)
{
	ASSERT(strlen(name) < NAME_BYTES);
	struct start *start = malloc(sizeof(*start));
	if (!start)
		return err_set(e, ERR_NOMEM, "cannot start the thread %s: memory ran out", name);
	*start = (struct start){.run = run, .arg = arg};
	snprintf(start->name, sizeof(start->name), "%s", name);

	/* A new thread inherits the mask, so no signal can reach it even before its first instruction. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_t thread;
	int error = pthread_create(&thread, NULL, thread_main, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		free(start);
		return err_set(e, ERR_UNAVAILABLE,
		               "cannot start the thread %s: %s; raise the limit on processes (ulimit -u)",
		               name, strerrordesc_np(error));
	}
	*ret = thread;
	return 0;
}

void thread_step_back(int nice)
{
	/* On Linux a priority belongs to a thread. Where it is not allowed, all stay equal. */
	setpriority(PRIO_PROCESS, (id_t)gettid(), nice);
}

void thread_only_when_idle(void)
{
	const struct sched_param none = {0};
	if (sched_setscheduler(0, SCHED_IDLE, &none) != 0)
		thread_step_back(19);
}

/* Not by os_sys: with a clock that a test stopped, the probe would never end. */
static int64_t cpu_used_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

bool thread_has_room(void)
{
	int64_t began_ns = clock_mono_ns(), used_ns = cpu_used_ns(), now_used_ns;
	do {
		now_used_ns = cpu_used_ns();
	} while (now_used_ns - used_ns < PROBE_NS);
	return clock_mono_ns() - began_ns < ROOM_FACTOR * (now_used_ns - used_ns);
}

void cond_init_mono(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, const struct timespec *at)
{
	return pthread_cond_timedwait(c, lock, at) != ETIMEDOUT;
}
