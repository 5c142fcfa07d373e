#include "obs/process.h"

#include "os/clock.h"
#include "os/file.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef CURT_COMMIT
#define CURT_COMMIT "" /* the build does not know */
#endif

#define ROW(field, name, type, labels, help, worry)                                    \
	{                                                                              \
		name, type, labels, help, worry, offsetof(struct process_stats, field) \
	}

const struct metric process_metrics[PROCESS_METRICS] = {
    ROW(build, "curt_build_info", "gauge", "version=\"" CURT_VERSION "\",commit=\"" CURT_COMMIT "\"",
        "Always 1; the labels say which build runs", ""),
    ROW(cpu_ns, "process_cpu_seconds_total", "counter", "", "CPU time, user and system",
        "Its rate nears the number of cores"),
    ROW(resident_bytes, "process_resident_memory_bytes", "gauge", "", "Resident memory", ""),
    ROW(virtual_bytes, "process_virtual_memory_bytes", "gauge", "", "Virtual memory", ""),
    ROW(open_fds, "process_open_fds", "gauge", "", "Open file descriptors", "It nears `process_max_fds`"),
    ROW(max_fds, "process_max_fds", "gauge", "", "Most file descriptors that may be open", ""),
    ROW(start_ns, "process_start_time_seconds", "gauge", "", "Start of the process, in Unix time",
        "It changes: the process was restarted"),
    ROW(threads, "process_threads", "gauge", "", "Threads", ""),
};

/* Since Linux 6.2 the folder's size is their number. */
static uint64_t count_open_fds(void)
{
	struct stat st;
	if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
		return (uint64_t)st.st_size;
	DIR *dir = opendir("/proc/self/fd");
	if (!dir)
		return 0;
	uint64_t n = 0;
	for (const struct dirent *entry; (entry = readdir(dir));)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n - 1; /* without the one that `dir` has */
}

/* The system gives it in time since boot. The first result stays: it must not move when the clock is set. */
static uint64_t start_time_ns(uint64_t since_boot_ns)
{
	static _Atomic uint64_t first;
	struct timespec up;
	clock_gettime(CLOCK_BOOTTIME, &up);
	uint64_t up_ns = (uint64_t)up.tv_sec * 1000000000 + (uint64_t)up.tv_nsec, none = 0;
	uint64_t start_ns = (uint64_t)clock_real_ms() * 1000000 - (up_ns - since_boot_ns);
	return atomic_compare_exchange_strong(&first, &none, start_ns) ? start_ns : none;
}

struct process_stats process_read_stats(void)
{
	struct process_stats s = {.build = 1, .open_fds = count_open_fds()};
	struct timespec cpu; /* in /proc it is in ticks of 10 ms */
	struct rlimit limit;
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0)
		s.cpu_ns = (uint64_t)cpu.tv_sec * 1000000000 + (uint64_t)cpu.tv_nsec;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		s.max_fds = limit.rlim_cur;

	/* The second field is a name, which may hold anything; the last parenthesis ends it. */
	struct buf CLEANUP(buf_release) text = {0};
	if (file_read("/proc/self/stat", 4096, &text, NULL) < 0)
		return s;
	buf_char(&text, '\0');
	const char *fields = text.failed ? NULL : strrchr(text.data, ')');
	unsigned long long threads, start, virtual, resident;
	if (!fields || sscanf(fields,
	                      ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %llu "
	                      "%*d %llu %llu %llu",
	                      &threads, &start, &virtual, &resident) != 4)
		return s;
	const uint64_t tick_ns = 1000000000 / (uint64_t)sysconf(_SC_CLK_TCK);
	s.threads = threads;
	s.start_ns = start_time_ns(start * tick_ns);
	s.virtual_bytes = virtual;
	s.resident_bytes = resident * (uint64_t)sysconf(_SC_PAGESIZE);
	return s;
}
