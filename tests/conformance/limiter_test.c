/* The promises of the role `limiter`: in memory, on one Redis and on a ring of two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/redis_server.h"
#include "limiter/backends.h"
#include "os/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LONG_MS = 3600 * 1000, SHORT_MS = 60, PATIENCE_MS = 20000 };

static struct redis_server servers[2];
static char urls[160];
static int (*open_one)(struct limiter **ret, struct err *e);
static struct limiter *a, *b; /* two servers */
static uint64_t next_owner;

static int open_memory(struct limiter **ret, struct err *e)
{
	return limiter_memory_open("a test", ret, e);
}

static int open_redis(struct limiter **ret, struct err *e)
{
	return limiter_redis_open(urls, ret, e);
}

static int both_up(void **state)
{
	(void)state;
	struct err e = {""};
	if (open_one(&a, &e) != 0 || open_one(&b, &e) != 0)
		fail_msg("%s", e.text);
	return 0;
}

static int both_down(void **state)
{
	(void)state;
	a->ops->free(a);
	b->ops->free(b);
	return 0;
}

static struct limiter_use settle_one(struct limiter *l, uint64_t owner, char what, uint32_t period_ms,
                                     int64_t delta)
{
	struct limiter_use use = {.owner = owner, .what = what, .period_ms = period_ms, .delta = delta};
	unsigned count = 0;
	assert_int_equal(l->ops->settle(l, &use, 1, &count), 0);
	assert_true(use.settled);
	assert_in_range(count, 1, 2);
	return use;
}

static void uses_of_all_servers_add_up(void **state)
{
	(void)state;
	uint64_t owner = next_owner++;
	struct limiter_use first = settle_one(a, owner, 'c', LONG_MS, 3);
	assert_int_equal(first.used, 3);
	assert_true(first.period != 0);
	assert_in_range(first.left_ms, 1, LONG_MS);
	struct limiter_use second = settle_one(b, owner, 'c', LONG_MS, 4);
	assert_int_equal(second.used, 7);
	assert_int_equal(second.period, first.period);
	assert_true(second.left_ms <= first.left_ms);
	assert_int_equal(settle_one(a, owner, 'c', LONG_MS, 0).used, 7);
}

static void budgets_of_others_other_kinds_and_other_periods_are_apart(void **state)
{
	(void)state;
	uint64_t owner = next_owner++;
	settle_one(a, owner, 'c', LONG_MS, 5);
	assert_int_equal(settle_one(a, owner, 'r', LONG_MS, 1).used, 1);
	assert_int_equal(settle_one(a, next_owner++, 'c', LONG_MS, 1).used, 1);
	assert_int_equal(settle_one(a, owner, 'c', LONG_MS + 1, 1).used, 1);
	assert_int_equal(settle_one(a, owner, 'c', LONG_MS, 0).used, 5);
	assert_int_equal(settle_one(a, UINT64_MAX, 'c', LONG_MS, 2).used, 2);
}

static void what_is_given_back_counts_no_more_and_never_below_nothing(void **state)
{
	(void)state;
	uint64_t owner = next_owner++;
	settle_one(a, owner, 'c', LONG_MS, 5);
	assert_int_equal(settle_one(b, owner, 'c', LONG_MS, -2).used, 3);
	assert_int_equal(settle_one(b, owner, 'c', LONG_MS, -10).used, 0);
	assert_int_equal(settle_one(a, owner, 'c', LONG_MS, 1).used, 1);
}

static void looking_begins_no_period(void **state)
{
	(void)state;
	uint64_t owner = next_owner++;
	for (int64_t delta = 0; delta >= -1; delta--) {
		struct limiter_use use = settle_one(a, owner, 'c', LONG_MS, delta);
		assert_int_equal(use.used, 0);
		assert_int_equal(use.left_ms, 0);
		assert_int_equal(use.period, 0);
	}
}

static void a_period_ends_and_the_next_one_begins_at_nothing(void **state)
{
	(void)state;
	uint64_t owner = next_owner++;
	struct limiter_use first = settle_one(a, owner, 'c', SHORT_MS, 9), now = first;
	assert_in_range(first.left_ms, 1, SHORT_MS);
	for (int64_t end_ms = clock_mono_ms() + PATIENCE_MS; now.period && clock_mono_ms() < end_ms;) {
		nanosleep(&(struct timespec){.tv_nsec = 2000000L}, NULL);
		now = settle_one(a, owner, 'c', SHORT_MS, 0);
	}
	assert_int_equal(now.used, 0);
	struct limiter_use next = settle_one(b, owner, 'c', LONG_MS, 1);
	assert_int_equal(next.used, 1);
	next = settle_one(b, owner, 'c', SHORT_MS, 1);
	assert_int_equal(next.used, 1);
	assert_int_not_equal(next.period, first.period);
}

static void many_budgets_are_settled_in_one_call(void **state)
{
	(void)state;
	enum { MANY = 700 };
	struct limiter_use *uses = calloc(MANY, sizeof(*uses));
	unsigned count = 0;
	for (int round = 1; round <= 2; round++) {
		for (size_t i = 0; i < MANY; i++)
			uses[i] = (struct limiter_use){
			    .owner = 1000000 + i, .what = 'r', .period_ms = LONG_MS, .delta = (int64_t)i + 1};
		assert_int_equal(a->ops->settle(a, uses, MANY, &count), 0);
		for (size_t i = 0; i < MANY; i++)
			assert_int_equal(uses[i].used, round * (i + 1));
	}
	free(uses);
}

static void the_servers_that_settle_are_counted(void **state)
{
	(void)state;
	unsigned count = 0;
	struct limiter *third;
	struct err e;
	assert_int_equal(open_one(&third, &e), 0);
	assert_int_equal(a->ops->settle(a, NULL, 0, &count), 0);
	assert_int_equal(b->ops->settle(b, NULL, 0, &count), 0);
	unsigned before = count;
	assert_in_range(before, 2, 2);
	assert_int_equal(third->ops->settle(third, NULL, 0, &count), 0);
	assert_int_equal(count, before + 1);
	third->ops->free(third);
	assert_int_equal(a->ops->settle(a, NULL, 0, &count), 0);
	assert_int_equal(count, before);
}

static void a_server_that_settles_no_more_is_not_counted_after_a_while(void **state)
{
	(void)state;
	unsigned count = 0;
	assert_int_equal(b->ops->settle(b, NULL, 0, &count), 0);
	assert_int_equal(a->ops->settle(a, NULL, 0, &count), 0);
	assert_int_equal(count, 2);
	for (int64_t end_ms = clock_mono_ms() + PATIENCE_MS; count != 1 && clock_mono_ms() < end_ms;) {
		nanosleep(&(struct timespec){.tv_nsec = 20000000L}, NULL);
		assert_int_equal(a->ops->settle(a, NULL, 0, &count), 0);
	}
	assert_int_equal(count, 1);
}

struct adder {
	struct limiter *limiter;
	uint64_t owner;
};

static void *add(void *arg)
{
	struct adder *adder = arg;
	for (int i = 0; i < 100; i++)
		settle_one(adder->limiter, adder->owner, 'c', LONG_MS, 1);
	return NULL;
}

static void nothing_is_lost_between_threads_and_servers(void **state)
{
	(void)state;
	uint64_t owner = next_owner++;
	struct adder adders[4];
	pthread_t threads[ARRAY_LEN(adders)];
	for (size_t i = 0; i < ARRAY_LEN(adders); i++) {
		adders[i] = (struct adder){.limiter = i % 2 ? a : b, .owner = owner};
		assert_int_equal(pthread_create(&threads[i], NULL, add, &adders[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(adders); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(settle_one(a, owner, 'c', LONG_MS, 0).used, 400);
}

static void it_answers(void **state)
{
	(void)state;
	struct err e = {""};
	assert_int_equal(a->ops->ping(a, &e), 0);
}

static int run(const char *name)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(uses_of_all_servers_add_up),
	    cmocka_unit_test(budgets_of_others_other_kinds_and_other_periods_are_apart),
	    cmocka_unit_test(what_is_given_back_counts_no_more_and_never_below_nothing),
	    cmocka_unit_test(looking_begins_no_period),
	    cmocka_unit_test(a_period_ends_and_the_next_one_begins_at_nothing),
	    cmocka_unit_test(many_budgets_are_settled_in_one_call),
	    cmocka_unit_test(nothing_is_lost_between_threads_and_servers),
	    cmocka_unit_test(the_servers_that_settle_are_counted),
	    cmocka_unit_test(it_answers),
	};
	next_owner = 1;
	return cmocka_run_group_tests_name(name, tests, both_up, both_down);
}

/* It takes seconds: once is enough. */
static int run_patient(const char *name)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_server_that_settles_no_more_is_not_counted_after_a_while),
	};
	return cmocka_run_group_tests_name(name, tests, both_up, both_down);
}

int main(void)
{
	open_one = open_memory;
	int failed = run("memory");
	if (!redis_server_exists()) {
		printf("redis-tools is not installed\n[  SKIPPED ] all of 19 test(s)\n");
		return failed;
	}
	open_one = open_redis;
	redis_server_start(&servers[0], NULL);
	redis_server_start(&servers[1], NULL);
	snprintf(urls, sizeof(urls), "%s/1", servers[0].url);
	failed += run("redis");
	failed += run_patient("redis, later");
	snprintf(urls, sizeof(urls), "%s,%s", servers[0].url, servers[1].url);
	failed += run("a ring of redis");
	redis_server_stop(&servers[0]);
	redis_server_stop(&servers[1]);
	return failed;
}
