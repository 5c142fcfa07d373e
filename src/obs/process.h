/* The standard process_* metrics and curt_build_info. */
#pragma once

#include "obs/metrics.h"

struct process_stats {
	uint64_t build; /* 1 */
	uint64_t cpu_ns, start_ns;
	uint64_t resident_bytes, virtual_bytes;
	uint64_t open_fds, max_fds, threads;
};

enum { PROCESS_METRICS = 8 };
extern const struct metric process_metrics[PROCESS_METRICS];

/* What the system does not say is 0. Any thread. */
struct process_stats process_read_stats(void);
