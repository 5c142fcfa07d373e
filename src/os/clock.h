/* The two clocks. Deadlines are measured on the monotonic one, records carry the real one. */
#pragma once

#include "base/def.h"

#include <time.h>

int64_t clock_mono_ms(void);
int64_t clock_real_ms(void);
int64_t clock_mono_ns(void);
int64_t clock_thread_ns(void); /* CPU time of this thread: what it took, however busy the machine is */

/* So much later on the monotonic clock, as pthread_cond_timedwait wants it. */
struct timespec clock_mono_after(uint64_t ms);
