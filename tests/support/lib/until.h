/* Waiting for what comes in its own time: looks again and again, and fails the test when that was in vain. */
#pragma once

#include "base/def.h"

#include <time.h>

enum { UNTIL_MS = 30000 };

/* By the system's own clock, which goes on where a test has stopped ours. */
static inline int64_t until_now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static inline void until_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

#define UNTIL(condition)                                                         \
	do {                                                                     \
		int64_t end_ms_ = until_now_ms() + UNTIL_MS;                     \
		while (!(condition)) {                                           \
			if (until_now_ms() > end_ms_)                            \
				fail_msg("waited in vain until %s", #condition); \
			until_pause();                                           \
		}                                                                \
	} while (0)
