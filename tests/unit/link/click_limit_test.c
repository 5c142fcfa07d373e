#include "lib/test.h"
#include "link/click_limit.h"

static struct click_limits *click_limits;

static int setup(void **state)
{
	click_limits = click_limits_new();
	return click_limits ? 0 : -1;
}

static int teardown(void **state)
{
	click_limits_free(click_limits);
	return 0;
}

static void count(struct click_limit *g, uint64_t used)
{
	click_limit_count(g, click_limit_round(g), used);
}

TEST(a_link_has_one_click_limit_at_one_address)
{
	struct click_limit *first = click_limits_get(click_limits, 5),
	                   *other = click_limits_get(click_limits, 6);
	assert_non_null(first);
	assert_int_equal(first->link, 5);
	assert_ptr_not_equal(first, other);
	for (uint64_t link = 100; link < 5000; link++)
		assert_int_equal(click_limits_get(click_limits, link)->link, link);
	assert_ptr_equal(click_limits_get(click_limits, 5), first);
	assert_ptr_equal(click_limits_get(click_limits, 6), other);
}

TEST(an_uncounted_click_limit_lets_nobody_through)
{
	struct click_limit *g = click_limits_get(click_limits, 1);
	assert_false(click_limit_is_counted(g));
	assert_false(click_limit_take(g, 10));
	assert_false(click_limit_is_spent(g, 10));
	assert_false(click_limit_is_spent(g, 0));
	count(g, 0);
	assert_true(click_limit_is_counted(g));
	assert_true(click_limit_take(g, 10));
}

TEST(a_click_limit_is_counted_once)
{
	struct click_limit *g = click_limits_get(click_limits, 1);
	count(g, 3);
	assert_true(click_limit_take(g, 5));
	count(g, 0);
	assert_true(click_limit_take(g, 5));
	assert_false(click_limit_take(g, 5));
}

TEST(a_click_limit_gives_exactly_what_is_left)
{
	struct click_limit *g = click_limits_get(click_limits, 1);
	count(g, 7);
	for (int i = 0; i < 3; i++) {
		assert_false(click_limit_is_spent(g, 10));
		assert_true(click_limit_take(g, 10));
	}
	assert_true(click_limit_is_spent(g, 10));
	assert_false(click_limit_take(g, 10));
	click_limit_put_back(g);
	assert_false(click_limit_is_spent(g, 10));
	assert_true(click_limit_take(g, 10));
	assert_false(click_limit_take(g, 10));
	assert_true(click_limit_take(g, 11)); /* the limit was raised */
	assert_true(click_limit_is_spent(g, 4));
	assert_false(click_limit_take(g, 4)); /* and lowered */
}

TEST(more_clicks_than_the_limit_are_spent)
{
	struct click_limit *g = click_limits_get(click_limits, 1), *huge = click_limits_get(click_limits, 2);
	count(g, 50);
	assert_true(click_limit_is_spent(g, 10));
	assert_false(click_limit_take(g, 10));
	count(huge, UINT64_MAX);
	assert_true(click_limit_is_counted(huge));
	assert_true(click_limit_is_spent(huge, 10));
}

TEST(a_click_limit_whose_limit_was_changed_is_counted_again)
{
	struct click_limit *changed = click_limits_get(click_limits, 1),
	                   *other = click_limits_get(click_limits, 2);
	count(changed, 3);
	count(other, 4);
	click_limits_uncount(click_limits, 1);
	assert_false(click_limit_is_counted(changed));
	assert_true(click_limit_is_counted(other));
	click_limit_put_back(changed); /* of an answer from before: it is in no count */
	assert_false(click_limit_is_counted(changed));
	assert_false(click_limit_take(changed, 10));
	count(changed, 9);
	assert_true(click_limit_take(changed, 10));
	assert_false(click_limit_take(changed, 10));
	click_limits_uncount(click_limits, 77); /* nobody's */
	assert_true(click_limit_is_counted(changed));
	click_limits_uncount(click_limits, 0);
	assert_false(click_limit_is_counted(changed));
	assert_false(click_limit_is_counted(other));
}

enum { THREADS = 4, TAKES_MAX = 20000 };

static void *take_all(void *arg)
{
	struct click_limit *g = arg;
	uintptr_t taken = 0;
	count(g, 5);
	while (click_limit_take(g, TAKES_MAX)) {
		taken++;
		if (taken % 7 == 0) {
			click_limit_put_back(g);
			taken--;
			if (click_limit_take(g, TAKES_MAX))
				taken++;
		}
	}
	return (void *)taken;
}

TEST(threads_take_exactly_what_is_left)
{
	pthread_t threads[THREADS];
	uintptr_t taken = 0;
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(
		    pthread_create(&threads[i], NULL, take_all, click_limits_get(click_limits, 9)), 0);
	for (size_t i = 0; i < THREADS; i++) {
		void *one;
		pthread_join(threads[i], &one);
		taken += (uintptr_t)one;
	}
	/* one may have seen the end while another's was about to come back */
	while (click_limit_take(click_limits_get(click_limits, 9), TAKES_MAX))
		taken++;
	assert_int_equal(taken, TAKES_MAX - 5);
}

static void *ask_for_all(void *arg)
{
	(void)arg;
	uintptr_t sum = 0;
	for (uint64_t link = 1; link <= 3000; link++)
		sum ^= (uintptr_t)click_limits_get(click_limits, link) * link;
	return (void *)sum;
}

TEST(threads_get_the_same_click_limits)
{
	pthread_t threads[THREADS];
	void *sums[THREADS];
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_for_all, NULL), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], &sums[i]);
	for (size_t i = 1; i < THREADS; i++)
		assert_ptr_equal(sums[i], sums[0]);
}

TEST(beyond_the_bound_those_that_nobody_has_go)
{
	struct click_limit *kept = click_limits_get(click_limits, 1);
	count(kept, 7);
	for (uint64_t link = 2; link <= CLICK_LIMITS_MAX; link++)
		assert_non_null(click_limits_get(click_limits, link));
	assert_null(click_limits_get(click_limits, CLICK_LIMITS_MAX + 1)); /* all are pinned */
	assert_ptr_equal(click_limits_get(click_limits, 1), kept);
	for (uint64_t link = 2; link <= CLICK_LIMITS_MAX; link++) {
		struct click_limit *g = click_limits_get(click_limits, link);
		count(g, link);
		click_limit_unpin(g);
		click_limit_unpin(g);
	}
	for (uint64_t link = 1; link <= CLICK_LIMITS_MAX; link++) {
		struct click_limit *g = click_limits_get(click_limits, CLICK_LIMITS_MAX + link);
		assert_non_null(g);
		assert_false(click_limit_is_counted(g));
		click_limit_unpin(g);
	}
	assert_ptr_equal(click_limits_get(click_limits, 1), kept);
	assert_true(click_limit_is_spent(kept, 7));
	assert_false(
	    click_limit_is_counted(click_limits_get(click_limits, 2))); /* it went, and is counted anew */
}

TEST(a_count_from_before_a_change_is_not_taken)
{
	struct click_limit *g = click_limits_get(click_limits, 1);
	int64_t before = click_limit_round(g);
	click_limits_uncount(click_limits, 1);
	click_limit_count(g, before, 3);
	assert_false(click_limit_is_counted(g));
	int64_t round = click_limit_round(g);
	assert_true(round > 0);
	click_limit_count(g, round, 4);
	assert_int_equal(click_limit_round(g), 0);
	click_limits_uncount(click_limits, 0);
	click_limit_count(g, round, 5);
	assert_false(click_limit_is_counted(g));
}

TEST(a_new_link_has_had_no_click)
{
	click_limits_begin(click_limits, 1);
	struct click_limit *g = click_limits_get(click_limits, 1);
	assert_true(click_limit_take(g, 1));
	click_limits_begin(click_limits, 1); /* changes nothing once it is counted */
	assert_false(click_limit_take(g, 1));
}

TEST_MAIN(.setup = setup, .teardown = teardown)
