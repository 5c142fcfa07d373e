#include "lib/test.h"
#include "link/budget.h"

static struct budget *budget_with(struct budgets *b, uint64_t creates, uint64_t period_ms)
{
	struct budget *one = budgets_of(b, 7);
	assert_non_null(one);
	budget_set(one, creates, 0, period_ms);
	return one;
}

TEST(without_a_bound_everything_passes_and_nothing_is_reported)
{
	struct budgets *b = budgets_new();
	struct budget *one = budget_with(b, 0, 1000);
	struct meter_reading r;
	for (int i = 0; i < 10000; i++)
		assert_true(meter_take(&one->creates, i, &r));
	assert_int_equal(r.limit, 0);
	budgets_free(b);
}

TEST(a_period_allows_exactly_its_number_and_then_begins_anew)
{
	struct budgets *b = budgets_new();
	struct budget *one = budget_with(b, 3, 60000);
	struct meter_reading r;
	int64_t start = 1000000;
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(meter_take(&one->creates, start + i, &r));
		assert_int_equal(r.remaining, 2 - i);
		assert_int_equal(r.limit, 3);
	}
	assert_false(meter_take(&one->creates, start + 500, &r));
	assert_int_equal(r.remaining, 0);
	assert_true(r.reset_ms > 0 && r.reset_ms <= 60000);
	/* what was said is true: not before, but then */
	assert_false(meter_take(&one->creates, start + 500 + r.reset_ms - 70, NULL));
	assert_true(meter_take(&one->creates, start + 500 + r.reset_ms, &r));
	assert_int_equal(r.remaining, 2);
	budgets_free(b);
}

TEST(a_refund_gives_one_back_and_never_more)
{
	struct budgets *b = budgets_new();
	struct budget *one = budget_with(b, 2, 1000);
	struct meter_reading taken;
	assert_true(meter_take(&one->creates, 5000, NULL));
	assert_true(meter_take(&one->creates, 5000, &taken));
	assert_false(meter_take(&one->creates, 5000, NULL));
	meter_refund(&one->creates, &taken);
	assert_true(meter_take(&one->creates, 5000, NULL));
	for (int i = 0; i < 5; i++)
		meter_refund(&one->creates, &taken);
	assert_true(meter_take(&one->creates, 5000, NULL));
	assert_true(meter_take(&one->creates, 5000, NULL));
	assert_false(meter_take(&one->creates, 5000, NULL));
	budgets_free(b);
}

TEST(a_refund_of_a_period_that_is_over_does_not_enlarge_the_next)
{
	struct budgets *b = budgets_new();
	struct budget *one = budget_with(b, 1, 1000);
	struct meter_reading taken;
	assert_true(meter_take(&one->creates, 5000, &taken));
	assert_true(meter_take(&one->creates, 7000, NULL));
	meter_refund(&one->creates, &taken);
	assert_false(meter_take(&one->creates, 7000, NULL));
	budgets_free(b);
}

/* Workers take the time once a turn, so theirs differ a little. */
TEST(a_worker_whose_clock_is_behind_does_not_begin_a_new_period)
{
	struct budgets *b = budgets_new();
	struct budget *one = budget_with(b, 2, 60000);
	struct meter_reading r;
	assert_true(meter_take(&one->creates, 100000, NULL));
	assert_true(meter_take(&one->creates, 99000, &r));
	assert_true(r.reset_ms <= 60000);
	assert_false(meter_take(&one->creates, 99500, &r));
	assert_true(r.reset_ms <= 60000);
	assert_false(meter_take(&one->creates, 100000, NULL));
	budgets_free(b);
}

TEST(creations_and_redirections_are_counted_apart)
{
	struct budgets *b = budgets_new();
	struct budget *one = budgets_of(b, 1);
	budget_set(one, 1, 2, 1000);
	assert_true(meter_take(&one->creates, 1000, NULL));
	assert_false(meter_take(&one->creates, 1000, NULL));
	assert_true(meter_take(&one->redirects, 1000, NULL));
	assert_true(meter_take(&one->redirects, 1000, NULL));
	assert_false(meter_take(&one->redirects, 1000, NULL));
	budgets_free(b);
}

TEST(a_budget_stays_at_its_address_while_others_come)
{
	struct budgets *b = budgets_new();
	struct budget *one = budgets_of(b, 12345);
	for (uint64_t owner = 1; owner < 20000; owner++)
		assert_non_null(budgets_of(b, owner));
	assert_ptr_equal(budgets_of(b, 12345), one);
	assert_int_equal(one->owner, 12345);
	budgets_free(b);
}

static void *take_many(void *arg)
{
	struct meter *m = arg;
	uintptr_t taken = 0;
	for (int i = 0; i < 100000; i++)
		taken += meter_take(m, 1000, NULL);
	return (void *)taken;
}

TEST(threads_together_get_exactly_the_number)
{
	struct budgets *b = budgets_new();
	struct budget *one = budget_with(b, 150000, 60000);
	pthread_t threads[4];
	uintptr_t total = 0;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_many, &one->creates), 0);
	for (int i = 0; i < 4; i++) {
		void *taken;
		pthread_join(threads[i], &taken);
		total += (uintptr_t)taken;
	}
	assert_int_equal(total, 150000);
	budgets_free(b);
}

TEST_MAIN()
