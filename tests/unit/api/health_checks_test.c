#include "api/health_checks.h"
#include "lib/test.h"

enum { LONG_MS = 60000, SHORT_MS = 50 };

/* Answers at once, or when `silent` ends. */
struct backend {
	_Atomic bool silent;
	_Atomic unsigned asked;
	_Atomic int code;
};

static struct backend first, second;

static int ask(void *ctx, struct err *e)
{
	struct backend *b = ctx;
	atomic_fetch_add(&b->asked, 1);
	while (atomic_load(&b->silent))
		until_pause();
	int code = atomic_load(&b->code);
	return code < 0 ? err_set(e, code, "it is not well") : 0;
}

static struct health_checks *start(uint64_t first_ms, uint64_t second_ms)
{
	const struct health_check list[] = {{"first", ask, &first, first_ms},
	                                    {"second", ask, &second, second_ms}};
	struct health_checks *c = NULL;
	assert_int_equal(health_checks_new(list, ARRAY_LEN(list), &c, NULL), 0);
	return c;
}

static int reset(void **state)
{
	memset(&first, 0, sizeof(first));
	memset(&second, 0, sizeof(second));
	return 0;
}

TEST(each_check_has_its_result)
{
	struct health_result results[2];
	struct health_checks *c = start(LONG_MS, LONG_MS);
	atomic_store(&second.code, ERR_CORRUPT);
	health_checks_run(c, results);
	assert_int_equal(results[0].code, 0);
	assert_int_equal(results[1].code, ERR_CORRUPT);
	assert_string_equal(results[1].why.text, "it is not well");
	atomic_store(&second.code, 0);
	health_checks_run(c, results);
	assert_int_equal(results[1].code, 0);
	health_checks_free(c);
}

TEST(a_check_that_hangs_delays_no_other_and_is_not_started_twice)
{
	struct health_result results[2];
	struct health_checks *c = start(LONG_MS, SHORT_MS);
	atomic_store(&second.silent, true);
	for (unsigned i = 1; i <= 5; i++) {
		health_checks_run(c, results);
		assert_int_equal(results[0].code, 0);
		assert_int_equal(results[1].code, ERR_UNAVAILABLE);
		assert_non_null(strstr(results[1].why.text, "no answer for"));
		assert_int_equal(atomic_load(&first.asked), i);
		UNTIL(atomic_load(&second.asked) > 0); /* its thread may be late as well */
		assert_int_equal(atomic_load(&second.asked), 1);
	}
	atomic_store(&second.silent, false);
	do
		health_checks_run(c, results);
	while (results[1].code != 0);
	health_checks_free(c);
}

static void *run_in_thread(void *arg)
{
	struct health_result results[2];
	health_checks_run(arg, results);
	assert_int_equal(results[0].code, 0);
	assert_int_equal(results[1].code, 0);
	return NULL;
}

TEST(callers_share_a_check_that_is_running)
{
	enum { MANY = 4 };
	pthread_t threads[MANY];
	struct health_checks *c = start(LONG_MS, LONG_MS);
	atomic_store(&second.silent, true);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_in_thread, c), 0);
	UNTIL(atomic_load(&first.asked) >= 1 && atomic_load(&second.asked) >= 1);
	assert_int_equal(atomic_load(&second.asked), 1);
	atomic_store(&second.silent, false);
	for (int i = 0; i < MANY; i++)
		pthread_join(threads[i], NULL);
	health_checks_free(c);
}

TEST_MAIN(.setup = reset)
