/*
 * For the thread sanitizer, which knows POSIX threads only: C11's threads, which librdkafka uses, made of
 * those. Linked into every program of that variant, in front of the C library's. Without it the sanitizer
 * neither knows librdkafka's threads, and crashes in them, nor its locks, and takes what is handed over for a
 * race.
 */
#include <errno.h>
#include <pthread.h>
#include <sanitizer/tsan_interface.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

/* The C library's own are the same, under other names. */
_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) && sizeof(cnd_t) == sizeof(pthread_cond_t), "same");
_Static_assert(sizeof(thrd_t) == sizeof(pthread_t) && sizeof(once_flag) == sizeof(pthread_once_t), "same");

struct begin {
	thrd_start_t run;
	void *arg;
};

static void *begin(void *arg)
{
	struct begin b = *(struct begin *)arg;
	free(arg);
	return (void *)(intptr_t)b.run(b.arg);
}

static int outcome(int r)
{
	switch (r) {
	case 0: return thrd_success;
	case EBUSY: return thrd_busy;
	case ENOMEM: return thrd_nomem;
	case ETIMEDOUT: return thrd_timedout;
	default: return thrd_error;
	}
}

int thrd_create(thrd_t *ret, thrd_start_t run, void *arg)
{
	struct begin *b = malloc(sizeof(*b));
	if (!b)
		return thrd_nomem;
	*b = (struct begin){run, arg};
	int r = pthread_create(ret, NULL, begin, b);
	if (r != 0)
		free(b);
	return outcome(r);
}

int thrd_join(thrd_t thread, int *ret)
{
	void *value;
	int r = pthread_join(thread, &value);
	if (r == 0 && ret)
		*ret = (int)(intptr_t)value;
	return outcome(r);
}

/* Who uses a lock knows that it was made: one thread of librdkafka tells another by atomics that the
 * sanitizer cannot see. It is declared here, at a place within the lock that it does not use itself. */
static void was_made(void *lock)
{
	__tsan_release((char *)lock + 8);
}

static void knows(void *lock)
{
	__tsan_acquire((char *)lock + 8);
}

int mtx_init(mtx_t *m, int type)
{
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	if (type & mtx_recursive)
		pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	int r = pthread_mutex_init((pthread_mutex_t *)m, &attr);
	pthread_mutexattr_destroy(&attr);
	was_made(m);
	return outcome(r);
}

void mtx_destroy(mtx_t *m)
{
	pthread_mutex_destroy((pthread_mutex_t *)m);
}

int mtx_lock(mtx_t *m)
{
	knows(m);
	return outcome(pthread_mutex_lock((pthread_mutex_t *)m));
}

int mtx_unlock(mtx_t *m)
{
	return outcome(pthread_mutex_unlock((pthread_mutex_t *)m));
}

int cnd_init(cnd_t *c)
{
	int r = pthread_cond_init((pthread_cond_t *)c, NULL);
	was_made(c);
	return outcome(r);
}

void cnd_destroy(cnd_t *c)
{
	pthread_cond_destroy((pthread_cond_t *)c);
}

int cnd_signal(cnd_t *c)
{
	knows(c);
	return outcome(pthread_cond_signal((pthread_cond_t *)c));
}

int cnd_broadcast(cnd_t *c)
{
	knows(c);
	return outcome(pthread_cond_broadcast((pthread_cond_t *)c));
}

int cnd_wait(cnd_t *c, mtx_t *m)
{
	knows(c);
	return outcome(pthread_cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m));
}

int cnd_timedwait(cnd_t *restrict c, mtx_t *restrict m, const struct timespec *restrict until)
{
	knows(c);
	return outcome(pthread_cond_timedwait((pthread_cond_t *)c, (pthread_mutex_t *)m, until));
}

void call_once(once_flag *flag, void (*run)(void))
{
	pthread_once((pthread_once_t *)flag, run);
}

/* What librdkafka does within itself, by atomics that the sanitizer cannot see, is its own business. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "called_from_lib:librdkafka.so.1\n";
}
