#include "auth/throttle.h"
#include "lib/test.h"

#include <sched.h>

/* A name is a hash: its low bits choose the set, its high ones are the tag. */
#define NAME(set, tag) ((uint64_t)(tag) << 44 | (set))

enum { WAYS = 4, HOUR_MS = 3600 * 1000 };
#define WRAP_MS (((int64_t)1 << 24) * 1000 / 16)

static const int64_t start_ms = 50 * WRAP_MS + 12345678;
static const struct throttle_rule five = {.max = 5, .period_ms = 60000};
static struct throttle *throttle;

static int setup(void **state)
{
	throttle = throttle_new();
	return throttle ? 0 : -1;
}

static int teardown(void **state)
{
	throttle_free(throttle);
	return 0;
}

static bool take(uint64_t name, int64_t now_ms)
{
	return throttle_take(throttle, name, &five, now_ms, NULL);
}

static bool is_spent(uint64_t name, int64_t now_ms)
{
	return throttle_is_spent(throttle, name, &five, now_ms, NULL);
}

/* How many it takes until none is left. */
static unsigned take_all(uint64_t name, int64_t now_ms)
{
	unsigned taken = 0;
	while (take(name, now_ms))
		taken++;
	return taken;
}

TEST(a_period_allows_exactly_its_number)
{
	struct meter_reading r;
	uint64_t name = NAME(7, 99);
	assert_false(throttle_is_spent(throttle, name, &five, start_ms, &r));
	assert_int_equal(r.limit, 5);
	assert_int_equal(r.remaining, 5);
	assert_int_equal(r.reset_ms, 0);
	for (uint32_t i = 0; i < 5; i++) {
		assert_false(is_spent(name, start_ms + i));
		assert_true(throttle_take(throttle, name, &five, start_ms + i, &r));
		assert_int_equal(r.limit, 5);
		assert_int_equal(r.remaining, 4 - i);
	}
	assert_true(is_spent(name, start_ms + 10));
	for (int i = 0; i < 100; i++)
		assert_false(throttle_take(throttle, name, &five, start_ms + 500 * i, &r));
	assert_int_equal(r.remaining, 0);
	assert_true(take(NAME(7, 98), start_ms)); /* others are not concerned */
}

TEST(a_period_ends_when_it_was_said)
{
	struct meter_reading r;
	uint64_t name = NAME(7, 99);
	for (int64_t first_ms = start_ms; first_ms < start_ms + 130; first_ms += 13) {
		assert_true(throttle_take(throttle, name, &five, first_ms, &r));
		assert_in_range(r.reset_ms, 60000 - 63, 60000);
		int64_t end_ms = first_ms + r.reset_ms;
		assert_int_equal(take_all(name, first_ms + 20), 4);
		assert_false(throttle_take(throttle, name, &five, end_ms - 1, &r));
		assert_int_equal(r.reset_ms, 1);
		assert_true(throttle_is_spent(throttle, name, &five, end_ms - 1, &r));
		assert_int_equal(r.reset_ms, 1);
		assert_false(is_spent(name, end_ms));
		assert_int_equal(take_all(name, end_ms), 5);
		name += 1;
	}
}

TEST(without_a_bound_nothing_is_kept)
{
	static const struct throttle_rule none = {.max = 0, .period_ms = 60000};
	struct meter_reading r = {.limit = 9};
	for (int i = 0; i < 1000; i++)
		assert_true(throttle_take(throttle, NAME(1, 1), &none, start_ms, &r));
	assert_int_equal(r.limit, 0);
	assert_false(throttle_is_spent(throttle, NAME(1, 1), &none, start_ms, NULL));
	throttle_refund(throttle, NAME(1, 1), &none, start_ms);
	assert_false(throttle_any_spent(throttle, start_ms));
	assert_int_equal(take_all(NAME(1, 1), start_ms), 5);
}

TEST(a_bound_that_is_too_large_is_the_largest)
{
	static const struct throttle_rule large = {.max = UINT32_MAX, .period_ms = UINT32_MAX};
	struct meter_reading r;
	for (unsigned i = 0; i < THROTTLE_MAX; i++)
		assert_true(throttle_take(throttle, NAME(1, 1), &large, start_ms, &r));
	assert_int_equal(r.limit, THROTTLE_MAX);
	assert_int_equal(r.remaining, 0);
	assert_in_range(r.reset_ms, THROTTLE_PERIOD_MS_MAX - 63, THROTTLE_PERIOD_MS_MAX);
	assert_false(throttle_take(throttle, NAME(1, 1), &large, start_ms, &r));
	assert_true(throttle_take(throttle, NAME(1, 1), &large, start_ms + THROTTLE_PERIOD_MS_MAX, &r));
}

TEST(a_very_short_period_is_a_sixteenth_of_a_second)
{
	static const struct throttle_rule quick = {.max = 1, .period_ms = 1};
	struct meter_reading r;
	assert_true(throttle_take(throttle, NAME(1, 1), &quick, start_ms, &r));
	assert_in_range(r.reset_ms, 1, 63);
	assert_false(throttle_take(throttle, NAME(1, 1), &quick, start_ms, NULL));
	assert_true(throttle_take(throttle, NAME(1, 1), &quick, start_ms + 63, NULL));
}

TEST(a_refund_gives_one_back_within_the_period)
{
	uint64_t name = NAME(7, 99);
	throttle_refund(throttle, name, &five, start_ms); /* there is nothing to give back */
	assert_int_equal(take_all(name, start_ms), 5);
	throttle_refund(throttle, name, &five, start_ms + 1000);
	throttle_refund(throttle, name, &five, start_ms + 1000);
	assert_false(is_spent(name, start_ms + 1000));
	assert_int_equal(take_all(name, start_ms + 1000), 2);
	throttle_refund(throttle, name, &five, start_ms + 60000); /* that period is over */
	assert_int_equal(take_all(name, start_ms + 60000), 5);
	for (int i = 0; i < 20; i++)
		throttle_refund(throttle, name, &five, start_ms + 60001);
	assert_int_equal(take_all(name, start_ms + 60002), 5);
}

TEST(it_is_known_whether_anybody_is_spent)
{
	struct meter_reading r;
	assert_false(throttle_any_spent(throttle, start_ms));
	for (int i = 0; i < 4; i++)
		assert_true(throttle_take(throttle, NAME(7, 99), &five, start_ms, &r));
	assert_false(throttle_any_spent(throttle, start_ms));
	assert_true(throttle_take(throttle, NAME(7, 99), &five, start_ms, &r));
	assert_true(throttle_any_spent(throttle, start_ms));
	assert_true(throttle_any_spent(throttle, start_ms + r.reset_ms - 1));
	assert_false(throttle_any_spent(throttle, start_ms + r.reset_ms));
	assert_int_equal(take_all(NAME(8, 3), start_ms + 30000), 5); /* one that ends later */
	assert_true(throttle_any_spent(throttle, start_ms + 80000));
	assert_false(throttle_any_spent(throttle, start_ms + 90000));
}

TEST(a_lowered_bound_is_noticed)
{
	static const struct throttle_rule two = {.max = 2, .period_ms = 60000};
	for (int i = 0; i < 3; i++)
		assert_true(take(NAME(7, 99), start_ms));
	assert_false(throttle_any_spent(throttle, start_ms));
	assert_true(throttle_is_spent(throttle, NAME(7, 99), &two, start_ms, NULL));
	assert_false(throttle_take(throttle, NAME(7, 99), &two, start_ms, NULL));
	assert_true(throttle_any_spent(throttle, start_ms));
}

TEST(a_full_set_gives_up_what_is_over_first)
{
	for (unsigned tag = 1; tag <= WAYS; tag++)
		take(NAME(3, tag), start_ms + tag * 10000);
	take_all(NAME(3, 1), start_ms + 10000); /* it has the most tries, but ends first */
	int64_t now_ms = start_ms + 70000;
	assert_true(take(NAME(3, 50), now_ms));
	for (unsigned tag = 2; tag <= WAYS; tag++)
		assert_int_equal(take_all(NAME(3, tag), now_ms), 4);
	assert_int_equal(take_all(NAME(3, 50), now_ms), 4);
}

TEST(a_full_set_gives_up_who_has_tried_least)
{
	static const unsigned counts[WAYS] = {4, 2, 5, 3};
	for (unsigned i = 0; i < WAYS; i++)
		for (unsigned k = 0; k < counts[i]; k++)
			assert_true(take(NAME(3, 1 + i), start_ms));
	for (unsigned tag = 100; tag < 1000; tag++)
		assert_true(take(NAME(3, tag), start_ms + tag)); /* a flood of new names */
	assert_true(is_spent(NAME(3, 3), start_ms + 2000));
	assert_int_equal(take_all(NAME(3, 1), start_ms + 2000), 1);
	assert_int_equal(take_all(NAME(3, 4), start_ms + 2000), 2);
	assert_int_equal(take_all(NAME(3, 999), start_ms + 2000), 4);
	assert_int_equal(take_all(NAME(3, 2), start_ms + 2000), 5); /* was washed out */
}

TEST(of_as_many_tries_the_one_that_ends_first_goes)
{
	static const unsigned order[WAYS] = {3, 1, 4, 2};
	for (unsigned i = 0; i < WAYS; i++)
		assert_true(take(NAME(3, 1 + i), start_ms + order[i] * 1000));
	assert_true(take(NAME(3, 50), start_ms + 5000));
	assert_int_equal(take_all(NAME(3, 1), start_ms + 5000), 4);
	assert_int_equal(take_all(NAME(3, 3), start_ms + 5000), 4);
	assert_int_equal(take_all(NAME(3, 4), start_ms + 5000), 4);
	assert_int_equal(take_all(NAME(3, 50), start_ms + 5000), 4);
}

TEST(kinds_and_bytes_make_names)
{
	struct throttle *other = throttle_new();
	uint64_t name = throttle_key(throttle, 1, "abc", 3);
	assert_int_equal(throttle_key(throttle, 1, "abc", 3), name);
	assert_int_not_equal(throttle_key(throttle, 2, "abc", 3), name);
	assert_int_not_equal(throttle_key(throttle, 1, "abd", 3), name);
	assert_int_not_equal(throttle_key(throttle, 1, "abc", 2), name);
	assert_int_not_equal(throttle_key(other, 1, "abc", 3), name); /* nobody can know */
	throttle_free(other);
}

TEST(a_clock_that_is_a_little_behind_counts_in_the_same_period)
{
	assert_true(take(NAME(7, 99), start_ms));
	assert_true(take(NAME(7, 99), start_ms - 300));
	assert_true(take(NAME(7, 99), start_ms + 200));
	assert_int_equal(take_all(NAME(7, 99), start_ms - 100), 2);
	assert_true(is_spent(NAME(7, 99), start_ms));
}

/* The period begins just before the bits of its time wrap around, and ends after. */
TEST(a_period_is_exact_where_the_time_wraps_around)
{
	int64_t wrap_ms = 60 * WRAP_MS;
	for (int64_t before_ms = 1; before_ms < 60000; before_ms += 777) {
		uint64_t name = NAME(before_ms, 5);
		assert_int_equal(take_all(name, wrap_ms - before_ms), 5);
		assert_true(is_spent(name, wrap_ms - 1));
		assert_true(is_spent(name, wrap_ms));
		assert_true(is_spent(name, wrap_ms - before_ms + 59900));
		assert_int_equal(take_all(name, wrap_ms - before_ms + 60000), 5);
	}
}

static void assert_forgotten(int64_t now_ms)
{
	assert_false(throttle_any_spent(throttle, now_ms));
	assert_false(is_spent(NAME(7, 99), now_ms));
	throttle_refund(throttle, NAME(7, 99), &five, now_ms);
}

TEST(what_is_over_never_comes_back)
{
	for (int64_t later = 1; later <= 8; later++) {
		assert_int_equal(take_all(NAME(7, 99), start_ms), 5);
		/* nobody has asked for anything since; half a turn of the bits, a whole one, and on */
		for (int64_t off_ms = -70000; off_ms <= 70000; off_ms += 5000)
			assert_forgotten(start_ms + later * WRAP_MS / 2 + off_ms);
		int64_t now_ms = start_ms + later * WRAP_MS / 2;
		assert_int_equal(take_all(NAME(7, 99), now_ms), 5);
		teardown(NULL);
		setup(NULL);
	}
}

TEST(what_is_over_never_comes_back_while_others_try)
{
	assert_int_equal(take_all(NAME(7, 99), start_ms), 5);
	int64_t now_ms = start_ms;
	for (unsigned i = 0; now_ms < start_ms + 3 * WRAP_MS; i++) {
		now_ms += HOUR_MS * (1 + i % 7 * 9);
		assert_true(take(NAME(7, 1000 + i % 3), now_ms));
		assert_forgotten(now_ms);
	}
	for (int64_t off_ms = 0; off_ms < 120000; off_ms += 1000)
		assert_forgotten(start_ms + 3 * WRAP_MS + off_ms);
	assert_int_equal(take_all(NAME(7, 99), start_ms + 3 * WRAP_MS), 5);
}

TEST(a_period_is_exact_when_the_table_is_scrubbed_in_it)
{
	int64_t now_ms = start_ms;
	for (unsigned i = 0; i < 2000; i++) {
		uint64_t name = NAME(i, 7);
		assert_true(take(name, now_ms));
		assert_true(take(name, now_ms + 30000));
		now_ms += 59000;
		assert_int_equal(take_all(name, now_ms), 3);
		now_ms += 600000;
	}
}

/* Its bits are all 0, and so are those of the time when its period ends. */
TEST(a_name_of_zeros_is_a_name)
{
	assert_int_equal(take_all(0, 60 * WRAP_MS - five.period_ms), 5);
	assert_true(is_spent(0, 60 * WRAP_MS - 1));
	assert_false(is_spent(0, 60 * WRAP_MS));
}

/* Threads */

enum { ROUNDS = 50000 };

static _Atomic unsigned arrived;

/* Both leave at the same moment, as nearly as can be. */
static void meet(unsigned round)
{
	atomic_fetch_add(&arrived, 1);
	for (unsigned spins = 1; atomic_load(&arrived) < 2 * (round + 1); spins++)
		if (spins % 1024 == 0)
			sched_yield();
}

/* Two who try one name in each round. Just then a place becomes free in its set, so that each may find
 * another one to be the best. */
static void *try_in_rounds(void *arg)
{
	const bool *frees = arg;
	uint8_t *taken = calloc(ROUNDS, 1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (*frees)
			take(NAME(i, 1), start_ms);
		meet(i);
		for (volatile unsigned wait = *frees ? 0 : i % 32; wait > 0; wait--)
			;
		if (*frees)
			throttle_refund(throttle, NAME(i, 1), &five, start_ms);
		while (take(NAME(i, 500), start_ms))
			taken[i]++;
	}
	return taken;
}

TEST(threads_that_try_one_name_get_exactly_its_number)
{
	pthread_t threads[2];
	static const bool frees[2] = {true, false};
	void *taken[2];
	atomic_store(&arrived, 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, try_in_rounds, (void *)&frees[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], &taken[i]);
	for (unsigned i = 0; i < ROUNDS; i++)
		assert_int_equal(((uint8_t *)taken[0])[i] + ((uint8_t *)taken[1])[i], 5);
	free(taken[0]);
	free(taken[1]);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
