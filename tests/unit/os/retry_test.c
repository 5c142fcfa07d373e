#include "lib/test.h"
#include "os/retry.h"

TEST(the_pause_doubles_up_to_its_most_less_some_jitter)
{
	const struct retry_policy policy = {.min_ms = 50, .max_ms = 300};
	static const int64_t pauses_ms[] = {50, 100, 200, 300, 300, 300};
	struct retry r = {0};
	int64_t now_ms = 1000;
	for (size_t i = 0; i < ARRAY_LEN(pauses_ms); i++) {
		assert_true(retry_failed(&r, &policy, now_ms));
		assert_in_range(r.next_ms - now_ms, pauses_ms[i] - pauses_ms[i] / 4, pauses_ms[i]);
		now_ms = r.next_ms;
	}
}

TEST(those_who_fail_together_do_not_come_back_together)
{
	enum { ALL = 64 };
	const struct retry_policy policy = {.min_ms = 1000, .max_ms = 1000};
	struct retry all[ALL] = {0};
	size_t together = 0;
	for (size_t i = 0; i < ALL; i++) {
		assert_true(retry_failed(&all[i], &policy, 5000));
		together += all[i].next_ms == all[0].next_ms;
	}
	assert_true(together < ALL / 4);
}

TEST(it_ends_with_the_last_try_or_at_the_deadline)
{
	const struct retry_policy thrice = {.min_ms = 1, .max_ms = 1, .tries_max = 3};
	const struct retry_policy soon = {.min_ms = 20, .max_ms = 20, .timeout_ms = 100};
	struct retry r = {0};
	assert_true(retry_wait(&r, &thrice));
	assert_true(retry_wait(&r, &thrice));
	assert_false(retry_wait(&r, &thrice));
	r = (struct retry){0};
	assert_true(retry_failed(&r, &soon, 1000));
	assert_true(retry_failed(&r, &soon, 1080));
	assert_false(retry_failed(&r, &soon, 1090));
}

TEST_MAIN()
