#include "handler/checks.h"
#include "lib/test.h"

enum { LONG_MS = 60000, SHORT_MS = 50 };

/* Somebody who is asked, and answers at once or when it is let. */
struct somebody {
	_Atomic bool silent;
	_Atomic unsigned asked;
	_Atomic int code;
};

static struct somebody first, second;

static int ask(void *ctx, struct err *e)
{
	struct somebody *s = ctx;
	atomic_fetch_add(&s->asked, 1);
	while (atomic_load(&s->silent))
		until_pause();
	int code = atomic_load(&s->code);
	return code < 0 ? err_set(e, code, "it is not well") : 0;
}

static struct checks *start(uint64_t first_ms, uint64_t second_ms)
{
	const struct check list[] = {{"first", ask, &first, first_ms}, {"second", ask, &second, second_ms}};
	struct checks *c = NULL;
	assert_int_equal(checks_new(list, ARRAY_LEN(list), &c, NULL), 0);
	return c;
}

static int forget(void **state)
{
	memset(&first, 0, sizeof(first));
	memset(&second, 0, sizeof(second));
	return 0;
}

TEST(each_answer_is_reported)
{
	struct check_result results[2];
	struct checks *c = start(LONG_MS, LONG_MS);
	atomic_store(&second.code, ERR_CORRUPT);
	checks_ask(c, results);
	assert_int_equal(results[0].code, 0);
	assert_int_equal(results[1].code, ERR_CORRUPT);
	assert_string_equal(results[1].why.text, "it is not well");
	atomic_store(&second.code, 0);
	checks_ask(c, results);
	assert_int_equal(results[1].code, 0);
	checks_free(c);
}

TEST(one_that_does_not_answer_holds_up_nobody_and_is_not_asked_again_meanwhile)
{
	struct check_result results[2];
	struct checks *c = start(LONG_MS, SHORT_MS);
	atomic_store(&second.silent, true);
	for (unsigned i = 1; i <= 5; i++) {
		checks_ask(c, results);
		assert_int_equal(results[0].code, 0);
		assert_int_equal(results[1].code, ERR_UNAVAILABLE);
		assert_non_null(strstr(results[1].why.text, "no answer for"));
		assert_int_equal(atomic_load(&first.asked), i);
		UNTIL(atomic_load(&second.asked) > 0); /* its thread may be late as well */
		assert_int_equal(atomic_load(&second.asked), 1);
	}
	atomic_store(&second.silent, false);
	do
		checks_ask(c, results);
	while (results[1].code != 0);
	checks_free(c);
}

static void *ask_in_thread(void *arg)
{
	struct check_result results[2];
	checks_ask(arg, results);
	assert_int_equal(results[0].code, 0);
	assert_int_equal(results[1].code, 0);
	return NULL;
}

TEST(who_comes_meanwhile_waits_for_the_same_answer)
{
	enum { MANY = 4 };
	pthread_t threads[MANY];
	struct checks *c = start(LONG_MS, LONG_MS);
	atomic_store(&second.silent, true);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_in_thread, c), 0);
	UNTIL(atomic_load(&first.asked) >= 1 && atomic_load(&second.asked) >= 1);
	assert_int_equal(atomic_load(&second.asked), 1);
	atomic_store(&second.silent, false);
	for (int i = 0; i < MANY; i++)
		pthread_join(threads[i], NULL);
	checks_free(c);
}

TEST_MAIN(.setup = forget)
