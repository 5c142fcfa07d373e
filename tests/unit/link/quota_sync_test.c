#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/limiter_memory.h"
#include "link/quota_sync.h"
#include "os/clock.h"

#include <string.h>

enum { PERIOD_MS = 60000, SERVERS_MAX = 3, OWNER = 7 };

static struct limiter_world world;

static struct server {
	struct limiter *limiter;
	struct quota_sync *quota_sync;
	struct budgets *budgets;
	struct meter *meter;
	unsigned passed;
} servers[SERVERS_MAX];

static void server_start(struct server *s, uint64_t max)
{
	*s = (struct server){.passed = s->passed};
	assert_int_equal(limiter_memory_open(&world, &s->limiter, NULL), 0);
	assert_int_equal(quota_sync_new(s->limiter, &s->quota_sync, NULL), 0);
	s->budgets = budgets_new();
	budgets_share(s->budgets, quota_sync_state(s->quota_sync));
	struct budget *b = budgets_of(s->budgets, OWNER);
	budget_set(b, max, 0, PERIOD_MS);
	s->meter = &b->creates;
	quota_sync_once(s->quota_sync, world.now_ms); /* learns how many there are */
}

static void world_start(void)
{
	limiter_world_init(&world);
	world.now_ms = clock_mono_ms(); /* from here on it stands until it is moved */
	memset(servers, 0, sizeof(servers));
}

static void pass_time(unsigned count, int64_t ms)
{
	for (int64_t end = world.now_ms + ms; world.now_ms < end;) {
		world.now_ms += SYNC_MS;
		for (unsigned i = 0; i < count; i++)
			quota_sync_once(servers[i].quota_sync, world.now_ms);
	}
}

static void start(unsigned count, uint64_t max)
{
	world_start();
	for (unsigned i = 0; i < count; i++)
		server_start(&servers[i], max);
	pass_time(count, 1000);
}

/* Not a word more from it. */
static void server_kill(struct server *s)
{
	world.is_away = true;
	quota_sync_stop(s->quota_sync);
	world.is_away = false;
	budgets_free(s->budgets);
	quota_sync_free(s->quota_sync);
}

static void stop(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		quota_sync_stop(servers[i].quota_sync);
		budgets_free(servers[i].budgets);
		quota_sync_free(servers[i].quota_sync);
		servers[i].limiter->ops->free(servers[i].limiter);
	}
}

static unsigned passed_by(unsigned count)
{
	unsigned sum = 0;
	for (unsigned i = 0; i < count; i++)
		sum += servers[i].passed;
	return sum;
}

static bool take(struct server *s)
{
	bool taken = meter_take(s->meter, world.now_ms, NULL);
	s->passed += taken;
	return taken;
}

/* Requests in a row until one is refused, and rounds in between as the nudges ask for them. */
static void hammer(struct server *s, unsigned requests)
{
	for (unsigned i = 0; i < requests; i++) {
		take(s);
		if (atomic_exchange(&quota_sync_state(s->quota_sync)->task.woken, false))
			quota_sync_once(s->quota_sync, world.now_ms);
	}
}

/* All of them, again and again. */
static void hammer_all(unsigned count, unsigned rounds)
{
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < count; i++)
			hammer(&servers[i], 20);
		pass_time(count, SYNC_MS);
	}
}

static void two_servers_that_are_hammered_let_exactly_the_limit_through(void **state)
{
	(void)state;
	start(2, 1000);
	hammer_all(2, 100);
	assert_int_equal(passed_by(2), 1000);
	assert_int_equal(limiter_world_used(&world, OWNER), 1000);
	stop(2);
}

static void a_single_busy_server_gets_all_without_waiting(void **state)
{
	(void)state;
	start(3, 1000);
	hammer(&servers[1], 960);
	assert_true(servers[1].passed >= 950);
	hammer_all(2, 20);
	assert_int_equal(passed_by(3), 1000);
	stop(3);
}

static void an_idle_server_holds_little_and_gives_that_back_when_others_need_it(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[0], 1);
	hammer(&servers[1], 955);
	assert_true(passed_by(2) >= 950);
	for (unsigned round = 0; round < 50; round++) {
		hammer(&servers[1], 20);
		pass_time(2, SYNC_MS);
	}
	assert_int_equal(passed_by(2), 1000);
	stop(2);
}

static void servers_that_begin_before_they_hear_of_each_other_stay_within_a_twentieth(void **state)
{
	(void)state;
	start(3, 1000);
	hammer(&servers[0], 1000);
	for (unsigned i = 1; i < 3; i++) {
		for (unsigned n = 0; n < 100; n++)
			take(&servers[i]); /* no round in between */
	}
	assert_in_range(passed_by(3), 950, 1050);
	pass_time(3, SYNC_MS);
	unsigned before = passed_by(3);
	hammer_all(3, 20);
	assert_in_range(passed_by(3), before, MAX(before, 1000));
	stop(3);
}

static void of_a_small_limit_no_more_than_a_twentieth_goes_over(void **state)
{
	(void)state;
	for (unsigned max = 1; max <= 100; max += max < 10 ? 1 : 30) {
		start(3, max);
		hammer(&servers[0], 20 * max);
		hammer_all(1, 20);
		assert_int_equal(passed_by(3), max);
		for (unsigned i = 1; i < 3; i++) {
			for (unsigned n = 0; n < 12; n++)
				take(&servers[i]); /* no round in between */
			hammer(&servers[i], 12);
		}
		assert_in_range(passed_by(3), max, max + max / INITIAL_SHARE);
		stop(3);
	}
}

static void the_first_of_a_small_limit_waits_for_a_word_and_is_let_through(void **state)
{
	(void)state;
	struct meter_reading reading;
	start(2, 5);
	assert_false(meter_take(servers[0].meter, world.now_ms, &reading));
	assert_true(reading.unsynced);
	assert_in_range(reading.reset_ms, 1, 1000); /* it is worth trying again */
	quota_sync_once(servers[0].quota_sync, world.now_ms);
	assert_true(meter_take(servers[0].meter, world.now_ms, &reading));
	assert_false(reading.unsynced);
	hammer_all(2, 50);
	assert_int_equal(passed_by(2), 5 - 1);
	assert_false(meter_take(servers[0].meter, world.now_ms, &reading));
	assert_false(reading.unsynced); /* nobody waits for what is used up */
	stop(2);
}

static void nobody_waits_longer_than_it_takes_to_know_that_the_limiter_is_away(void **state)
{
	(void)state;
	struct meter_reading reading;
	start(2, 10);
	world.is_away = true;
	pass_time(2, 2000);
	assert_false(meter_take(servers[0].meter, world.now_ms, &reading));
	assert_true(reading.unsynced);
	quota_sync_once(servers[0].quota_sync, world.now_ms);
	for (unsigned i = 0; i < 5; i++)
		assert_true(meter_take(servers[0].meter, world.now_ms, NULL));
	assert_false(meter_take(servers[0].meter, world.now_ms, &reading));
	assert_false(reading.unsynced);
	world.is_away = false;
	stop(2);
}

static void a_new_period_begins_for_all_of_them(void **state)
{
	(void)state;
	start(2, 100);
	for (unsigned period = 1; period <= 3; period++) {
		hammer_all(2, 30);
		assert_int_equal(passed_by(2), 100 * period);
		pass_time(2, PERIOD_MS + 200);
	}
	stop(2);
}

static void nothing_is_used_twice_where_one_period_meets_the_next(void **state)
{
	(void)state;
	for (int64_t offset_ms = 0; offset_ms < 130; offset_ms += 9) {
		start(2, 100);
		world.now_ms += offset_ms;
		hammer_all(2, 30);
		pass_time(2, PERIOD_MS - 4000);
		for (unsigned step = 0; step < 300; step++) {
			world.now_ms += 10;
			for (unsigned i = 0; i < 2; i++) {
				hammer(&servers[i], 1);
				quota_sync_once(servers[i].quota_sync, world.now_ms);
			}
		}
		assert_int_equal(passed_by(2), 200);
		stop(2);
	}
}

static void a_reading_counts_what_others_have_used(void **state)
{
	(void)state;
	struct meter_reading reading;
	start(2, 100);
	hammer(&servers[0], 40);
	hammer(&servers[1], 1);
	pass_time(2, SYNC_MS);
	assert_true(meter_take(servers[1].meter, world.now_ms, &reading));
	assert_int_equal(reading.limit, 100);
	assert_true(reading.remaining <= 58);
	assert_true(reading.reset_ms <= PERIOD_MS && reading.reset_ms > PERIOD_MS - 2000);
	stop(2);
}

static void without_the_limiter_each_goes_on_with_its_part(void **state)
{
	(void)state;
	start(2, 100);
	world.is_away = true;
	hammer_all(2, 30);
	assert_int_equal(servers[0].passed, 50);
	assert_int_equal(servers[1].passed, 50);
	assert_true(quota_sync_stats(servers[0].quota_sync).failures > 0);
	world.is_away = false; /* and then it all comes together again */
	pass_time(2, 2000);
	assert_int_equal(limiter_world_used(&world, OWNER), 100);
	hammer_all(2, 100);
	assert_int_equal(passed_by(2), 100);
	stop(2);
}

static void a_long_time_without_the_limiter_in_mid_period_costs_nothing(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[0], 300);
	hammer(&servers[1], 100);
	pass_time(2, SYNC_MS);
	world.is_away = true;
	hammer_all(2, 100);
	assert_in_range(passed_by(2), 900, 1000);
	world.is_away = false;
	hammer_all(1, 20); /* the other is late */
	assert_in_range(passed_by(2), 900, 1000);
	hammer_all(2, 100);
	assert_int_equal(passed_by(2), 1000);
	stop(2);
}

static void servers_that_never_heard_of_others_take_half_each(void **state)
{
	(void)state;
	world_start();
	world.is_away = true;
	server_start(&servers[0], 1000);
	server_start(&servers[1], 1000);
	hammer_all(2, 100);
	assert_int_equal(passed_by(2), 1000);
	stop(2);
}

static void a_late_visitor_during_a_short_stall_costs_little(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[0], 1000);
	world.is_away = true;
	for (unsigned i = 0; i < 8; i++) {
		hammer(&servers[1], 100);
		pass_time(2, SYNC_MS);
	}
	world.is_away = false;
	hammer_all(2, 30);
	assert_in_range(passed_by(2), 950, 1050);
	stop(2);
}

static void what_was_told_and_not_answered_is_neither_lost_nor_doubled(void **state)
{
	(void)state;
	start(2, 1000);
	world.is_mute = true;
	hammer(&servers[0], 1);
	pass_time(2, 800);
	world.is_mute = false;
	pass_time(2, 500);
	hammer_all(2, 100);
	assert_in_range(passed_by(2), 1000, 1000);
	stop(2);
}

static void what_was_given_back_and_not_answered_is_not_used_twice(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[1], 200);
	hammer(&servers[0], 400);
	world.is_mute = true; /* and now both have nothing to do, and give back */
	pass_time(2, 800);
	for (unsigned i = 0; i < 1000; i++)
		take(&servers[0]);
	world.is_mute = false;
	hammer_all(2, 100);
	assert_int_equal(passed_by(2), 1000);
	stop(2);
}

static void what_was_refunded_can_be_had_again_by_anybody(void **state)
{
	(void)state;
	struct meter_reading reading;
	start(2, 10);
	hammer(&servers[0], 1); /* and now it has heard of the period */
	assert_true(meter_take(servers[0].meter, world.now_ms, &reading));
	hammer_all(1, 50);
	assert_int_equal(servers[0].passed, 9);
	meter_refund(servers[0].meter, &reading);
	pass_time(2, 5000); /* nobody wants it: it is given back */
	assert_int_equal(limiter_world_granted(&world, OWNER), 9);
	hammer_all(2, 5);
	assert_int_equal(passed_by(2), 10);
	stop(2);
}

static void refunds_of_all_that_was_taken_leave_the_whole_limit(void **state)
{
	(void)state;
	struct meter_reading reading;
	start(1, 100);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(meter_take(servers[0].meter, world.now_ms, &reading));
		pass_time(1, SYNC_MS);
		meter_refund(servers[0].meter, &reading);
		pass_time(1, 3 * SYNC_MS);
	}
	assert_int_equal(limiter_world_used(&world, OWNER), 0);
	hammer(&servers[0], 100);
	assert_true(servers[0].passed >= 95);
	stop(1);
}

static void what_a_killed_server_held_is_free_again_and_what_it_used_is_not(void **state)
{
	(void)state;
	start(1, 1000);
	hammer(&servers[0], 60);
	pass_time(1, SYNC_MS);
	struct limiter *dead = servers[0].limiter;
	server_kill(&servers[0]);
	server_start(&servers[0], 1000);
	hammer(&servers[0], 300);
	assert_true(servers[0].passed >= 360);
	pass_time(1, LIMITER_SERVER_MS);
	hammer(&servers[0], 1000);
	hammer_all(1, 20);
	assert_int_equal(servers[0].passed, 1000);
	stop(1);
	dead->ops->free(dead);
}

static void a_limiter_that_forgot_everything_is_told_again(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[0], 300);
	hammer(&servers[1], 300);
	pass_time(2, SYNC_MS);
	limiter_world_forget(&world);
	hammer(&servers[0], 1000); /* before the other has said a word */
	hammer_all(2, 200);
	assert_in_range(passed_by(2), 950, 1000);
	assert_int_equal(limiter_world_used(&world, OWNER), passed_by(2));
	stop(2);
}

static void a_period_that_began_anew_in_between_gives_way_to_the_one_under_way(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[0], 900);
	pass_time(2, SYNC_MS);
	limiter_world_forget(&world);
	hammer(&servers[1], 10); /* who knows of no period, and begins one */
	pass_time(2, 1000);
	assert_int_equal(limiter_world_used(&world, OWNER), passed_by(2));
	hammer_all(2, 100);
	assert_in_range(passed_by(2), 950, 1050);
	stop(2);
}

static void a_server_that_stops_holds_nothing_more(void **state)
{
	(void)state;
	enum { MANY = 3000 };
	start(1, 1000);
	for (unsigned i = 1; i <= MANY; i++) {
		struct budget *b = budgets_of(servers[0].budgets, 100 + i);
		budget_set(b, 1000, 0, PERIOD_MS);
		meter_take(&b->creates, world.now_ms, NULL);
	}
	for (unsigned i = 0; i < 4; i++)
		quota_sync_once(servers[0].quota_sync, world.now_ms);
	assert_true(limiter_world_granted(&world, 100 + 1) > 1);
	quota_sync_stop(servers[0].quota_sync);
	for (unsigned i = 1; i <= MANY; i++)
		assert_int_equal(limiter_world_granted(&world, 100 + i), 1);
	stop(1);
}

static void a_server_that_stood_still_uses_nothing_that_others_were_given(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[0], 1);
	hammer(&servers[1], 200);
	pass_time(2, SYNC_MS);
	for (unsigned round = 0; round < 50; round++) { /* without a word from the other */
		hammer(&servers[0], 40);
		pass_time(1, SYNC_MS);
	}
	assert_int_equal(passed_by(2), 1000);
	for (unsigned i = 0; i < 200; i++)
		take(&servers[1]); /* before it has settled again */
	assert_int_equal(passed_by(2), 1000);
	stop(2);
}

static void a_server_that_stood_still_goes_on_when_it_has_settled(void **state)
{
	(void)state;
	start(2, 1000);
	hammer(&servers[0], 1);
	hammer(&servers[1], 200);
	pass_time(1, 2LL * LIMITER_SERVER_MS);
	assert_false(take(&servers[1]));
	quota_sync_once(servers[1].quota_sync, world.now_ms);
	assert_true(take(&servers[1]));
	hammer_all(2, 100);
	assert_int_equal(passed_by(2), 1000);
	stop(2);
}

static void when_there_are_more_meters_than_can_be_settled_in_time_all_have_their_turn(void **state)
{
	(void)state;
	enum { MANY = 3000, FIRST = 100 };
	start(1, 1000);
	for (unsigned i = 0; i < MANY; i++) {
		struct budget *b = budgets_of(servers[0].budgets, FIRST + i);
		budget_set(b, 1000, 0, PERIOD_MS);
		meter_take(&b->creates, world.now_ms, NULL);
	}
	for (unsigned round = 0; round < 3; round++) { /* those of the last round are due again in each */
		world.now_ms += SYNC_MS;
		quota_sync_once(servers[0].quota_sync, world.now_ms);
	}
	for (unsigned i = 0; i < MANY; i++)
		assert_true(limiter_world_granted(&world, FIRST + i) > 0);
	stop(1);
}

static void meters_without_use_are_not_settled(void **state)
{
	(void)state;
	start(1, 10);
	pass_time(1, 5000);
	assert_int_equal(quota_sync_stats(servers[0].quota_sync).meters, 0);
	hammer(&servers[0], 1);
	assert_int_equal(quota_sync_stats(servers[0].quota_sync).meters, 1);
	pass_time(1, 2 * PERIOD_MS);
	assert_int_equal(quota_sync_stats(servers[0].quota_sync).meters, 0);
	stop(1);
}

static void the_thread_settles_by_itself(void **state)
{
	(void)state;
	start(1, 1000);
	assert_int_equal(quota_sync_start(servers[0].quota_sync, NULL), 0);
	for (int64_t end_ms = clock_mono_ms() + 20000; servers[0].passed < 1000 && clock_mono_ms() < end_ms;)
		take(&servers[0]);
	assert_int_equal(servers[0].passed, 1000);
	stop(1);
}

static void who_waits_is_told_when_the_thread_has_heard(void **state)
{
	(void)state;
	start(2, 5);
	world.now_ms = 0; /* from here on time passes */
	assert_int_equal(quota_sync_start(servers[0].quota_sync, NULL), 0);
	bool taken = false;
	for (int64_t end_ms = clock_mono_ms() + 20000; !taken && clock_mono_ms() < end_ms;) {
		meter_wait_for_grant(servers[0].meter, clock_mono_ms() + LIMIT_REFRESH_MS_MAX);
		taken = meter_take(servers[0].meter, clock_mono_ms(), NULL);
	}
	assert_true(taken);
	stop(2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(two_servers_that_are_hammered_let_exactly_the_limit_through),
	    cmocka_unit_test(a_single_busy_server_gets_all_without_waiting),
	    cmocka_unit_test(an_idle_server_holds_little_and_gives_that_back_when_others_need_it),
	    cmocka_unit_test(servers_that_begin_before_they_hear_of_each_other_stay_within_a_twentieth),
	    cmocka_unit_test(of_a_small_limit_no_more_than_a_twentieth_goes_over),
	    cmocka_unit_test(the_first_of_a_small_limit_waits_for_a_word_and_is_let_through),
	    cmocka_unit_test(nobody_waits_longer_than_it_takes_to_know_that_the_limiter_is_away),
	    cmocka_unit_test(a_new_period_begins_for_all_of_them),
	    cmocka_unit_test(nothing_is_used_twice_where_one_period_meets_the_next),
	    cmocka_unit_test(a_reading_counts_what_others_have_used),
	    cmocka_unit_test(without_the_limiter_each_goes_on_with_its_part),
	    cmocka_unit_test(a_long_time_without_the_limiter_in_mid_period_costs_nothing),
	    cmocka_unit_test(servers_that_never_heard_of_others_take_half_each),
	    cmocka_unit_test(a_late_visitor_during_a_short_stall_costs_little),
	    cmocka_unit_test(what_was_told_and_not_answered_is_neither_lost_nor_doubled),
	    cmocka_unit_test(what_was_given_back_and_not_answered_is_not_used_twice),
	    cmocka_unit_test(what_was_refunded_can_be_had_again_by_anybody),
	    cmocka_unit_test(refunds_of_all_that_was_taken_leave_the_whole_limit),
	    cmocka_unit_test(what_a_killed_server_held_is_free_again_and_what_it_used_is_not),
	    cmocka_unit_test(a_limiter_that_forgot_everything_is_told_again),
	    cmocka_unit_test(a_period_that_began_anew_in_between_gives_way_to_the_one_under_way),
	    cmocka_unit_test(a_server_that_stops_holds_nothing_more),
	    cmocka_unit_test(a_server_that_stood_still_uses_nothing_that_others_were_given),
	    cmocka_unit_test(a_server_that_stood_still_goes_on_when_it_has_settled),
	    cmocka_unit_test(when_there_are_more_meters_than_can_be_settled_in_time_all_have_their_turn),
	    cmocka_unit_test(meters_without_use_are_not_settled),
	    cmocka_unit_test(the_thread_settles_by_itself),
	    cmocka_unit_test(who_waits_is_told_when_the_thread_has_heard),
	};
	return cmocka_run_group_tests_name("quota_sync", tests, NULL, NULL);
}
