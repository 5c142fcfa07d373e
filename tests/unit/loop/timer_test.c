#include "lib/test.h"
#include "loop/timer.h"

static struct timers wheel;
static int64_t now_ms;

struct probe {
	struct timer timer;
	int fired;
	int64_t fired_at_ms;
	int64_t again_after_ms; /* sets itself again */
};

static void probe_fire(struct timer *t)
{
	struct probe *p = container_of(t, struct probe, timer);
	p->fired++;
	p->fired_at_ms = now_ms;
	if (p->again_after_ms)
		timer_set(&wheel, t, now_ms + p->again_after_ms);
}

static void start(struct probe *p)
{
	now_ms = 1000000;
	timers_init(&wheel, now_ms);
	*p = (struct probe){0};
	timer_init(&p->timer, probe_fire);
}

static void advance(int64_t by_ms, int64_t step_ms)
{
	for (int64_t until = now_ms + by_ms; now_ms < until;) {
		now_ms = MIN(now_ms + step_ms, until);
		timers_run(&wheel, now_ms);
	}
}

TEST(a_timer_fires_once_never_early_and_at_most_a_tick_late)
{
	static const int64_t delays[] = {1, 31, 32, 33, 500, 32767, 32768, 40000, 100000, 3600000};
	for (size_t i = 0; i < ARRAY_LEN(delays); i++) {
		struct probe p;
		start(&p);
		int64_t at = now_ms + delays[i];
		timer_set(&wheel, &p.timer, at);
		advance(delays[i] + 2 * TIMER_TICK_MS, 1);
		assert_int_equal(p.fired, 1);
		assert_true(p.fired_at_ms >= at);
		assert_true(p.fired_at_ms <= at + TIMER_TICK_MS);
	}
}

TEST(a_cancelled_timer_does_not_fire)
{
	struct probe p;
	start(&p);
	timer_set(&wheel, &p.timer, now_ms + 100);
	timer_cancel(&wheel, &p.timer);
	timer_cancel(&wheel, &p.timer);
	advance(1000, 10);
	assert_int_equal(p.fired, 0);
	assert_int_equal(timers_sleep_ms(&wheel, now_ms), -1);
}

TEST(a_timer_that_is_set_again_moves)
{
	struct probe p;
	start(&p);
	timer_set(&wheel, &p.timer, now_ms + 100);
	timer_set(&wheel, &p.timer, now_ms + 5000);
	advance(4900, 10);
	assert_int_equal(p.fired, 0);
	advance(200, 10);
	assert_int_equal(p.fired, 1);
}

TEST(a_timer_may_set_itself_again_while_it_fires)
{
	struct probe p;
	start(&p);
	p.again_after_ms = 320;
	timer_set(&wheel, &p.timer, now_ms + 320);
	advance(32000, 16);
	assert_in_range(p.fired, 90, 100);
}

TEST(after_a_long_sleep_everything_due_fires_once)
{
	struct probe p, later;
	start(&p);
	later = (struct probe){0};
	timer_init(&later.timer, probe_fire);
	timer_set(&wheel, &p.timer, now_ms + 50);
	timer_set(&wheel, &later.timer, now_ms + 10000000);
	advance(5000000, 5000000);
	assert_int_equal(p.fired, 1);
	assert_int_equal(later.fired, 0);
	advance(5000100, 5000100);
	assert_int_equal(later.fired, 1);
}

/* A loop that sleeps as long as it is told wakes up in time for every timer. */
TEST(sleeping_as_long_as_told_misses_nothing)
{
	static const int64_t delays[] = {1, 40, 900, 2050, 33000, 70000};
	for (size_t i = 0; i < ARRAY_LEN(delays); i++) {
		struct probe p;
		start(&p);
		int64_t at = now_ms + delays[i];
		timer_set(&wheel, &p.timer, at);
		int sleeps = 0;
		while (!p.fired) {
			int sleep_ms = timers_sleep_ms(&wheel, now_ms);
			assert_true(sleep_ms >= 0 && ++sleeps < 10);
			now_ms += sleep_ms;
			timers_run(&wheel, now_ms);
		}
		assert_true(now_ms >= at && now_ms <= at + TIMER_TICK_MS);
	}
}

TEST_MAIN()
