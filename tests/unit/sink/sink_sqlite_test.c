/* What the SQLite sink promises beyond the role; the role itself is in tests/conformance/sink_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "lib/sink_model.h"
#include "lib/temp.h"
#include "os/file.h"
#include "sink/sink_sqlite.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t start_ms = 1790000000000 / 86400000 * 86400000, day_ms = 86400000;
static const struct sink_settings settings = {.minutes_ms = 2 * 86400000ULL,
                                              .hours_ms = 60 * 86400000ULL,
                                              .visits_ms = 90 * 86400000ULL,
                                              .impressions_ms = 35 * 86400000ULL,
                                              .seen_ms = 86400000ULL};
static struct temp folder;
static char path[TEMP_PATH_BYTES];
static struct err error;

static int setup(void **state)
{
	(void)state;
	temp_init(&folder);
	temp_path(&folder, "stats.db", path);
	error.text[0] = '\0';
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	temp_release(&folder);
	return 0;
}

static struct sink *open_sink(void)
{
	struct sink *s = NULL;
	assert_int_equal(sink_sqlite_open(path, &settings, &s, &error), 0);
	return s;
}

static void the_file_is_its_owners_alone(void **state)
{
	(void)state;
	struct sink *s = open_sink();
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	s->ops->free(s);
}

static void a_file_in_use_is_not_opened_again(void **state)
{
	(void)state;
	struct sink *s = open_sink(), *other = NULL;
	assert_int_equal(sink_sqlite_open(path, &settings, &other, &error), ERR_BUSY);
	assert_non_null(strstr(error.text, "in use"));
	s->ops->free(s);
	s = open_sink();
	s->ops->free(s);
}

static void what_is_no_stats_file_is_refused_and_left_alone(void **state)
{
	(void)state;
	struct sink *s = NULL;
	struct str text = STR(
	    "this is a text that somebody keeps, and no database of any kind at all......\n");
	assert_int_equal(file_write_atomic(path, text, 0600, NULL), 0);
	assert_int_equal(sink_sqlite_open(path, &settings, &s, &error), ERR_INVALID);
	assert_true(strlen(error.text) > 0);
	CLEANUP(buf_release) struct buf now = {0};
	assert_int_equal(file_read(path, 1000, &now, NULL), 0);
	assert_true(str_eq(buf_view(&now), text));
}

static void a_folder_that_is_missing_is_said(void **state)
{
	(void)state;
	struct sink *s = NULL;
	temp_path(&folder, "no/such/stats.db", path);
	assert_int_equal(sink_sqlite_open(path, &settings, &s, &error), ERR_UNAVAILABLE);
	assert_true(strlen(error.text) > 0);
}

static void set_version(const char *value)
{
	sqlite3 *db;
	char sql[64];
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	snprintf(sql, sizeof(sql), "PRAGMA user_version = %s", value);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void a_file_of_a_newer_version_is_refused(void **state)
{
	(void)state;
	struct sink *s = open_sink();
	s->ops->free(s);
	set_version("1000");
	assert_int_equal(sink_sqlite_open(path, &settings, &s, &error), ERR_INVALID);
	assert_non_null(strstr(error.text, "newer"));
}

/* Pages of random bytes where the tables were: answers may be errors, never a crash. */
static void a_damaged_file_gives_errors(void **state)
{
	(void)state;
	struct model m;
	model_init(&m, 3, day_ms);
	struct sink *s = open_sink();
	for (int i = 0; i < 3; i++)
		model_commit(&m, s, 700, 300, start_ms, start_ms + day_ms, start_ms + day_ms);
	while (s->ops->tidy(s, start_ms + 10 * day_ms) > 0)
		;
	s->ops->free(s);
	CLEANUP(buf_release) struct buf whole = {0};
	assert_int_equal(file_read(path, 64 << 20, &whole, NULL), 0);
	for (int round = 0; round < 40; round++) {
		CLEANUP(buf_release) struct buf bad = {0};
		struct arena arena = {0};
		buf_append(&bad, whole.data, whole.len);
		for (int k = 0; k < 40; k++)
			bad.data[4096 + model_random(&m, bad.len - 4096)] = (char)model_random(&m, 256);
		assert_int_equal(file_write_atomic(path, buf_view(&bad), 0600, NULL), 0);
		if (sink_sqlite_open(path, &settings, &s, &error) != 0)
			continue;
		struct stats_query q = {.link = round % 2,
		                        .from_ms = start_ms + 5,
		                        .to_ms = start_ms + day_ms - 5,
		                        .dims_wanted = 0xff,
		                        .shares_max = 5,
		                        .arena = &arena};
		struct window_query w = {
		    .from_ms = start_ms + 7, .to_ms = start_ms + day_ms - 7, .arena = &arena};
		struct visits_query v = {
		    .link = round % 2, .from_ms = 0, .to_ms = INT64_MAX, .limit = 500, .arena = &arena};
		struct sink_books books;
		s->ops->stats(s, &q);
		s->ops->window(s, &w);
		s->ops->visits(s, &v);
		s->ops->books(s, true, &books);
		for (int k = 0; k < 20 && s->ops->tidy(s, start_ms + 100 * day_ms) > 0; k++)
			;
		s->ops->free(s);
		arena_release(&arena);
	}
	model_release(&m);
}

static struct sink_visit *many_visits(size_t count)
{
	struct sink_visit *visits = calloc(count, sizeof(*visits));
	assert_non_null(visits);
	for (size_t i = 0; i < count; i++)
		visits[i] = (struct sink_visit){.time_ms = start_ms + (int64_t)(i % 7000) * 20,
		                                .link = 1 + i % 3000,
		                                .visitor = 1 + i % 50,
		                                .address_len = 6,
		                                .agent = SINK_NO_TEXT,
		                                .referrer = SINK_NO_TEXT,
		                                .place = SINK_NO_TEXT,
		                                .path = SINK_NO_TEXT};
	return visits;
}

/* So many fresh ones gather that a commit digests them by itself. */
static void commits_alone_keep_the_fresh_part_bounded(void **state)
{
	(void)state;
	enum { BATCH = 50000, BATCHES = 24 };
	struct sink *s = open_sink();
	struct visit_shape shape = {.kind = VISIT_CLICK};
	struct sink_visit *visits = many_visits(BATCH);
	struct arena arena = {0};
	uint64_t duplicates;
	for (int i = 0; i < BATCHES; i++) {
		struct sink_batch batch = {.visits = visits,
		                           .visit_count = BATCH,
		                           .shapes = &shape,
		                           .shape_count = 1,
		                           .now_ms = start_ms,
		                           .tally = {.clicks = BATCH}};
		assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
	}
	struct stats_query q = {.link = 5, .from_ms = start_ms, .to_ms = start_ms + day_ms, .arena = &arena};
	struct sink_books books;
	struct top_links_query t = {.from_ms = 0, .to_ms = INT64_MAX, .limit = 5000, .arena = &arena};
	assert_int_equal(s->ops->top_links(s, &t), 0);
	assert_int_equal(t.count, 3000);
	assert_int_equal(t.links[0].clicks, BATCHES * (BATCH / 3000 + 1));
	assert_int_equal(s->ops->stats(s, &q), 0);
	assert_int_equal(q.clicks, BATCHES * ((BATCH + 2995) / 3000));
	assert_int_equal(s->ops->books(s, true, &books), 0);
	assert_int_equal(books.clicks_in_rollups, BATCH * BATCHES);
	assert_int_equal(books.visit_rows, BATCH * BATCHES);
	char wal[TEMP_PATH_BYTES];
	struct stat st;
	assert_int_equal(stat(temp_path(&folder, "stats.db-wal", wal), &st), 0);
	assert_in_range(st.st_size, 1, 100 << 20); /* the log is moved into the file as it grows */
	s->ops->free(s);
	sqlite3 *db;
	sqlite3_stmt *stmt;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "SELECT sum(visits) FROM fresh", -1, &stmt, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_in_range(sqlite3_column_int64(stmt, 0), BATCH, 262144 + BATCH);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	free(visits);
	arena_release(&arena);
}

static void made_up_ads_are_bounded(void **state)
{
	(void)state;
	enum { BATCH = 21000, BATCHES = 10 };
	struct sink *s = open_sink();
	struct sink_impression *impressions = calloc(BATCH, sizeof(*impressions));
	struct arena arena = {0};
	uint64_t duplicates;
	for (unsigned b = 0; b < BATCHES; b++) {
		for (unsigned i = 0; i < BATCH; i++) {
			uint64_t number = b * BATCH + i;
			impressions[i] = (struct sink_impression){.time_ms = start_ms,
			                                          .received_ms = start_ms};
			impressions[i].ad = arena_printf(&arena, "ad %llu", (unsigned long long)number);
			impressions[i].id = impressions[i].user = STR("x");
			memcpy(impressions[i].fingerprint, &number, sizeof(number));
		}
		struct sink_batch batch = {
		    .impressions = impressions, .impression_count = BATCH, .now_ms = start_ms};
		assert_int_equal(s->ops->commit(s, &batch, &duplicates), 0);
		assert_int_equal(duplicates, 0);
	}
	struct window_query w = {.from_ms = start_ms - 1, .to_ms = start_ms, .arena = &arena};
	uint64_t sum = 0;
	assert_int_equal(s->ops->window(s, &w), 0);
	for (size_t i = 0; i < w.count; i++)
		sum += w.ads[i].count;
	assert_int_equal(sum, BATCH * BATCHES);
	assert_int_equal(w.count, 200001);
	assert_true(str_eq(w.ads[0].ad, STR("(other)")));
	s->ops->free(s);
	free(impressions);
	arena_release(&arena);
}

/* Commits one visit after the other, and says so, until it is killed. */
static void commit_until_killed(int out)
{
	struct sink *s = open_sink();
	struct visit_shape shape = {.kind = VISIT_CLICK};
	struct sink_visit *visits = many_visits(100);
	uint64_t duplicates;
	for (uint64_t n = 1;; n++) {
		struct sink_position position = {.segment = 1, .offset = n * 100};
		struct sink_batch batch = {.visits = visits,
		                           .visit_count = 100,
		                           .shapes = &shape,
		                           .shape_count = 1,
		                           .positions = &position,
		                           .position_count = 1,
		                           .now_ms = start_ms,
		                           .tally = {.clicks = 100}};
		if (s->ops->commit(s, &batch, &duplicates) != 0 || write(out, &n, sizeof(n)) != sizeof(n))
			_exit(1);
		if (n % 20 == 0)
			s->ops->tidy(s, start_ms + 120000 + (int64_t)n * 1000000);
	}
}

static void a_killed_process_loses_nothing_that_was_committed(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 6; round++) {
		const uint64_t wanted = 30 + 23 * round; /* commits, then it is killed in one of the next */
		int ends[2];
		assert_int_equal(pipe(ends), 0);
		unlink(path);
		char wal[TEMP_PATH_BYTES];
		unlink(temp_path(&folder, "stats.db-wal", wal));
		unlink(temp_path(&folder, "stats.db-shm", wal));
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0)
			commit_until_killed(ends[1]);
		close(ends[1]);
		uint64_t said = 0, n;
		while (said < wanted && read(ends[0], &n, sizeof(n)) == sizeof(n))
			said = n;
		kill(child, SIGKILL);
		int status;
		waitpid(child, &status, 0);
		assert_true(WIFSIGNALED(status));
		assert_true(said >= wanted);
		while (read(ends[0], &n, sizeof(n)) == sizeof(n))
			said = n;
		close(ends[0]);
		struct sink *s = open_sink();
		struct arena arena = {0};
		struct sink_position *positions;
		size_t count;
		struct sink_books books;
		assert_int_equal(s->ops->resume(s, &arena, &positions, &count), 0);
		assert_int_equal(count, 1);
		assert_in_range(positions[0].offset, said * 100, (said + 1) * 100);
		assert_int_equal(s->ops->books(s, true, &books), 0);
		assert_int_equal(books.tally.clicks, positions[0].offset);
		assert_int_equal(books.clicks_in_rollups, positions[0].offset);
		s->ops->free(s);
		arena_release(&arena);
	}
}

#define SQLITE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    SQLITE_TEST(the_file_is_its_owners_alone),
	    SQLITE_TEST(a_file_in_use_is_not_opened_again),
	    SQLITE_TEST(what_is_no_stats_file_is_refused_and_left_alone),
	    SQLITE_TEST(a_folder_that_is_missing_is_said),
	    SQLITE_TEST(a_file_of_a_newer_version_is_refused),
	    SQLITE_TEST(a_damaged_file_gives_errors),
	    SQLITE_TEST(commits_alone_keep_the_fresh_part_bounded),
	    SQLITE_TEST(made_up_ads_are_bounded),
	    SQLITE_TEST(a_killed_process_loses_nothing_that_was_committed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
