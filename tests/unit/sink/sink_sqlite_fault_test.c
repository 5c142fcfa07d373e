/*
 * A disk that fails under the SQLite sink: for every N, the N-th call of a kind fails, once or until it is
 * mended. A commit that failed left nothing, the same batch is taken when the disk is well, and nothing is
 * counted twice; what a crash right after the failure would have left is whole as well, and its position
 * says how far it goes.
 */
#include "lib/sink_model.h"
#include "lib/sqlite_sys.h"
#include "lib/test.h"
#include "sink/sink_sqlite.h"

#include <sqlite3.h>
#include <sys/wait.h>

static const int64_t hour_ms = 3600000;
static const int64_t start_ms = 1790000000000 / 86400000 * 86400000;
/* A window so short that each commit seals the fingerprints of the one before. */
static const struct sink_settings settings = {.minutes_ms = 3600000,
                                              .hours_ms = 7200000,
                                              .visits_ms = 90 * 86400000ULL,
                                              .impressions_ms = 35 * 86400000ULL,
                                              .seen_ms = 3 * 3600000};

static struct temp folder;
static struct model model;
static struct sink *sink;
static unsigned failures;

int fdatasync(int fd)
{
	return sqlite_sys_fdatasync(fd);
}

static struct sink *open_named(const char *name)
{
	char path[TEMP_PATH_BYTES];
	struct sink *s = NULL;
	struct err e = {""};
	int r = sink_sqlite_open(temp_path(&folder, name, path), &settings, &s, &e);
	if (r != 0)
		assert_true(strlen(e.text) > 0);
	return s;
}

static void copy_file(const char *from_name, const char *to_name)
{
	char bytes[65536], path[TEMP_PATH_BYTES];
	ssize_t len;
	int from = open(temp_path(&folder, from_name, path), O_RDONLY);
	unlink(temp_path(&folder, to_name, path));
	if (from < 0)
		return;
	int to = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	while ((len = read(from, bytes, sizeof(bytes))) > 0)
		if (write(to, bytes, (size_t)len) != len)
			_exit(1);
	close(from);
	close(to);
}

/* What the files would be after kill -9. Another process copies, as closing a descriptor here would drop
 * SQLite's locks. */
static void take_image(void)
{
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		copy_file("stats.db", "image.db");
		copy_file("stats.db-wal", "image.db-wal");
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* The image balances, and holds as many visits as its position says. */
static void check_image(void)
{
	struct arena arena = {0};
	struct sink *s = open_named("image.db");
	struct position *positions;
	struct reconciliation reconciliation;
	size_t count;
	assert_non_null(s);
	assert_int_equal(s->ops->resume(s, 0, &arena, &positions, &count), 0);
	assert_int_equal(s->ops->reconciliation(s, 0, true, &reconciliation), 0);
	uint64_t visits = count ? positions[0].offset : 0;
	assert_int_equal(reconciliation.tally.clicks + reconciliation.tally.orphans, visits);
	assert_int_equal(reconciliation.clicks_in_rollups, reconciliation.tally.clicks);
	assert_int_equal(reconciliation.orphans_in_rollups, reconciliation.tally.orphans);
	assert_int_equal(reconciliation.visit_rows, visits);
	assert_int_equal(reconciliation.impressions_counted + reconciliation.duplicates,
	                 reconciliation.tally.impressions);
	assert_true(visits >= model.visit_count); /* nothing that was acknowledged is missing */
	s->ops->free(s);
	arena_release(&arena);
}

static void commit_failed(int r)
{
	assert_true(r == ERR_UNAVAILABLE || r == ERR_NOMEM || r == ERR_CORRUPT);
	failures++;
	struct err e = {""};
	assert_true(sink->ops->ping(sink, &e) < 0);
	assert_true(strlen(e.text) > 0);
	take_image();
	sqlite_sys_clear();
	check_image();
}

static void note(int r)
{
	if (r < 0)
		failures++;
}

/* An answer is right or an error; which one the model says when the disk is well. */
static void ask(int64_t to_ms)
{
	struct arena arena = {0};
	struct stats_query q = {.link = 1, .from_ms = start_ms + 1, .to_ms = to_ms, .arena = &arena};
	struct window_query w = {.from_ms = start_ms, .to_ms = to_ms, .arena = &arena};
	struct visits_query v = {.link = 1, .from_ms = 0, .to_ms = to_ms, .limit = 9, .arena = &arena};
	struct top_links_query t = {.from_ms = 0, .to_ms = to_ms, .limit = 3, .arena = &arena};
	note(sink->ops->stats(sink, &q));
	note(sink->ops->window(sink, &w));
	note(sink->ops->visits(sink, &v));
	note(sink->ops->top_links(sink, &t));
	arena_release(&arena);
}

/* Some commits with everything in between that writes. */
static void work(void)
{
	struct arena arena = {0};
	for (int i = 0; i < 4; i++) {
		int64_t now_ms = start_ms + (i + 1) * hour_ms;
		model_commit_again(&model, sink, 40, 30, start_ms, now_ms, now_ms, commit_failed);
		struct sink_total *totals;
		size_t count;
		if (i % 2 == 0) {
			int r = sink->ops->totals(sink, 3, &arena, &totals, &count);
			note(r);
			if (r == 0)
				note(sink->ops->totals_flushed(sink, totals, count));
		}
		for (int k = 0; k < 5; k++)
			note(sink->ops->retention(sink, now_ms + 2 * 60000));
		ask(now_ms);
		note(sink->ops->sync(sink));
		note(sink->ops->forget(sink, 0, (uint64_t[]){1}, 1));
	}
	arena_release(&arena);
}

/* False when the fault was never met. */
static bool run_with_fault(const struct sqlite_fault *fault)
{
	temp_init(&folder);
	model_init(&model, fault->at, (int64_t)settings.seen_ms);
	failures = 0;
	sink = open_named("stats.db");
	assert_non_null(sink);
	sqlite_sys_fail(fault);
	work();
	bool met = failures > 0 || sqlite_sys_clear() >= fault->at;
	sqlite_sys_clear();
	int64_t end_ms = start_ms + 5 * hour_ms;
	model_commit(&model, sink, 20, 20, start_ms, end_ms, end_ms);
	for (int again = 0; again < 2; again++) {
		model_check_all(&model, sink, start_ms, end_ms, STEP_DAY, 3);
		model_check_books(&model, sink, true);
		model_check_totals(&model, sink);
		sink->ops->free(sink);
		sink = open_named("stats.db");
		assert_non_null(sink);
	}
	assert_int_equal(sink->ops->ping(sink, NULL), 0);
	sink->ops->free(sink);
	model_release(&model);
	temp_release(&folder);
	return met;
}

static void sweep(struct sqlite_fault fault, unsigned long stride)
{
	stride = sqlite_sys_stride(stride);
	for (int for_good = 0; for_good < 2; for_good++) {
		fault.for_good = for_good;
		for (fault.at = 1; run_with_fault(&fault); fault.at += stride)
			;
		assert_true(fault.at > stride); /* it was met at least once */
	}
}

TEST(a_write_that_fails_leaves_nothing_and_the_same_batch_is_taken_later)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_WRITE, .error = EIO}, 37);
}

TEST(a_sync_that_fails_loses_nothing)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_SYNC, .error = EIO}, 1);
}

TEST(a_read_that_fails_loses_nothing)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_READ, .error = EIO}, 1);
}

TEST(memory_that_runs_out_loses_nothing)
{
	sweep((struct sqlite_fault){.call = SQLITE_SYS_MALLOC}, 157);
}

static bool file_is_dirty, file_was_written;

static void watch(const struct sqlite_event *event)
{
	if (!str_ends(str_of(event->path), STR("stats.db")))
		return;
	if (event->kind == SQLITE_EVENT_WRITE)
		file_is_dirty = file_was_written = true;
	else if (event->kind == SQLITE_EVENT_SYNC)
		file_is_dirty = false;
}

TEST(what_is_settled_has_been_synced)
{
	temp_init(&folder);
	model_init(&model, 1, (int64_t)settings.seen_ms);
	sink = open_named("stats.db");
	assert_non_null(sink);
	sqlite_sys_watch(watch);
	for (int i = 1; i < 4; i++) {
		file_is_dirty = file_was_written = false;
		model_commit(&model, sink, 100, 100, start_ms, start_ms + hour_ms, start_ms + i * hour_ms);
		assert_false(file_was_written); /* it is in the log */
		assert_int_equal(sink->ops->sync(sink), 0);
		assert_true(file_was_written);
		assert_false(file_is_dirty);
	}
	sqlite_sys_watch(NULL);
	sink->ops->free(sink);
	model_release(&model);
	temp_release(&folder);
}

int main(void)
{
	sqlite_sys_install();
	return RUN_TESTS();
}
