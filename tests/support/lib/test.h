/* What every test in C includes: cmocka with the headers it needs, TEST to define a test, UNTIL to wait.
 *
 *     TEST(a_key_is_taken_once)
 *     {
 *             assert_int_equal(take(), 0);
 *     }
 *
 *     TEST_MAIN(.setup = open_store, .teardown = close_store)
 *
 * TEST adds the function to the tests of its file, in the order of the file. TEST_MAIN runs them. A test with
 * a setup and teardown of its own names them: TEST(name, setup, teardown). A file whose tests need different
 * group fixtures has a list for each: TEST_IN(list, name), RUN_LIST(list, …). */
#pragma once

#include "base/def.h"
#include "base/err.h"
#include "lib/temp.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The tests of one file. */
struct test_list {
	struct CMUnitTest tests[128];
	size_t count;
};

/* What runs around all tests of a file, and around each test that names nothing of its own. */
struct test_fixtures {
	const char *name; /* of the group; the file's otherwise */
	CMFixtureFunction group_setup, group_teardown;
	CMFixtureFunction setup, teardown;
};

__attribute__((unused)) static struct test_list test_list;

static inline void test_add(struct test_list *list, struct CMUnitTest test)
{
	if (list->count == ARRAY_LEN(list->tests))
		abort(); /* the file is too long */
	list->tests[list->count++] = test;
}

static inline int test_list_run(const char *file, const struct test_list *list,
                                const struct test_fixtures *around)
{
	struct test_list run = *list;
	for (size_t i = 0; i < run.count; i++) {
		struct CMUnitTest *test = &run.tests[i];
		if (test->setup_func || test->teardown_func)
			continue;
		test->setup_func = around->setup;
		test->teardown_func = around->teardown;
	}
	return _cmocka_run_group_tests(around->name ? around->name : file, run.tests, run.count,
	                               around->group_setup, around->group_teardown);
}

#define TEST_IN(list, name, ...)                                                    \
	static void name(void **state);                                             \
	__attribute__((constructor)) static void add_##name(void)                   \
	{                                                                           \
		test_add(&(list), (struct CMUnitTest){#name, name, ##__VA_ARGS__}); \
	}                                                                           \
	static void name(void **state)

#define TEST(name, ...) TEST_IN(test_list, name, ##__VA_ARGS__)

#define RUN_LIST(list, ...) test_list_run(__FILE_NAME__, &(list), &(struct test_fixtures){__VA_ARGS__})
#define RUN_TESTS(...)      RUN_LIST(test_list, __VA_ARGS__)

#define TEST_MAIN(...)                         \
	int main(void)                         \
	{                                      \
		return RUN_TESTS(__VA_ARGS__); \
	}

/* A call that must succeed: MUST(store_open(url, &store, &why)). If it fails, its sentence is the test's. */
#define MUST(call)                                \
	do {                                      \
		struct err why = {""};            \
		if ((call) < 0)                   \
			fail_msg("%s", why.text); \
	} while (0)

/* Waits for a condition: looks again and again, and fails the test after this long. By the system's own clock,
 * which runs on where a test has stopped ours. */
enum { UNTIL_MS = 30000 };

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

/* Does a thread of this process wait for something? With UNTIL, a test goes on when another thread has come
 * to where it must wait. */
static inline bool thread_is_asleep(pid_t thread)
{
	char path[64], state = '?';
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	FILE *f = fopen(path, "r");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	if (f)
		fclose(f);
	return state == 'S';
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
