#include "lib/os_fault.h"

#include <errno.h>
#include <stdatomic.h>

/* From the call number `from` to `to`, both included; `from` is UINT64_MAX when nothing is armed. */
struct window {
	_Atomic uint64_t from; /* stored last with release, loaded first with acquire: guards the rest */
	_Atomic uint64_t to;
	_Atomic uint64_t value; /* an errno or a number of bytes */
};

struct plan {
	_Atomic uint64_t calls;
	_Atomic uint64_t hits;
	struct window fail;
	struct window cut;
};

static struct plan plans[OS_CALLS];
static bool installed;

static _Atomic bool clock_stopped;
static _Atomic int64_t fake_real_ns;
static _Atomic int64_t fake_mono_ns;
static _Atomic unsigned clock_times; /* so much faster, since fast_since_ns; 0: it is not */
static _Atomic int64_t fast_since_ns;

static void window_arm(struct window *w, uint64_t from, uint64_t value, enum os_span span)
{
	atomic_store_explicit(&w->from, UINT64_MAX, memory_order_release);
	atomic_store_explicit(&w->value, value, memory_order_relaxed);
	atomic_store_explicit(&w->to, span == OS_ONCE ? from : UINT64_MAX - 1, memory_order_relaxed);
	atomic_store_explicit(&w->from, from, memory_order_release);
}

static bool window_holds(struct window *w, uint64_t number, uint64_t *ret_value)
{
	if (number < atomic_load_explicit(&w->from, memory_order_acquire) ||
	    number > atomic_load_explicit(&w->to, memory_order_relaxed))
		return false;
	*ret_value = atomic_load_explicit(&w->value, memory_order_relaxed);
	return true;
}

/* Counts a call. True when it must fail: errno is set. Otherwise `*len`, when given, may be cut. */
static bool struck(enum os_call call, size_t *len)
{
	struct plan *p = &plans[call];
	uint64_t number = atomic_fetch_add_explicit(&p->calls, 1, memory_order_relaxed) + 1;
	uint64_t value;
	if (window_holds(&p->fail, number, &value)) {
		atomic_fetch_add_explicit(&p->hits, 1, memory_order_relaxed);
		errno = (int)value;
		return true;
	}
	if (len && window_holds(&p->cut, number, &value) && value < *len) {
		atomic_fetch_add_explicit(&p->hits, 1, memory_order_relaxed);
		*len = value;
	}
	return false;
}

static int fault_open(const char *path, int flags, mode_t mode)
{
	return struck(OS_OPEN, NULL) ? -1 : os_sys_real.open(path, flags, mode);
}

static int fault_close(int fd)
{
	if (!struck(OS_CLOSE, NULL))
		return os_sys_real.close(fd);
	int error = errno;
	os_sys_real.close(fd);
	errno = error;
	return -1;
}

static ssize_t fault_read(int fd, void *data, size_t len)
{
	return struck(OS_READ, &len) ? -1 : os_sys_real.read(fd, data, len);
}

static ssize_t fault_write(int fd, const void *data, size_t len)
{
	return struck(OS_WRITE, &len) ? -1 : os_sys_real.write(fd, data, len);
}

static ssize_t fault_pread(int fd, void *data, size_t len, off_t at)
{
	return struck(OS_PREAD, &len) ? -1 : os_sys_real.pread(fd, data, len, at);
}

static ssize_t fault_pwritev(int fd, const struct iovec *iov, int count, off_t at)
{
	size_t whole = 0;
	for (int i = 0; i < count; i++)
		whole += iov[i].iov_len;
	size_t len = whole;
	if (struck(OS_PWRITEV, &len))
		return -1;
	if (len == whole)
		return os_sys_real.pwritev(fd, iov, count, at);
	ssize_t done = 0;
	for (int i = 0; len > 0; i++) {
		struct iovec part = {iov[i].iov_base, MIN(iov[i].iov_len, len)};
		if (part.iov_len == 0)
			continue;
		ssize_t n = os_sys_real.pwritev(fd, &part, 1, at + done);
		if (n < 0)
			return done > 0 ? done : -1;
		done += n;
		len -= part.iov_len;
		if ((size_t)n < part.iov_len)
			break;
	}
	return done;
}

static int fault_fsync(int fd)
{
	return struck(OS_FSYNC, NULL) ? -1 : os_sys_real.fsync(fd);
}

static int fault_fdatasync(int fd)
{
	return struck(OS_FDATASYNC, NULL) ? -1 : os_sys_real.fdatasync(fd);
}

static int fault_ftruncate(int fd, off_t len)
{
	return struck(OS_FTRUNCATE, NULL) ? -1 : os_sys_real.ftruncate(fd, len);
}

static int fault_rename(const char *from, const char *to)
{
	return struck(OS_RENAME, NULL) ? -1 : os_sys_real.rename(from, to);
}

static int fault_unlink(const char *path)
{
	return struck(OS_UNLINK, NULL) ? -1 : os_sys_real.unlink(path);
}

static int fault_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return struck(OS_ACCEPT4, NULL) ? -1 : os_sys_real.accept4(fd, addr, len, flags);
}

static ssize_t fault_recv(int fd, void *data, size_t len, int flags)
{
	return struck(OS_RECV, &len) ? -1 : os_sys_real.recv(fd, data, len, flags);
}

static ssize_t fault_send(int fd, const void *data, size_t len, int flags)
{
	return struck(OS_SEND, &len) ? -1 : os_sys_real.send(fd, data, len, flags);
}

static int fault_epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
	return struck(OS_EPOLL_WAIT, NULL) ? -1 : os_sys_real.epoll_wait(fd, events, max, timeout_ms);
}

static struct timespec hastened(struct timespec now)
{
	int64_t since_ns = atomic_load(&fast_since_ns), now_ns = now.tv_sec * 1000000000LL + now.tv_nsec;
	int64_t ns = since_ns + (now_ns - since_ns) * atomic_load(&clock_times);
	return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static int fault_clock_gettime(clockid_t clock, struct timespec *ret)
{
	if (struck(OS_CLOCK_GETTIME, NULL))
		return -1;
	if (!atomic_load_explicit(&clock_stopped, memory_order_acquire)) {
		int r = os_sys_real.clock_gettime(clock, ret);
		if (r == 0 && clock == CLOCK_MONOTONIC && atomic_load(&clock_times))
			*ret = hastened(*ret);
		return r;
	}
	bool real = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
	int64_t ns = atomic_load_explicit(real ? &fake_real_ns : &fake_mono_ns, memory_order_relaxed);
	*ret = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	return 0;
}

static void install(void)
{
	if (installed)
		return;
	for (size_t i = 0; i < OS_CALLS; i++) {
		atomic_store(&plans[i].fail.from, UINT64_MAX);
		atomic_store(&plans[i].cut.from, UINT64_MAX);
	}
	installed = true;
	os_sys = (struct os_sys){
	    .open = fault_open,
	    .close = fault_close,
	    .read = fault_read,
	    .write = fault_write,
	    .pread = fault_pread,
	    .pwritev = fault_pwritev,
	    .fsync = fault_fsync,
	    .fdatasync = fault_fdatasync,
	    .ftruncate = fault_ftruncate,
	    .rename = fault_rename,
	    .unlink = fault_unlink,
	    .accept4 = fault_accept4,
	    .recv = fault_recv,
	    .send = fault_send,
	    .epoll_wait = fault_epoll_wait,
	    .clock_gettime = fault_clock_gettime,
	};
}

static uint64_t call_number(enum os_call call, uint64_t nth)
{
	ASSERT(nth > 0);
	return atomic_load_explicit(&plans[call].calls, memory_order_relaxed) + nth;
}

void os_fault_fail(enum os_call call, uint64_t nth, int error, enum os_span span)
{
	install();
	window_arm(&plans[call].fail, call_number(call, nth), (uint64_t)error, span);
}

void os_fault_short(enum os_call call, uint64_t nth, size_t bytes, enum os_span span)
{
	ASSERT(bytes > 0);
	ASSERT(call == OS_READ || call == OS_WRITE || call == OS_PREAD || call == OS_PWRITEV ||
	       call == OS_RECV || call == OS_SEND);
	install();
	window_arm(&plans[call].cut, call_number(call, nth), bytes, span);
}

void os_fault_clear(enum os_call call)
{
	install();
	atomic_store_explicit(&plans[call].fail.from, UINT64_MAX, memory_order_release);
	atomic_store_explicit(&plans[call].cut.from, UINT64_MAX, memory_order_release);
}

uint64_t os_fault_calls(enum os_call call)
{
	return atomic_load_explicit(&plans[call].calls, memory_order_relaxed);
}

uint64_t os_fault_hits(enum os_call call)
{
	return atomic_load_explicit(&plans[call].hits, memory_order_relaxed);
}

void os_fault_clock_set(int64_t real_ms, int64_t mono_ms)
{
	install();
	atomic_store_explicit(&fake_real_ns, real_ms * 1000000, memory_order_relaxed);
	atomic_store_explicit(&fake_mono_ns, mono_ms * 1000000, memory_order_relaxed);
	atomic_store_explicit(&clock_stopped, true, memory_order_release);
}

void os_fault_clock_advance_real(int64_t ms)
{
	ASSERT(atomic_load(&clock_stopped));
	atomic_fetch_add_explicit(&fake_real_ns, ms * 1000000, memory_order_relaxed);
}

void os_fault_clock_advance(int64_t ms)
{
	ASSERT(ms >= 0); /* the monotonic clock never goes back */
	os_fault_clock_advance_real(ms);
	atomic_fetch_add_explicit(&fake_mono_ns, ms * 1000000, memory_order_relaxed);
}

void os_fault_clock_fast(unsigned times)
{
	struct timespec now;
	os_sys_real.clock_gettime(CLOCK_MONOTONIC, &now);
	atomic_store(&fast_since_ns, now.tv_sec * 1000000000LL + now.tv_nsec);
	atomic_store(&clock_times, times);
	install();
}

void os_fault_reset(void)
{
	os_sys = os_sys_real;
	installed = false;
	atomic_store(&clock_stopped, false);
	atomic_store(&clock_times, 0);
	for (size_t i = 0; i < OS_CALLS; i++) {
		atomic_store(&plans[i].calls, 0);
		atomic_store(&plans[i].hits, 0);
		atomic_store(&plans[i].fail.from, UINT64_MAX);
		atomic_store(&plans[i].cut.from, UINT64_MAX);
	}
}
