/* The two clocks. Deadlines are measured on the monotonic one, records carry the real one. */
#pragma once

#include "base/def.h"

int64_t clock_mono_ms(void);
int64_t clock_real_ms(void);
int64_t clock_mono_ns(void);
