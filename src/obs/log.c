/*
 * A thread copies its line into its own ring (log_ring.h) and goes on. The flusher takes lines out, formats
 * them (log_format.h) and writes many at once.
 *
 * Three rules make this exact. The first two need one total order of the accesses they name, so those are
 * sequentially consistent.
 *
 *   waking    A writer moves its ring's `head`, then looks at `sleeping`. The flusher sets `sleeping`, then
 *             looks at every `head` once more. One of them sees the other: no line waits unseen.
 *   stopping  A writer sets its ring's `busy`, then looks at `running`. log_stop clears `running`; then the
 *             flusher waits for the end of every `busy` and drains. So a line is in the last drain, or its
 *             writer found the log stopped and wrote it itself.
 *   losing    A line that does not fit adds to its ring's `lost`. The writer with its next line that fits, or
 *             the flusher with an empty ring, takes that number and logs it, whichever comes first.
 */
#include "obs/log.h"

#include "base/utf8.h"
#include "obs/log_format.h"
#include "obs/log_ring.h"
#include "os/clock.h"
#include "os/sys.h"
#include "os/task.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	OUT_BYTES = 65536,
	DRAIN_ENTRIES = 1024,
	BUSY_ENTRIES = 64, /* with so many at once, rings fill fast: do not linger */
	LINGER_MS = 1,     /* after a line, more are awaited this long before they need to wake the flusher */
	STALL_WAIT_MS = 100,
	STALL_WAITS = 50, /* lines are lost when a pipe's reader takes nothing for so many waits */
	STALL_WAITS_STOPPING = 10,
};

static _Atomic int level_min = LOG_INFO;
static _Atomic uint64_t dropped;
static _Atomic bool running;
static _Atomic bool sleeping;
static _Atomic bool reopen_wanted;

/* Only the flusher uses it. log_start fills it before the task starts, log_stop clears it afterwards. */
static struct {
	struct task task;
	int fd;
	char *path; /* NULL: standard error */
	enum log_format format;
	bool may_stall;     /* anything but a regular file */
	int stalls;         /* waits since the last byte went out */
	bool mid_line;      /* the last byte that went out was not a newline */
	uint64_t unwritten; /* lines that were refused or stalled, not yet logged */
	size_t len;
	char out[OUT_BYTES];
} flusher;

const struct conf_row log_rows[] = {
    {"log", "level", CONF_ENUM, offsetof(struct log_settings, level), .def = "info",
     .choices = log_level_names, .flags = CONF_RELOADABLE, .help = "The least severe lines that are logged."},
    {"log", "format", CONF_ENUM, offsetof(struct log_settings, format), .def = "text",
     .choices = log_format_names,
     .help = "The form of log lines. text: for people. json: one JSON object a line."},
    {"log", "file", CONF_STRING, offsetof(struct log_settings, file), .def = "",
     .help = "The file that log lines are written to. Empty: standard error. SIGHUP reopens it after a "
             "rotation."},
};
const size_t log_row_count = ARRAY_LEN(log_rows);

static void count_dropped(uint64_t lines)
{
	atomic_fetch_add_explicit(&dropped, lines, memory_order_relaxed);
}

/* One more wait for the same byte; false when there were enough. */
static bool stall_again(void)
{
	int limit = task_is_stopping(&flusher.task) ? STALL_WAITS_STOPPING : STALL_WAITS;
	return ++flusher.stalls <= limit;
}

/* A hang-up counts as ready: the write then fails with the reason. */
static bool out_ready(void)
{
	struct pollfd p = {.fd = flusher.fd, .events = POLLOUT};
	return !flusher.may_stall || poll(&p, 1, STALL_WAIT_MS) != 0;
}

/* Returns how many bytes went out: fewer than `len` when they are refused or stall for too long. A pipe that
 * polls as ready takes PIPE_BUF bytes at once, so a reader that stopped cannot block the flusher. */
static size_t out_write(const char *data, size_t len)
{
	size_t done = 0;
	while (done < len) {
		if (!out_ready()) {
			if (!stall_again())
				break;
			continue;
		}
		size_t part = flusher.may_stall ? MIN(len - done, (size_t)PIPE_BUF) : len - done;
		ssize_t n = os_sys.write(flusher.fd, data + done, part);
		if (n > 0) {
			done += (size_t)n;
			if (!task_is_stopping(&flusher.task))
				flusher.stalls = 0;
		} else if (n == 0 || (errno != EINTR && errno != EAGAIN) || !stall_again()) {
			break;
		}
	}
	if (done > 0)
		flusher.mid_line = data[done - 1] != '\n';
	return done;
}

/* A line of the log's own, past the buffer; false when it could not be written. */
PRINTF_LIKE(2, 3) static bool out_write_own(enum log_level level, const char *fmt, ...)
{
	char text[LOG_TEXT_MAX], out[LOG_ENTRY_BYTES_MAX];
	va_list ap;
	va_start(ap, fmt);
	int len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	struct log_entry entry = {.time_ms = clock_real_ms(),
	                          .level = level,
	                          .module = "obs",
	                          .text = str_n(text, (size_t)MIN(MAX(len, 0), LOG_TEXT_MAX - 1))};
	size_t bytes = log_entry_format(&entry, flusher.format, out);
	return out_write(out, bytes) == bytes;
}

static bool out_write_lost(uint64_t lines, const char *reason)
{
	return out_write_own(LOG_WARN, "log lines lost: count=%ju reason=\"%s\"", (uintmax_t)lines, reason);
}

/* Ends a line that a failure cut in the middle, and logs what was lost. */
static bool out_resume(void)
{
	if (flusher.mid_line && out_write("\n", 1) != 1)
		return false;
	if (flusher.unwritten > 0 && !out_write_lost(flusher.unwritten, "write failed"))
		return false;
	flusher.unwritten = 0;
	return true;
}

static int file_open(const char *path)
{
	return os_sys.open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
}

static void out_use(int fd)
{
	struct stat st;
	flusher.fd = fd;
	flusher.may_stall = fstat(fd, &st) < 0 || !S_ISREG(st.st_mode);
	flusher.mid_line = false;
	flusher.stalls = 0;
}

/* When the file cannot be reopened, the old one stays in use and says so. */
static void out_reopen_if_wanted(void)
{
	if (!atomic_exchange(&reopen_wanted, false) || !flusher.path)
		return;
	int fd = file_open(flusher.path);
	if (fd < 0) {
		out_write_own(LOG_ERROR,
		              "log file not reopened, the old one stays in use: file=%s error=\"%s\"",
		              flusher.path, strerrordesc_np(errno));
		return;
	}
	os_sys.close(flusher.fd);
	out_use(fd);
}

static void out_flush(void)
{
	/* Here: every line logged after log_reopen returned must be in the new file. */
	out_reopen_if_wanted();
	if (flusher.len == 0)
		return;
	size_t done = out_resume() ? out_write(flusher.out, flusher.len) : 0;
	uint64_t lines = 0;
	for (size_t i = done; i < flusher.len; i++)
		lines += flusher.out[i] == '\n';
	flusher.unwritten += lines;
	count_dropped(lines);
	flusher.len = 0;
}

static void out_entry(const struct log_entry *entry)
{
	if (sizeof(flusher.out) - flusher.len < LOG_ENTRY_BYTES_MAX)
		out_flush();
	flusher.len += log_entry_format(entry, flusher.format, flusher.out + flusher.len);
}

static void out_lost(uint64_t lines)
{
	if (lines == 0)
		return;
	out_flush();
	if (!out_resume() || !out_write_lost(lines, "buffer full"))
		flusher.unwritten += lines;
}

/* Takes a bounded number of entries, so that one busy thread cannot starve the others; returns how many. */
static int ring_drain(struct log_ring *r)
{
	struct log_entry entry;
	char text[LOG_TEXT_MAX];
	uint64_t lost;
	for (int taken = 0; taken < DRAIN_ENTRIES; taken++) {
		if (!log_ring_pop(r, &entry, text, &lost)) {
			out_lost(log_ring_take_lost(r));
			return taken;
		}
		out_lost(lost);
		out_entry(&entry);
	}
	return DRAIN_ENTRIES;
}

static int rings_drain(void)
{
	int taken = 0;
	for (struct log_ring *r = log_ring_first(); r; r = r->next)
		taken += ring_drain(r);
	out_flush();
	return taken;
}

static int64_t flusher_run(struct task *t)
{
	(void)t;
	atomic_store(&sleeping, false);
	int taken = rings_drain();
	if (taken == 0) {
		atomic_store(&sleeping, true);
		taken = rings_drain();
	}
	return taken == 0 ? TASK_ON_WAKE : taken < BUSY_ENTRIES ? LINGER_MS : 0;
}

static void flusher_end(struct task *t)
{
	(void)t;
	for (struct log_ring *r = log_ring_first(); r; r = r->next) {
		while (atomic_load(&r->busy))
			sched_yield();
	}
	while (rings_drain() > 0)
		;
}

static int flusher_open(const struct log_settings *s, struct err *e)
{
	flusher.format = s->format == LOG_JSON ? LOG_JSON : LOG_TEXT;
	flusher.unwritten = 0;
	out_use(STDERR_FILENO);
	if (!s->file || !s->file[0])
		return 0;
	flusher.path = strdup(s->file);
	if (!flusher.path)
		return err_set(e, ERR_NOMEM, "out of memory for the log");
	int fd = file_open(s->file);
	if (fd < 0)
		return err_set(e, ERR_UNAVAILABLE,
		               "cannot open the log file %s: %s; choose another with --log-file", s->file,
		               strerrordesc_np(errno));
	out_use(fd);
	return 0;
}

static void flusher_release(void)
{
	if (flusher.fd != STDERR_FILENO)
		os_sys.close(flusher.fd);
	free(steal(flusher.path));
}

int log_start(const struct log_settings *s, struct err *e)
{
	ASSERT(!atomic_load(&running));
	const struct task_config config = {.name = "log", .run = flusher_run, .end = flusher_end};
	int r = flusher_open(s, e) ?: task_start(&flusher.task, &config, e);
	if (r < 0) {
		flusher_release();
		return r;
	}
	log_level_set(s->level);
	atomic_store(&running, true);
	return 0;
}

void log_stop(void)
{
	if (!atomic_exchange(&running, false))
		return;
	task_stop(&flusher.task);
	flusher_release();
}

void log_reopen(void)
{
	if (!atomic_load(&running))
		return;
	atomic_store(&reopen_wanted, true);
	task_wake(&flusher.task);
}

void log_level_set(int level)
{
	atomic_store_explicit(&level_min, level, memory_order_relaxed);
}

uint64_t log_dropped(void)
{
	return atomic_load_explicit(&dropped, memory_order_relaxed);
}

/* False when the log is not running. */
static bool hand_over(const struct log_entry *entry)
{
	if (!atomic_load_explicit(&running, memory_order_relaxed))
		return false;
	struct log_ring *r = log_ring_own();
	if (!r) {
		count_dropped(1);
		return true;
	}
	atomic_store(&r->busy, true);
	bool on = atomic_load(&running);
	if (on) {
		if (!log_ring_push(r, entry))
			count_dropped(1);
		if (atomic_load(&sleeping)) /* cheaper than a wake-up for all but the first line */
			task_wake(&flusher.task);
	}
	atomic_store_explicit(&r->busy, false, memory_order_release);
	return on;
}

static void write_directly(const struct log_entry *entry)
{
	char out[LOG_ENTRY_BYTES_MAX];
	size_t len = log_entry_format(entry, LOG_TEXT, out);
	for (size_t done = 0; done < len;) {
		ssize_t n = os_sys.write(STDERR_FILENO, out + done, len - done);
		if (n <= 0 && !(n < 0 && errno == EINTR)) {
			count_dropped(1);
			return;
		}
		done += (size_t)MAX(n, 0);
	}
}

void log_line(enum log_level level, const char *module, const char *fmt, ...)
{
	if ((int)level < atomic_load_explicit(&level_min, memory_order_relaxed))
		return;
	int error = errno; /* a caller may log between a failure and its look at errno */
	char text[LOG_TEXT_MAX + 1];
	va_list ap;
	va_start(ap, fmt);
	int len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	size_t kept = (size_t)MIN(MAX(len, 0), LOG_TEXT_MAX);
	if (len > LOG_TEXT_MAX) {
		kept = utf8_prefix(str_of(text), LOG_TEXT_MAX - 3).len;
		memset(text + kept, '.', 3);
		kept += 3;
	}
	struct log_entry entry = {
	    .time_ms = clock_real_ms(), .level = level, .module = module, .text = str_n(text, kept)};
	if (!hand_over(&entry))
		write_directly(&entry);
	errno = error;
}
