#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/settler.h"
#include "os/clock.h"

#include <string.h>

enum { PERIOD_MS = 60000, SERVERS_MAX = 3 };

/* A limiter with a clock of its own, for one budget: what the servers of a test settle through. */
static struct {
	struct limiter base;
	int64_t now_ms;
	int64_t end_ms; /* of the period under way; 0: none */
	uint64_t period;
	int64_t used;
	unsigned servers;
	bool is_away;
	unsigned calls;
} lim;

static int lim_settle(struct limiter *l, struct limiter_use *uses, size_t n, unsigned *ret_servers)
{
	(void)l;
	lim.calls++;
	if (lim.is_away)
		return ERR_UNAVAILABLE;
	for (size_t i = 0; i < n; i++) {
		if (lim.now_ms >= lim.end_ms) {
			lim.end_ms = lim.now_ms + uses[i].period_ms;
			lim.period++;
			lim.used = 0;
		}
		lim.used += uses[i].delta;
		assert_true(lim.used >= 0);
		uses[i].settled = true;
		uses[i].used = (uint64_t)lim.used;
		uses[i].left_ms = (uint64_t)(lim.end_ms - lim.now_ms);
		uses[i].period = lim.period;
	}
	*ret_servers = lim.servers;
	return 0;
}

static const struct limiter_ops lim_ops = {.settle = lim_settle};

static struct server {
	struct settler *settler;
	struct budgets *budgets;
	struct meter *meter;
	unsigned passed;
} servers[SERVERS_MAX];

static void start(unsigned count, uint64_t max)
{
	memset(&lim, 0, sizeof(lim));
	lim.base.ops = &lim_ops;
	lim.now_ms = clock_mono_ms(); /* from here on it stands until it is moved */
	lim.servers = count;
	for (unsigned i = 0; i < count; i++) {
		struct server *s = &servers[i];
		*s = (struct server){0};
		assert_int_equal(settler_new(&lim.base, &s->settler, NULL), 0);
		s->budgets = budgets_new();
		budgets_share(s->budgets, settler_settling(s->settler));
		struct budget *b = budgets_of(s->budgets, 7);
		budget_set(b, max, 0, PERIOD_MS);
		s->meter = &b->creates;
		settler_round(s->settler, lim.now_ms); /* learns how many there are */
	}
}

static void stop(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		settler_stop(servers[i].settler);
		budgets_free(servers[i].budgets);
		settler_free(servers[i].settler);
	}
}

static bool take(struct server *s)
{
	bool taken = meter_take(s->meter, lim.now_ms, NULL);
	s->passed += taken;
	return taken;
}

/* Requests in a row until one is refused, and rounds in between as the nudges ask for them. */
static void hammer(struct server *s, unsigned requests)
{
	for (unsigned i = 0; i < requests; i++) {
		take(s);
		if (atomic_exchange(&settler_settling(s->settler)->woken, false))
			settler_round(s->settler, lim.now_ms);
	}
}

static void pass_time(unsigned count, int64_t ms)
{
	for (int64_t end = lim.now_ms + ms; lim.now_ms < end;) {
		lim.now_ms += SETTLE_MS;
		for (unsigned i = 0; i < count; i++)
			settler_round(servers[i].settler, lim.now_ms);
	}
}

static void two_servers_that_are_hammered_let_exactly_the_limit_through(void **state)
{
	(void)state;
	start(2, 1000);
	for (unsigned round = 0; round < 100; round++) {
		hammer(&servers[0], 30);
		hammer(&servers[1], 20);
		pass_time(2, SETTLE_MS);
	}
	assert_int_equal(servers[0].passed + servers[1].passed, 1000);
	assert_int_equal(lim.used, 1000);
	stop(2);
}

static void a_single_busy_server_gets_nearly_all(void **state)
{
	(void)state;
	start(3, 1000);
	for (unsigned round = 0; round < 60; round++) {
		hammer(&servers[1], 100);
		pass_time(3, SETTLE_MS);
	}
	assert_int_equal(servers[1].passed, 1000);
	stop(3);
}

static void an_idle_server_gives_back_what_it_holds_when_others_need_it(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[0], 1); /* which then holds half */
	assert_true(lim.used > 400);
	for (unsigned round = 0; round < 300; round++) {
		hammer(&servers[1], 100);
		pass_time(2, SETTLE_MS);
	}
	assert_int_equal(servers[0].passed + servers[1].passed, 1000);
	stop(2);
}

static void servers_that_begin_together_before_they_hear_of_each_other_stay_within_one_each(void **state)
{
	(void)state;
	start(3, 100);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned n = 0; n < 100; n++)
			take(&servers[i]); /* no round in between */
	}
	unsigned sum = servers[0].passed + servers[1].passed + servers[2].passed;
	assert_in_range(sum, 100, 102);
	pass_time(3, SETTLE_MS);
	for (unsigned i = 0; i < 3; i++)
		assert_false(take(&servers[i]));
	stop(3);
}

static void a_new_period_begins_for_all_of_them(void **state)
{
	(void)state;
	start(2, 100);
	for (unsigned period = 1; period <= 3; period++) {
		for (unsigned round = 0; round < 20; round++) {
			hammer(&servers[0], 20);
			hammer(&servers[1], 20);
			pass_time(2, SETTLE_MS);
		}
		assert_int_equal(servers[0].passed + servers[1].passed, 100 * period);
		pass_time(2, PERIOD_MS + 200);
	}
	assert_int_equal(lim.period, 3);
	stop(2);
}

static void a_reading_counts_what_others_have_used(void **state)
{
	(void)state;
	struct meter_reading reading;
	start(2, 100);
	hammer(&servers[0], 40);
	hammer(&servers[1], 1);
	pass_time(2, SETTLE_MS);
	assert_true(meter_take(servers[1].meter, lim.now_ms, &reading));
	assert_int_equal(reading.limit, 100);
	assert_true(reading.remaining <= 58);
	assert_true(reading.reset_ms <= PERIOD_MS && reading.reset_ms > PERIOD_MS - 2000);
	stop(2);
}

static void without_the_limiter_each_goes_on_with_its_part(void **state)
{
	(void)state;
	start(2, 100);
	lim.is_away = true;
	for (unsigned round = 0; round < 20; round++) {
		hammer(&servers[0], 20);
		hammer(&servers[1], 20);
		pass_time(2, SETTLE_MS);
	}
	assert_int_equal(servers[0].passed, 50);
	assert_int_equal(servers[1].passed, 50);
	assert_true(settler_stats(servers[0].settler).failures > 0);
	lim.is_away = false; /* and then it all comes together again */
	pass_time(2, 2000);
	assert_int_equal(lim.used, 100);
	stop(2);
}

static void what_was_refunded_can_be_had_again_by_anybody(void **state)
{
	(void)state;
	struct meter_reading reading;
	start(2, 10);
	for (unsigned round = 0; round < 50; round++) {
		hammer(&servers[0], 5);
		pass_time(2, SETTLE_MS);
	}
	assert_int_equal(servers[0].passed, 10);
	meter_take(servers[0].meter, lim.now_ms, &reading);
	meter_refund(servers[0].meter, &reading);
	pass_time(2, 5000); /* nobody wants it: it is given back */
	assert_int_equal(lim.used, 9);
	hammer(&servers[0], 5);
	pass_time(2, SETTLE_MS);
	hammer(&servers[0], 5);
	assert_int_equal(servers[0].passed, 11);
	stop(2);
}

static void a_server_that_stops_gives_back_what_it_holds(void **state)
{
	(void)state;
	start(1, 1000);
	hammer(&servers[0], 10);
	assert_int_equal(lim.used, 1000);
	settler_stop(servers[0].settler);
	assert_int_equal(lim.used, 10);
	stop(1);
}

static void meters_without_use_are_not_settled(void **state)
{
	(void)state;
	start(1, 10);
	pass_time(1, 5000);
	assert_int_equal(settler_stats(servers[0].settler).meters, 0);
	hammer(&servers[0], 1);
	assert_int_equal(settler_stats(servers[0].settler).meters, 1);
	pass_time(1, 2 * PERIOD_MS);
	assert_int_equal(settler_stats(servers[0].settler).meters, 0);
	stop(1);
}

static void the_thread_settles_by_itself(void **state)
{
	(void)state;
	start(1, 1000);
	assert_int_equal(settler_start(servers[0].settler, NULL), 0);
	for (unsigned i = 0; i < 1000; i++)
		take(&servers[0]);
	assert_int_equal(servers[0].passed, 1000);
	stop(1);
	assert_int_equal(lim.used, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(two_servers_that_are_hammered_let_exactly_the_limit_through),
	    cmocka_unit_test(a_single_busy_server_gets_nearly_all),
	    cmocka_unit_test(an_idle_server_gives_back_what_it_holds_when_others_need_it),
	    cmocka_unit_test(servers_that_begin_together_before_they_hear_of_each_other_stay_within_one_each),
	    cmocka_unit_test(a_new_period_begins_for_all_of_them),
	    cmocka_unit_test(a_reading_counts_what_others_have_used),
	    cmocka_unit_test(without_the_limiter_each_goes_on_with_its_part),
	    cmocka_unit_test(what_was_refunded_can_be_had_again_by_anybody),
	    cmocka_unit_test(a_server_that_stops_gives_back_what_it_holds),
	    cmocka_unit_test(meters_without_use_are_not_settled),
	    cmocka_unit_test(the_thread_settles_by_itself),
	};
	return cmocka_run_group_tests_name("settler", tests, NULL, NULL);
}
