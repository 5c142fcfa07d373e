#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"
#include "obs/log_ring.h"
#include "os/file.h"

#include <dirent.h>
#include <sched.h>
#include <sys/syscall.h>

/*
 * The log is one for the process, so every test starts and stops it. `out` is where the lines go, `err`
 * stands for standard error.
 */
static struct temp dir;
static char out_path[TEMP_PATH_BYTES];
static char err_path[TEMP_PATH_BYTES];
static int real_stderr;
static uint64_t dropped_before;

static int setup(void **state)
{
	temp_init(&dir);
	temp_path(&dir, "out.log", out_path);
	temp_path(&dir, "err.log", err_path);
	real_stderr = dup(STDERR_FILENO);
	int fd = open(err_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(fd, STDERR_FILENO);
	close(fd);
	os_fault_clock_set(1794718800123, 0);
	log_level_set(LOG_INFO);
	dropped_before = log_dropped();
	return 0;
}

static int teardown(void **state)
{
	log_stop();
	os_fault_reset();
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	temp_release(&dir);
	return 0;
}

static void start(const char *file, int format)
{
	struct log_settings s = {.level = LOG_INFO, .format = format, .file = file};
	MUST(log_start(&s, &why));
}

static struct buf content(const char *path)
{
	struct buf b = {0};
	assert_int_equal(file_read(path, 64 << 20, &b, NULL), 0);
	return b;
}

static void assert_holds(const char *path, const char *expected)
{
	CLEANUP(buf_release) struct buf b = content(path);
	if (!str_eq(buf_view(&b), str_of(expected)))
		fail_msg("%s holds '%.*s', not '%s'", path, STR_ARG(buf_view(&b)), expected);
}

static uint64_t dropped(void)
{
	return log_dropped() - dropped_before;
}

static void wait_for_drops(uint64_t lines)
{
	while (dropped() < lines)
		sched_yield();
}

#define PREFIX "2026-11-15T05:00:00.123Z "

TEST(lines_reach_the_file_in_text)
{
	start(out_path, 0);
	log_info("http", "listening on %s:%d", "127.0.0.1", 8080);
	log_error("store", "%s", "two\nlines");
	log_stop();
	assert_holds(out_path,
	             PREFIX "info  http: listening on 127.0.0.1:8080\n" PREFIX "error store: two\\nlines\n");
	assert_holds(err_path, "");
	assert_int_equal(dropped(), 0);
}

TEST(lines_reach_the_file_in_json)
{
	start(out_path, 1);
	log_warn("http", "a \"b\"");
	log_stop();
	assert_holds(out_path,
	             "{\"time\":\"2026-11-15T05:00:00.123Z\",\"level\":\"warn\",\"module\":\"http\","
	             "\"message\":\"a \\\"b\\\"\"}\n");
}

TEST(without_a_file_lines_go_to_standard_error)
{
	start("", 0);
	log_info("os", "one");
	log_stop();
	start(NULL, 0);
	log_info("os", "two");
	log_stop();
	assert_holds(err_path, PREFIX "info  os: one\n" PREFIX "info  os: two\n");
}

TEST(before_and_after_lines_go_straight_to_standard_error)
{
	log_info("cmd", "before");
	assert_holds(err_path, PREFIX "info  cmd: before\n");
	start(out_path, 0);
	log_info("cmd", "between");
	log_stop();
	log_stop(); /* twice does no harm */
	log_info("cmd", "after");
	assert_holds(err_path, PREFIX "info  cmd: before\n" PREFIX "info  cmd: after\n");
	assert_holds(out_path, PREFIX "info  cmd: between\n");
}

TEST(lines_below_the_level_are_not_written)
{
	start(out_path, 0);
	log_debug("os", "1");
	log_level_set(LOG_DEBUG);
	log_debug("os", "2");
	log_level_set(LOG_ERROR);
	log_warn("os", "3");
	log_error("os", "4");
	log_stop();
	assert_holds(out_path, PREFIX "debug os: 2\n" PREFIX "error os: 4\n");
	assert_int_equal(dropped(), 0);
}

TEST(a_text_too_long_is_cut_and_marked)
{
	start(out_path, 0);
	log_info("os", "%05000d", 1);
	log_stop();
	CLEANUP(buf_release) struct buf b = content(out_path);
	assert_int_equal(b.len, strlen(PREFIX "info  os: ") + 2048 + 1);
	assert_true(str_ends(buf_view(&b), STR("0000...\n")));
}

TEST(a_text_is_not_cut_within_a_character)
{
	start(out_path, 0);
	log_info("os", "%02044d\u00fc and more", 1); /* its second byte would be the first dot */
	log_stop();
	CLEANUP(buf_release) struct buf b = content(out_path);
	assert_true(str_ends(buf_view(&b), STR("0001...\n")));
}

TEST(logging_leaves_errno_alone)
{
	os_fault_fail(OS_WRITE, 1, ENOSPC, OS_FOR_GOOD);
	errno = EXDEV;
	log_info("os", "straight to standard error, which fails");
	assert_int_equal(errno, EXDEV);
	assert_int_equal(dropped(), 1);
	start(out_path, 0);
	errno = EXDEV;
	log_info("os", "into the ring");
	assert_int_equal(errno, EXDEV);
}

TEST(the_rows_fill_the_settings)
{
	struct log_settings s = {0};
	struct conf_group group = {log_rows, log_row_count, &s};
	struct conf_source from = {0};
	struct err e;
	assert_int_equal(conf_load(&group, 1, &from, &e), 0);
	assert_int_equal(s.level, LOG_INFO);
	assert_int_equal(s.format, 0);
	assert_string_equal(s.file, "");
	conf_release(&group, 1);

	char *args[] = {"--log-level=error", "--log-format", "json", "--log-file", "/x/y"};
	from = (struct conf_source){.args = args, .arg_count = ARRAY_LEN(args)};
	assert_int_equal(conf_load(&group, 1, &from, &e), 0);
	assert_int_equal(s.level, LOG_ERROR);
	assert_int_equal(s.format, 1);
	assert_string_equal(s.file, "/x/y");
	conf_release(&group, 1);
}

TEST(a_file_that_cannot_be_opened_is_an_error_that_names_it)
{
	char path[TEMP_PATH_BYTES];
	struct err e = {""};
	struct log_settings s = {.level = LOG_INFO, .file = temp_path(&dir, "no/such/folder", path)};
	assert_int_equal(log_start(&s, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, "--log-file"));
	log_info("cmd", "still here");
	assert_holds(err_path, PREFIX "info  cmd: still here\n");
	start(out_path, 0);
}

enum { THREADS = 8, LINES = 300, MAIN = THREADS };

static void *log_numbers(void *arg)
{
	for (int i = 0; i < LINES; i++)
		log_info("test", "thread %d line %d", *(int *)arg, i);
	return NULL;
}

static void run_threads(int numbers[THREADS])
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, log_numbers, &numbers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* Adds to `next` what the text holds of each thread; the lines of each must be in order and whole. */
static void check_order(struct str text, int next[THREADS + 1])
{
	while (text.len > 0) {
		char line[128];
		int thread, number;
		struct str one = str_cut(&text, '\n');
		assert_in_range(one.len, 1, sizeof(line) - 1);
		memcpy(line, one.ptr, one.len);
		line[one.len] = '\0';
		assert_int_equal(sscanf(line, PREFIX "info test: thread %d line %d", &thread, &number), 2);
		assert_in_range(thread, 0, MAIN);
		assert_int_equal(number, next[thread]);
		next[thread]++;
	}
}

TEST(lines_of_many_threads_all_arrive_in_each_threads_order)
{
	int numbers[THREADS], next[THREADS + 1] = {0};
	start(out_path, 0);
	run_threads(numbers); /* less than a ring each, so none may be lost */
	log_stop();
	CLEANUP(buf_release) struct buf b = content(out_path);
	check_order(buf_view(&b), next);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(next[i], LINES);
	assert_int_equal(dropped(), 0);
}

static atomic_bool stop_logging;
static atomic_int at_work;

static void *log_until_told(void *arg)
{
	atomic_fetch_add(&at_work, 1);
	uint64_t *logged = arg;
	while (!atomic_load(&stop_logging)) {
		log_info("test", "x");
		++*logged;
		sched_yield();
	}
	return NULL;
}

static uint64_t count_lines(const char *path, const char *ending)
{
	CLEANUP(buf_release) struct buf b = content(path);
	struct str rest = buf_view(&b);
	uint64_t count = 0;
	while (rest.len > 0)
		count += str_ends(str_cut(&rest, '\n'), str_of(ending));
	return count;
}

TEST(stopping_among_busy_writers_loses_no_line)
{
	for (int round = 0; round < 20; round++) {
		pthread_t threads[3];
		uint64_t logged[3] = {0}, sum = 0;
		atomic_store(&stop_logging, false);
		atomic_store(&at_work, 0);
		start(out_path, 0);
		for (int i = 0; i < 3; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, log_until_told, &logged[i]), 0);
		while (atomic_load(&at_work) < 3)
			sched_yield();
		log_stop();
		atomic_store(&stop_logging, true);
		for (int i = 0; i < 3; i++) {
			pthread_join(threads[i], NULL);
			sum += logged[i];
		}
		uint64_t written = count_lines(out_path, "test: x") + count_lines(err_path, "test: x");
		assert_int_equal(written + dropped(), sum);
		unlink(out_path);
		assert_int_equal(truncate(err_path, 0), 0);
		dropped_before = log_dropped();
	}
}

static atomic_bool holding, go_on;

/* A writer that is held up between its look at the log's state and its push. */
static void *push_late(void *arg)
{
	(void)arg;
	struct log_ring *r = log_ring_own();
	struct log_entry entry = {.level = LOG_INFO, .module = "test", .text = STR("late")};
	atomic_store(&r->busy, true);
	atomic_store(&holding, true);
	while (!atomic_load(&go_on))
		sched_yield();
	log_ring_push(r, &entry);
	atomic_store(&r->busy, false);
	return NULL;
}

static void *stop(void *arg)
{
	(void)arg;
	log_stop();
	return NULL;
}

TEST(stopping_waits_for_a_writer_that_is_held_up)
{
	pthread_t writer, stopper;
	atomic_store(&holding, false);
	atomic_store(&go_on, false);
	start(out_path, 0);
	assert_int_equal(pthread_create(&writer, NULL, push_late, NULL), 0);
	while (!atomic_load(&holding))
		sched_yield();
	assert_int_equal(pthread_create(&stopper, NULL, stop, NULL), 0);
	while (count_lines(err_path, "test: probe") < 100) /* straight: the stop has begun */
		log_info("test", "probe");
	atomic_store(&go_on, true);
	pthread_join(writer, NULL);
	pthread_join(stopper, NULL);
	assert_int_equal(count_lines(out_path, "test: late"), 1);
}

static int log_thread_id(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *task;
	int found = 0;
	while (tasks && (task = readdir(tasks))) {
		char path[300], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		FILE *f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f) && strcmp(name, "log\n") == 0)
			found = atoi(task->d_name);
		if (f)
			fclose(f);
	}
	if (tasks)
		closedir(tasks);
	return found;
}

/* Returns when the flusher waits on a futex without a timeout, or when the system does not tell. */
static void wait_until_the_flusher_sleeps(void)
{
	char path[64], text[256];
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", log_thread_id());
	for (;;) {
		FILE *f = fopen(path, "r");
		if (!f)
			return;
		const char *line = fgets(text, sizeof(text), f);
		fclose(f);
		unsigned long word, op, value, timeout;
		long number;
		if (!line)
			return;
		if (sscanf(text, "%ld %lx %lx %lx %lx", &number, &word, &op, &value, &timeout) == 5 &&
		    number == SYS_futex && timeout == 0)
			return;
		sched_yield();
	}
}

TEST(a_line_wakes_a_sleeping_flusher)
{
	start(out_path, 0);
	for (uint64_t i = 1; i <= 20; i++) {
		struct timespec began, now;
		wait_until_the_flusher_sleeps();
		log_info("test", "wake");
		clock_gettime(CLOCK_MONOTONIC, &began);
		while (count_lines(out_path, "test: wake") < i) {
			clock_gettime(CLOCK_MONOTONIC, &now);
			assert_true(now.tv_sec - began.tv_sec < 30);
		}
	}
}

/* A pipe whose reading end is `*ret_reader`, under the log's path. */
static void start_on_pipe(int *ret_reader)
{
	assert_int_equal(mkfifo(out_path, 0600), 0);
	*ret_reader = open(out_path, O_RDONLY | O_NONBLOCK);
	assert_true(*ret_reader >= 0);
	assert_int_equal(fcntl(*ret_reader, F_SETFL, 0), 0);
	start(out_path, 0);
}

struct reading {
	int fd;
	struct buf text;
	atomic_bool caught_up; /* it has read LAST */
};

#define LAST "caught up"

static void *read_to_the_end(void *arg)
{
	struct reading *r = arg;
	for (;;) {
		char *to = buf_reserve(&r->text, 65536);
		ssize_t n = to ? read(r->fd, to, 65536) : -1;
		if (n <= 0)
			return NULL;
		size_t before = MIN(r->text.len, sizeof(LAST));
		r->text.len += (size_t)n;
		if (memmem(to - before, before + (size_t)n, LAST, strlen(LAST)))
			atomic_store(&r->caught_up, true);
	}
}

/* What the notices in the text add up to; the other lines are counted in `ret_lines`. */
static uint64_t told_lost(struct str text, uint64_t *ret_lines)
{
	uint64_t lost = 0;
	*ret_lines = 0;
	while (text.len > 0) {
		struct str line = str_cut(&text, '\n');
		struct str prefix = STR(PREFIX "warn  obs: log lines lost: count=");
		if (!str_starts(line, prefix)) {
			++*ret_lines;
			continue;
		}
		struct str rest = str_n(line.ptr + prefix.len, line.len - prefix.len);
		uint64_t number;
		assert_true(str_u64(str_cut(&rest, ' '), &number));
		lost += number;
	}
	return lost;
}

TEST(a_full_ring_drops_counts_and_tells)
{
	struct reading reading = {0};
	pthread_t thread;
	uint64_t logged = 0, lines;
	start_on_pipe(&reading.fd);
	while (dropped() < 100) { /* nobody reads the pipe */
		log_info("test", "line %llu of a writer that is too fast", (unsigned long long)logged);
		logged++;
	}
	assert_true(logged < 20000);
	assert_int_equal(pthread_create(&thread, NULL, read_to_the_end, &reading), 0);
	for (; !atomic_load(&reading.caught_up); logged++) { /* a stop waits only so long for a reader */
		until_pause();
		log_info("test", LAST);
	}
	log_stop();
	pthread_join(thread, NULL);
	close(reading.fd);
	uint64_t lost = told_lost(buf_view(&reading.text), &lines);
	assert_int_equal(lost, dropped());
	assert_int_equal(lines + lost, logged);
	buf_release(&reading.text);
}

TEST(a_reader_who_never_reads_cannot_hang_the_stop)
{
	struct reading reading = {0};
	uint64_t logged = 0, lines;
	start_on_pipe(&reading.fd);
	while (dropped() == 0) {
		log_info("test", "line %llu", (unsigned long long)logged);
		logged++;
	}
	log_stop();
	assert_int_equal(fcntl(reading.fd, F_SETFL, O_NONBLOCK), 0);
	read_to_the_end(&reading);
	close(reading.fd);
	told_lost(buf_view(&reading.text), &lines);
	/* The last line may be cut where the pipe was full: it is in the text and counted as lost. */
	uint64_t cut = reading.text.data[reading.text.len - 1] != '\n';
	assert_int_equal(lines - cut + dropped(), logged);
	buf_release(&reading.text);
}

TEST(a_closed_pipe_does_not_kill_and_its_lines_are_counted)
{
	int reader;
	start_on_pipe(&reader);
	close(reader);
	for (int i = 0; i < 10; i++)
		log_info("test", "into the void");
	log_stop();
	assert_int_equal(dropped(), 10);
}

TEST(a_full_disk_counts_and_is_reported_when_there_is_room_again)
{
	start(out_path, 0);
	os_fault_fail(OS_WRITE, 1, ENOSPC, OS_FOR_GOOD);
	log_info("test", "lost 1");
	wait_for_drops(1);
	log_info("test", "lost 2");
	wait_for_drops(2);
	os_fault_clear(OS_WRITE);
	log_info("test", "kept");
	log_stop();
	assert_holds(out_path, PREFIX "warn  obs: log lines lost: count=2 reason=\"write failed\"\n" PREFIX
	                              "info  test: kept\n");
	assert_int_equal(dropped(), 2);
}

TEST(short_writes_and_signals_lose_nothing)
{
	int numbers[THREADS], next[THREADS + 1] = {0};
	os_fault_short(OS_WRITE, 1, 7, OS_FOR_GOOD);
	os_fault_fail(OS_WRITE, 5, EINTR, OS_ONCE);
	start(out_path, 0);
	run_threads(numbers);
	os_fault_fail(OS_WRITE, 1, EAGAIN, OS_ONCE);
	log_info("test", "thread %d line 0", MAIN);
	log_stop();
	CLEANUP(buf_release) struct buf b = content(out_path);
	check_order(buf_view(&b), next);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(next[i], LINES);
	assert_int_equal(next[MAIN], 1);
	assert_int_equal(dropped(), 0);
}

TEST(a_line_cut_by_a_failure_is_ended_before_the_next)
{
	start(out_path, 0);
	os_fault_short(OS_WRITE, 1, 10, OS_ONCE);
	os_fault_fail(OS_WRITE, 2, EIO, OS_ONCE);
	log_info("test", "cut");
	wait_for_drops(1);
	log_info("test", "whole");
	log_stop();
	assert_holds(out_path, "2026-11-15\n" PREFIX
	                       "warn  obs: log lines lost: count=1 reason=\"write failed\"\n" PREFIX
	                       "info  test: whole\n");
	assert_int_equal(dropped(), 1);
}

TEST(reopening_follows_a_rotated_file)
{
	char old[TEMP_PATH_BYTES];
	start(out_path, 0);
	log_info("test", "one");
	log_stop();
	start(out_path, 0);
	log_info("test", "two");
	assert_int_equal(rename(out_path, temp_path(&dir, "old.log", old)), 0);
	log_reopen();
	log_info("test", "three");
	log_stop();
	assert_int_equal(count_lines(old, "test: one"), 1);
	assert_int_equal(count_lines(out_path, "test: three"), 1);
	assert_int_equal(count_lines(old, "test: two") + count_lines(out_path, "test: two"), 1);
}

TEST(a_file_that_cannot_be_reopened_stays_in_use)
{
	start(out_path, 0);
	os_fault_fail(OS_OPEN, 1, EMFILE, OS_FOR_GOOD);
	log_reopen();
	log_info("test", "still here");
	log_stop();
	os_fault_clear(OS_OPEN);
	assert_int_equal(count_lines(out_path, "test: still here"), 1);
	assert_int_equal(count_lines(out_path, "error=\"Too many open files\""), 1);
}

TEST(reopening_standard_error_or_nothing_does_no_harm)
{
	log_reopen();
	start(NULL, 0);
	log_reopen();
	log_info("test", "here");
	log_stop();
	assert_holds(err_path, PREFIX "info  test: here\n");
}

TEST_MAIN(.setup = setup, .teardown = teardown)
