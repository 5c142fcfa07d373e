#include "os/clock.h"

#include "os/sys.h"

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now = {0};
	int r = os_sys.clock_gettime(clock, &now);
	ASSERT(r == 0); /* it only fails for a clock that does not exist */
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_mono_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

int64_t clock_thread_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t clock_mono_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

int64_t clock_real_ms(void)
{
	return clock_ns(CLOCK_REALTIME) / 1000000;
}

struct timespec clock_mono_after(uint64_t ms)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at); /* the real one: a test's clock does not wake sleepers */
	int64_t ns = at.tv_nsec + (int64_t)(ms % 1000) * 1000000;
	at.tv_sec += (time_t)(ms / 1000) + ns / 1000000000;
	at.tv_nsec = ns % 1000000000;
	return at;
}
