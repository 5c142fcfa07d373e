#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/gates.h"

#include <pthread.h>

static struct gates *gates;

static int setup(void **state)
{
	(void)state;
	gates = gates_new();
	return gates ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	gates_free(gates);
	return 0;
}

static void count(struct click_gate *g, uint64_t used)
{
	gate_count(g, gate_round(g), used);
}

static void a_link_has_one_gate_at_one_address(void **state)
{
	(void)state;
	struct click_gate *first = gates_of(gates, 5), *other = gates_of(gates, 6);
	assert_non_null(first);
	assert_int_equal(first->link, 5);
	assert_ptr_not_equal(first, other);
	for (uint64_t link = 100; link < 5000; link++)
		assert_int_equal(gates_of(gates, link)->link, link);
	assert_ptr_equal(gates_of(gates, 5), first);
	assert_ptr_equal(gates_of(gates, 6), other);
}

static void an_uncounted_gate_lets_nobody_through(void **state)
{
	(void)state;
	struct click_gate *g = gates_of(gates, 1);
	assert_false(gate_is_counted(g));
	assert_false(gate_take(g, 10));
	assert_false(gate_is_spent(g, 10));
	assert_false(gate_is_spent(g, 0));
	count(g, 0);
	assert_true(gate_is_counted(g));
	assert_true(gate_take(g, 10));
}

static void a_gate_is_counted_once(void **state)
{
	(void)state;
	struct click_gate *g = gates_of(gates, 1);
	count(g, 3);
	assert_true(gate_take(g, 5));
	count(g, 0);
	assert_true(gate_take(g, 5));
	assert_false(gate_take(g, 5));
}

static void a_gate_gives_exactly_what_is_left(void **state)
{
	(void)state;
	struct click_gate *g = gates_of(gates, 1);
	count(g, 7);
	for (int i = 0; i < 3; i++) {
		assert_false(gate_is_spent(g, 10));
		assert_true(gate_take(g, 10));
	}
	assert_true(gate_is_spent(g, 10));
	assert_false(gate_take(g, 10));
	gate_give_back(g);
	assert_false(gate_is_spent(g, 10));
	assert_true(gate_take(g, 10));
	assert_false(gate_take(g, 10));
	assert_true(gate_take(g, 11)); /* the limit was raised */
	assert_true(gate_is_spent(g, 4));
	assert_false(gate_take(g, 4)); /* and lowered */
}

static void more_clicks_than_the_limit_are_spent(void **state)
{
	(void)state;
	struct click_gate *g = gates_of(gates, 1), *huge = gates_of(gates, 2);
	count(g, 50);
	assert_true(gate_is_spent(g, 10));
	assert_false(gate_take(g, 10));
	count(huge, UINT64_MAX);
	assert_true(gate_is_counted(huge));
	assert_true(gate_is_spent(huge, 10));
}

static void a_gate_whose_limit_was_changed_is_counted_again(void **state)
{
	(void)state;
	struct click_gate *changed = gates_of(gates, 1), *other = gates_of(gates, 2);
	count(changed, 3);
	count(other, 4);
	gates_uncount(gates, 1);
	assert_false(gate_is_counted(changed));
	assert_true(gate_is_counted(other));
	gate_give_back(changed); /* of an answer from before: it is in no count */
	assert_false(gate_is_counted(changed));
	assert_false(gate_take(changed, 10));
	count(changed, 9);
	assert_true(gate_take(changed, 10));
	assert_false(gate_take(changed, 10));
	gates_uncount(gates, 77); /* nobody's */
	assert_true(gate_is_counted(changed));
	gates_uncount(gates, 0);
	assert_false(gate_is_counted(changed));
	assert_false(gate_is_counted(other));
}

enum { THREADS = 4, TAKES_MAX = 20000 };

static void *take_all(void *arg)
{
	struct click_gate *g = arg;
	uintptr_t taken = 0;
	count(g, 5);
	while (gate_take(g, TAKES_MAX)) {
		taken++;
		if (taken % 7 == 0) {
			gate_give_back(g);
			taken--;
			if (gate_take(g, TAKES_MAX))
				taken++;
		}
	}
	return (void *)taken;
}

static void threads_take_exactly_what_is_left(void **state)
{
	(void)state;
	pthread_t threads[THREADS];
	uintptr_t taken = 0;
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_all, gates_of(gates, 9)), 0);
	for (size_t i = 0; i < THREADS; i++) {
		void *one;
		pthread_join(threads[i], &one);
		taken += (uintptr_t)one;
	}
	/* one may have seen the end while another's was about to come back */
	while (gate_take(gates_of(gates, 9), TAKES_MAX))
		taken++;
	assert_int_equal(taken, TAKES_MAX - 5);
}

static void *ask_for_all(void *arg)
{
	(void)arg;
	uintptr_t sum = 0;
	for (uint64_t link = 1; link <= 3000; link++)
		sum ^= (uintptr_t)gates_of(gates, link) * link;
	return (void *)sum;
}

static void threads_get_the_same_gates(void **state)
{
	(void)state;
	pthread_t threads[THREADS];
	void *sums[THREADS];
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_for_all, NULL), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], &sums[i]);
	for (size_t i = 1; i < THREADS; i++)
		assert_ptr_equal(sums[i], sums[0]);
}

static void beyond_the_bound_those_that_nobody_has_go(void **state)
{
	(void)state;
	struct click_gate *kept = gates_of(gates, 1);
	count(kept, 7);
	for (uint64_t link = 2; link <= GATES_MAX; link++)
		assert_non_null(gates_of(gates, link));
	assert_null(gates_of(gates, GATES_MAX + 1)); /* all are pinned */
	assert_ptr_equal(gates_of(gates, 1), kept);
	for (uint64_t link = 2; link <= GATES_MAX; link++) {
		struct click_gate *g = gates_of(gates, link);
		count(g, link);
		gate_unpin(g);
		gate_unpin(g);
	}
	for (uint64_t link = 1; link <= GATES_MAX; link++) {
		struct click_gate *g = gates_of(gates, GATES_MAX + link);
		assert_non_null(g);
		assert_false(gate_is_counted(g));
		gate_unpin(g);
	}
	assert_ptr_equal(gates_of(gates, 1), kept);
	assert_true(gate_is_spent(kept, 7));
	assert_false(gate_is_counted(gates_of(gates, 2))); /* it went, and is counted anew */
}

static void a_count_from_before_a_change_is_not_taken(void **state)
{
	(void)state;
	struct click_gate *g = gates_of(gates, 1);
	int64_t before = gate_round(g);
	gates_uncount(gates, 1);
	gate_count(g, before, 3);
	assert_false(gate_is_counted(g));
	int64_t round = gate_round(g);
	assert_true(round > 0);
	gate_count(g, round, 4);
	assert_int_equal(gate_round(g), 0);
	gates_uncount(gates, 0);
	gate_count(g, round, 5);
	assert_false(gate_is_counted(g));
}

static void a_new_link_has_had_no_click(void **state)
{
	(void)state;
	gates_begin(gates, 1);
	struct click_gate *g = gates_of(gates, 1);
	assert_true(gate_take(g, 1));
	gates_begin(gates, 1); /* changes nothing once it is counted */
	assert_false(gate_take(g, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_link_has_one_gate_at_one_address),
	    TEST(an_uncounted_gate_lets_nobody_through),
	    TEST(a_gate_is_counted_once),
	    TEST(a_gate_gives_exactly_what_is_left),
	    TEST(more_clicks_than_the_limit_are_spent),
	    TEST(a_gate_whose_limit_was_changed_is_counted_again),
	    TEST(threads_take_exactly_what_is_left),
	    TEST(threads_get_the_same_gates),
	    TEST(beyond_the_bound_those_that_nobody_has_go),
	    TEST(a_count_from_before_a_change_is_not_taken),
	    TEST(a_new_link_has_had_no_click),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
