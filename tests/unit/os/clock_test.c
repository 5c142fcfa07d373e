#include "lib/os_fault.h"
#include "lib/test.h"
#include "os/clock.h"

TEST(the_real_clock_agrees_with_the_c_library)
{
	int64_t before = (int64_t)time(NULL) * 1000;
	int64_t now = clock_real_ms();
	int64_t after = (int64_t)time(NULL) * 1000;
	assert_true(now >= before - 1000);
	assert_true(now <= after + 2000);
}

TEST(the_monotonic_clock_never_goes_back)
{
	int64_t last = clock_mono_ns();
	for (int i = 0; i < 100000; i++) {
		int64_t now = clock_mono_ns();
		assert_true(now >= last);
		last = now;
	}
	assert_true(clock_mono_ms() >= last / 1000000);
}

TEST(a_test_turns_the_clocks)
{
	os_fault_clock_set(1794718800123, 5000);
	assert_int_equal(clock_real_ms(), 1794718800123);
	assert_int_equal(clock_mono_ms(), 5000);
	os_fault_clock_advance(250);
	assert_int_equal(clock_real_ms(), 1794718800373);
	assert_int_equal(clock_mono_ns(), 5250000000);
	os_fault_clock_advance_real(-1000);
	assert_int_equal(clock_real_ms(), 1794718799373);
	assert_int_equal(clock_mono_ms(), 5250);
	os_fault_reset();
	assert_true(clock_real_ms() != 1794718799373);
}

TEST_MAIN()
