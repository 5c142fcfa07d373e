#include "handler/live_clicks.h"
#include "lib/test.h"

enum { MANY = 2 * COUNTERS_GET_MAX + 7 };

static struct {
	unsigned calls;
	bool is_away;
} fake;

/* Every third link is not known; the others have 100 clicks more than their number. */
static int fake_get(struct counters *c, struct counter *links, size_t n)
{
	(void)c;
	fake.calls++;
	assert_in_range(n, 1, COUNTERS_GET_MAX);
	for (size_t i = 0; i < n; i++) {
		links[i].is_missing = fake.is_away || links[i].link % 3 == 0;
		links[i].clicks = links[i].is_missing ? 0 : links[i].link + 100;
	}
	return fake.is_away ? ERR_UNAVAILABLE : 0;
}

static const struct counters_ops fake_ops = {.get = fake_get};
static struct counters counters = {.ops = &fake_ops};
static struct api api;
static struct link_record links[MANY];

static int setup(void **state)
{
	fake.calls = 0;
	fake.is_away = false;
	api.counters = &counters;
	for (uint64_t i = 0; i < MANY; i++)
		links[i] = (struct link_record){.id = i, .clicks = 500};
	return 0;
}

TEST(the_larger_of_both_counts_is_shown)
{
	live_clicks_show(&api, links, MANY);
	assert_int_equal(fake.calls, 3);
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(links[i].clicks, i % 3 == 0 || i < 400 ? 500 : i + 100);
}

TEST(counters_that_are_down_leave_what_the_store_says)
{
	fake.is_away = true;
	live_clicks_show(&api, links, MANY);
	for (uint64_t i = 0; i < MANY; i++)
		assert_int_equal(links[i].clicks, 500);
}

TEST(totals_of_the_sink_are_raised_too)
{
	struct sink_total totals[] = {{.link = 1, .clicks = 7}, {.link = 2, .clicks = 700}, {.link = 3}};
	live_clicks_raise(&api, totals, ARRAY_LEN(totals));
	assert_int_equal(totals[0].clicks, 101);
	assert_int_equal(totals[1].clicks, 700);
	assert_int_equal(totals[2].clicks, 0);
}

TEST(without_counters_nobody_is_asked)
{
	api.counters = NULL;
	live_clicks_show(&api, links, MANY);
	assert_int_equal(fake.calls, 0);
	assert_int_equal(links[MANY - 1].clicks, 500);
}

TEST_MAIN(.setup = setup)
