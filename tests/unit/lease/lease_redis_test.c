/* What is Redis' own about leases; what all backends promise is in lib/lease_suite.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/redis.h"
#include "lease/backends.h"
#include "lib/redis_server.h"
#include "os/clock.h"

#include <time.h>

enum { LIFE_MS = 300, LONG_MS = 60000, PATIENCE_MS = 20000 };

static struct redis_server server;

static int server_up(void **state)
{
	(void)state;
	if (redis_server_exists())
		redis_server_start(&server, NULL);
	else
		print_message("redis-tools is not installed: these tests are skipped\n");
	return 0;
}

static int server_down(void **state)
{
	(void)state;
	redis_server_stop(&server);
	return 0;
}

static struct leases *open_leases(void)
{
	struct leases *l = NULL;
	struct err e = {""};
	if (!server.port)
		skip();
	if (leases_redis_open(server.url, &l, &e) != 0)
		fail_msg("%s", e.text);
	return l;
}

static void pause_ms(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static struct lease *take_in_time(struct leases *l, struct str name, uint64_t life_ms)
{
	struct lease *lease = NULL;
	for (int64_t end_ms = clock_mono_ms() + PATIENCE_MS; clock_mono_ms() < end_ms; pause_ms(10)) {
		if (l->ops->take(l, name, life_ms, &lease) == 0)
			return lease;
	}
	fail_msg("the lease cannot be had");
	return NULL;
}

static int64_t ask_server(const struct str *args, size_t n)
{
	struct redis *r;
	struct redis_reply reply;
	assert_int_equal(redis_new(str_of(server.url), &r, NULL), 0);
	struct redis_conn *c = redis_take(r, NULL);
	assert_non_null(c);
	assert_int_equal(redis_ask(c, args, n, &reply), 0);
	assert_int_not_equal(reply.type, REDIS_ERROR);
	redis_return(c);
	redis_free(r);
	return reply.number;
}

static void wait_until_lost(struct leases *l, const struct lease *lease)
{
	int64_t end_ms = clock_mono_ms() + PATIENCE_MS;
	while (l->ops->is_held(lease) && clock_mono_ms() < end_ms)
		pause_ms(5);
	assert_false(l->ops->is_held(lease));
}

static void the_fencing_number_grows_also_when_the_server_forgot_everything(void **state)
{
	(void)state;
	struct leases *l = open_leases();
	struct lease *lease = take_in_time(l, STR("a"), LONG_MS);
	uint64_t first = l->ops->fence(lease);
	l->ops->release(l, lease);
	lease = take_in_time(l, STR("a"), LONG_MS);
	uint64_t second = l->ops->fence(lease);
	assert_true(second > first);
	l->ops->release(l, lease);
	ask_server(REDIS_ARGS(STR("FLUSHALL")));
	lease = take_in_time(l, STR("a"), LONG_MS);
	assert_true(l->ops->fence(lease) > second);
	l->ops->release(l, lease);
	leases_free(l);
}

/* What is left of its life on the server grows. False: it was lost first, as on a machine that stands still.
 */
static bool is_renewed(struct leases *l, const struct lease *lease)
{
	int64_t left_ms = LIFE_MS;
	while (l->ops->is_held(lease)) {
		int64_t now_left_ms = ask_server(REDIS_ARGS(STR("PTTL"), STR("curt:lease:b")));
		if (now_left_ms > left_ms)
			return true;
		left_ms = now_left_ms;
		pause_ms(5);
	}
	return false;
}

static void a_lease_is_renewed_again_and_again(void **state)
{
	(void)state;
	enum { RENEWALS = 5 };
	struct leases *l = open_leases();
	int renewals = 0;
	for (int64_t end_ms = clock_mono_ms() + PATIENCE_MS;
	     renewals < RENEWALS && clock_mono_ms() < end_ms;) {
		struct lease *lease = take_in_time(l, STR("b"), LIFE_MS);
		for (renewals = 0; renewals < RENEWALS && is_renewed(l, lease); renewals++)
			;
		l->ops->release(l, lease);
	}
	assert_int_equal(renewals, RENEWALS);
	leases_free(l);
}

static void a_server_that_forgot_the_lease_makes_it_lost_for_good(void **state)
{
	(void)state;
	struct leases *l = open_leases();
	struct lease *lease = take_in_time(l, STR("c"), LIFE_MS);
	ask_server(REDIS_ARGS(STR("FLUSHALL")));
	wait_until_lost(l, lease);
	struct leases *other = open_leases();
	struct lease *next = take_in_time(other, STR("c"), LONG_MS);
	assert_true(other->ops->fence(next) > l->ops->fence(lease));
	l->ops->release(l, lease); /* does not touch the other's */
	assert_true(other->ops->is_held(next));
	assert_int_equal(l->ops->take(l, STR("c"), LIFE_MS, &lease), ERR_BUSY);
	other->ops->release(other, next);
	leases_free(l);
	leases_free(other);
}

static void a_server_that_does_not_answer_makes_it_lost_and_it_stays_so(void **state)
{
	(void)state;
	struct leases *l = open_leases();
	struct lease *lease = take_in_time(l, STR("d"), LIFE_MS), *none = NULL;
	redis_server_signal(&server, SIGSTOP);
	wait_until_lost(l, lease);
	assert_int_equal(l->ops->take(l, STR("e"), LIFE_MS, &none), ERR_UNAVAILABLE);
	redis_server_signal(&server, SIGCONT);
	struct lease *other = take_in_time(l, STR("e"), LIFE_MS);
	assert_false(l->ops->is_held(lease));
	l->ops->release(l, other);
	l->ops->release(l, lease);
	leases_free(l);
}

static void a_release_that_was_not_heard_is_repeated(void **state)
{
	(void)state;
	struct leases *l = open_leases(), *other = open_leases();
	struct lease *lease = take_in_time(l, STR("f"), LONG_MS);
	redis_server_signal(&server, SIGSTOP);
	l->ops->release(l, lease);
	redis_server_signal(&server, SIGCONT);
	/* Long before its life is over. */
	lease = take_in_time(other, STR("f"), LONG_MS);
	other->ops->release(other, lease);
	leases_free(l);
	leases_free(other);
}

static void a_server_that_is_away_is_told_by_ping(void **state)
{
	(void)state;
	if (!server.port)
		skip();
	struct leases *l;
	struct err e = {""};
	struct lease *none = NULL;
	assert_int_equal(leases_redis_open("redis://pw@127.0.0.1:1", &l, &e), 0);
	assert_int_equal(l->ops->ping(l, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "127.0.0.1:1"));
	assert_int_equal(l->ops->take(l, STR("a"), LIFE_MS, &none), ERR_UNAVAILABLE);
	leases_free(l);
	l = open_leases();
	assert_int_equal(l->ops->ping(l, &e), 0);
	leases_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_fencing_number_grows_also_when_the_server_forgot_everything),
	    cmocka_unit_test(a_lease_is_renewed_again_and_again),
	    cmocka_unit_test(a_server_that_forgot_the_lease_makes_it_lost_for_good),
	    cmocka_unit_test(a_server_that_does_not_answer_makes_it_lost_and_it_stays_so),
	    cmocka_unit_test(a_release_that_was_not_heard_is_repeated),
	    cmocka_unit_test(a_server_that_is_away_is_told_by_ping),
	};
	return cmocka_run_group_tests(tests, server_up, server_down);
}
