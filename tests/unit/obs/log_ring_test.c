#include "lib/test.h"
#include "obs/log_ring.h"

#include <sched.h>

static struct log_entry entry_of(struct str text, int64_t number)
{
	return (struct log_entry){.time_ms = number, .level = 2, .module = "test", .text = text};
}

static void drain(struct log_ring *r)
{
	struct log_entry entry;
	char text[LOG_TEXT_MAX];
	uint64_t lost;
	while (log_ring_pop(r, &entry, text, &lost))
		;
	log_ring_take_lost(r);
}

TEST(entries_come_out_as_they_went_in)
{
	struct log_ring *r = log_ring_own();
	struct log_entry in = entry_of(STR("one"), 42), out;
	char text[LOG_TEXT_MAX];
	uint64_t lost = 7;
	assert_ptr_equal(log_ring_own(), r);
	assert_false(log_ring_pop(r, &out, text, &lost));
	assert_true(log_ring_push(r, &in));
	assert_true(log_ring_pop(r, &out, text, &lost));
	assert_int_equal(out.time_ms, 42);
	assert_int_equal(out.level, 2);
	assert_ptr_equal(out.module, in.module);
	assert_true(str_eq(out.text, STR("one")));
	assert_int_equal(lost, 0);
	assert_false(log_ring_pop(r, &out, text, &lost));
}

TEST(entries_of_every_length_survive_the_end_of_the_ring)
{
	struct log_ring *r = log_ring_own();
	char text[LOG_TEXT_MAX], taken[LOG_TEXT_MAX];
	for (size_t len = 0; len <= LOG_TEXT_MAX; len++) { /* goes around some thirty times */
		struct log_entry out;
		uint64_t lost;
		memset(text, (int)('a' + len % 26), len);
		struct log_entry in = entry_of(str_n(text, len), (int64_t)len);
		assert_true(log_ring_push(r, &in));
		assert_true(log_ring_pop(r, &out, taken, &lost));
		assert_int_equal(out.time_ms, len);
		assert_true(str_eq(out.text, in.text));
	}
}

TEST(a_full_ring_loses_the_newest_and_the_next_that_fits_tells)
{
	struct log_ring *r = log_ring_own();
	struct log_entry in = entry_of(STR("a line of some length, such as there are"), 0), out;
	char text[LOG_TEXT_MAX];
	uint64_t lost, kept = 0, losses = 1;
	while (log_ring_push(r, &in))
		in.time_ms = (int64_t)++kept;
	assert_true(kept > 500);
	in.time_ms = 1000000;
	uint64_t taken = 0;
	while (!log_ring_push(r, &in)) { /* until there is room for more than this one */
		losses++;
		assert_true(log_ring_pop(r, &out, text, &lost));
		assert_int_equal(out.time_ms, taken++); /* the oldest are still there */
		assert_int_equal(lost, 0);
	}
	assert_in_range(taken, kept / 4, kept / 4 + 1);
	for (; taken < kept; taken++) {
		assert_true(log_ring_pop(r, &out, text, &lost));
		assert_int_equal(out.time_ms, taken);
		assert_int_equal(lost, 0);
	}
	assert_true(log_ring_pop(r, &out, text, &lost));
	assert_int_equal(out.time_ms, 1000000);
	assert_int_equal(lost, losses);
	assert_int_equal(log_ring_take_lost(r), 0);
}

TEST(losses_without_a_next_line_can_be_taken)
{
	struct log_ring *r = log_ring_own();
	struct log_entry in = entry_of(STR("x"), 0);
	while (log_ring_push(r, &in))
		;
	assert_int_equal(log_ring_take_lost(r), 1);
	assert_int_equal(log_ring_take_lost(r), 0);
	drain(r);
}

static void *own_and_push(void *arg)
{
	struct log_ring **ret = arg;
	struct log_entry in = entry_of(STR("from a thread"), 0);
	*ret = log_ring_own();
	log_ring_push(*ret, &in);
	return NULL;
}

static struct log_ring *ring_of_an_ended_thread(void)
{
	struct log_ring *r = NULL;
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, own_and_push, &r), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_non_null(r);
	return r;
}

TEST(an_ended_threads_ring_is_reused_once_it_is_drained)
{
	struct log_ring *first = ring_of_an_ended_thread();
	assert_ptr_not_equal(first, log_ring_own());
	struct log_ring *second = ring_of_an_ended_thread();
	assert_ptr_not_equal(second, first); /* its line is still in there */
	drain(first);
	assert_ptr_equal(ring_of_an_ended_thread(), first);
	drain(first);
	drain(second);
	size_t listed = 0;
	for (struct log_ring *r = log_ring_first(); r; r = r->next)
		listed++;
	assert_int_equal(listed, 3); /* these two and this thread's own */
}

enum { PASSED_ON = 200000 };

static void *push_numbers(void *arg)
{
	struct log_ring *_Atomic *ret = arg;
	struct log_ring *r = log_ring_own();
	atomic_store(ret, r);
	for (int64_t i = 0; i < PASSED_ON; i++) {
		char text[32];
		int len = snprintf(text, sizeof(text), "%lld", (long long)i);
		struct log_entry in = entry_of(str_n(text, (size_t)len), i);
		while (!log_ring_push(r, &in))
			sched_yield();
	}
	return NULL;
}

TEST(one_writer_and_one_reader_agree_on_every_entry)
{
	struct log_ring *_Atomic shared = NULL;
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, push_numbers, &shared), 0);
	struct log_ring *r;
	while (!(r = atomic_load(&shared)))
		sched_yield();
	for (int64_t i = 0; i < PASSED_ON;) {
		struct log_entry out;
		char text[LOG_TEXT_MAX], expected[32];
		uint64_t lost;
		if (!log_ring_pop(r, &out, text, &lost)) {
			sched_yield();
			continue;
		}
		assert_int_equal(out.time_ms, i);
		int len = snprintf(expected, sizeof(expected), "%lld", (long long)i);
		assert_true(str_eq(out.text, str_n(expected, (size_t)len)));
		i++;
	}
	pthread_join(thread, NULL);
}

TEST_MAIN()
