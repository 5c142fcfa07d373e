/* Sweeping, on a store that takes as long as the test says, by a clock of the test's own. */
#include "lib/store_kit.h"
#include "lib/test.h"
#include "link/sweep.h"
#include "os/sys.h"
#include "store/backends.h"

#include <sodium.h>

enum { NOW = 1000000, IDS_MAX = 4096, BATCH_MIN = 1, BATCH_FIRST = 16, BATCH_MAX = 512, AIM_US = 2000 };

/* Hands on what links need, and gets in between. */
static struct slow {
	struct store base;
	struct store *inner;
	int64_t cost_us;      /* of each write */
	int64_t commit_us;    /* of each transaction */
	int over_fails;       /* what `over` says instead */
	int apply_fails;      /* likewise */
	uint64_t prolonged;   /* changed between the question and the removal; 0: none */
	unsigned applies;     /* transactions */
	size_t largest_apply; /* writes in one */
} slow;

static struct {
	struct budgets *budgets;
	struct links *links;
	struct metrics *metrics;
	struct arena arena;
	int64_t clock_ns;
	uint64_t ids[IDS_MAX]; /* of all links that were made */
	struct str keys[IDS_MAX];
	size_t count;
} fx;

static int test_clock(clockid_t clock, struct timespec *ret)
{
	(void)clock;
	*ret = (struct timespec){.tv_sec = fx.clock_ns / 1000000000, .tv_nsec = fx.clock_ns % 1000000000};
	return 0;
}

static int slow_lookup(struct store *s, struct store_lookup *lookups, size_t n)
{
	(void)s;
	return store_lookup(slow.inner, lookups, n);
}

static int slow_apply(struct store *s, struct store_write *writes, size_t n)
{
	(void)s;
	fx.clock_ns += (slow.commit_us + slow.cost_us * (int64_t)n) * 1000;
	slow.applies++;
	slow.largest_apply = MAX(slow.largest_apply, n);
	return slow.apply_fails ? slow.apply_fails : store_apply(slow.inner, writes, n);
}

static int slow_over(struct store *s, struct store_expired *expired)
{
	(void)s;
	int r = slow.over_fails ? slow.over_fails : store_expired(slow.inner, expired);
	if (r == 0 && slow.prolonged) {
		struct store_write w = {.kind = STORE_LINK_UPDATE,
		                        .now_ms = NOW,
		                        .arena = &fx.arena,
		                        .fields = LINK_EXPIRES,
		                        .link.expires_ms = NOW + 1};
		for (size_t i = 0; i < fx.count; i++)
			if (fx.ids[i] == slow.prolonged)
				w.ref = links_ref(fx.links, fx.keys[i]);
		assert_int_equal(store_apply(slow.inner, &w, 1), 0);
		assert_int_equal(w.result, 0);
	}
	return r;
}

static const struct store_ops slow_ops = {.lookup = slow_lookup, .apply = slow_apply, .expired = slow_over};

static int render(const struct link_record *link, struct buf *out, uint16_t *ret_date_at)
{
	buf_str(out, link->url);
	*ret_date_at = 0;
	return 0;
}

static int setup(void **state)
{
	slow = (struct slow){.base.ops = &slow_ops};
	os_sys.clock_gettime = test_clock;
	fx.count = 0;
	slow.inner = kit_store_new();
	slow.base.registry = slow.inner->registry;
	fx.budgets = budgets_new();
	if (!fx.metrics)
		fx.metrics = metrics_register();
	const struct links_config config = {.store = &slow.base,
	                                    .budgets = fx.budgets,
	                                    .settings = {.alphabet = KEY_BASE62,
	                                                 .cache_bytes = 1 << 20,
	                                                 .negative_ms = 1000,
	                                                 .quarantine_ms = 1000},
	                                    .id_block = 100,
	                                    .cache_seed = 1,
	                                    .render = render};
	assert_int_equal(links_new(&config, &fx.links, NULL), 0);
	return 0;
}

static int teardown(void **state)
{
	links_free(fx.links);
	budgets_free(fx.budgets);
	store_free(slow.inner);
	arena_release(&fx.arena);
	os_sys = os_sys_real;
	return 0;
}

/* Every third one has an alias. */
static uint64_t create(int64_t expires_ms, struct str expired_url)
{
	assert_true(fx.count < IDS_MAX);
	struct str alias = arena_printf(&fx.arena, "alias-%zu", fx.count);
	struct store_write w = {.kind = STORE_LINK_CREATE,
	                        .now_ms = 1000,
	                        .arena = &fx.arena,
	                        .link = {.owner = 7,
	                                 .url = STR("https://a.example/"),
	                                 .created_ms = 1000,
	                                 .updated_ms = 1000,
	                                 .expires_ms = expires_ms,
	                                 .expired_url = expired_url,
	                                 .redirect_status = 302,
	                                 .enabled = true,
	                                 .is_alias = fx.count % 3 == 0,
	                                 .key = fx.count % 3 == 0 ? alias : STR_NULL}};
	links_apply(fx.links, &w, 1, fx.metrics);
	assert_int_equal(w.result, 0);
	fx.keys[fx.count] = w.link.key;
	return fx.ids[fx.count++] = w.link.id;
}

static void create_many(size_t count, int64_t expires_ms)
{
	for (size_t i = 0; i < count; i++)
		create(expires_ms, STR_NULL);
}

static bool is_there(struct str key)
{
	struct store_lookup read = {.ref = links_ref(fx.links, key), .arena = &fx.arena};
	assert_int_equal(links_get(fx.links, &read, 1, fx.metrics), 0);
	assert_true(read.result == 0 || read.result == ERR_NOT_FOUND);
	return read.result == 0;
}

static struct sweep_outcome step(struct sweep *s)
{
	struct sweep_outcome outcome;
	assert_int_equal(sweep_step(s, fx.links, NOW, fx.metrics, &outcome), 0);
	return outcome;
}

TEST(all_that_is_over_goes_and_nothing_else)
{
	struct sweep s = {0};
	for (int i = 0; i < 300; i++) {
		create(NOW, STR_NULL);
		create(NOW - i, STR_NULL);
		create(0, STR_NULL);
		create(NOW + 1, STR_NULL);
		create(NOW, STR("https://late.example/"));
	}
	uint64_t reaped = fx.metrics->links_swept;
	size_t removed = 0;
	struct sweep_outcome outcome;
	do {
		outcome = step(&s);
		removed += outcome.removed;
		assert_true(outcome.removed <= BATCH_MAX);
	} while (outcome.more);
	assert_int_equal(removed, 600);
	assert_int_equal(fx.metrics->links_swept - reaped, 600);
	for (size_t i = 0; i < fx.count; i++)
		assert_int_equal(is_there(fx.keys[i]), i % 5 >= 2);
	assert_int_equal(step(&s).removed, 0);
}

TEST(a_store_without_such_links_is_left_alone)
{
	struct sweep s = {0};
	create_many(10, NOW + 1);
	slow.applies = 0;
	struct sweep_outcome outcome = step(&s);
	assert_int_equal(outcome.removed, 0);
	assert_false(outcome.more);
	assert_int_equal(outcome.took_us, 0);
	assert_int_equal(slow.applies, 0);
}

TEST(a_step_is_one_transaction)
{
	struct sweep s = {0};
	create_many(40, NOW);
	slow.applies = 0;
	slow.largest_apply = 0;
	slow.commit_us = 100;
	struct sweep_outcome outcome = step(&s);
	assert_int_equal(outcome.removed, BATCH_FIRST);
	assert_true(outcome.more);
	assert_int_equal(outcome.took_us, 100);
	assert_int_equal(slow.applies, 1);
	assert_int_equal(slow.largest_apply, BATCH_FIRST);
}

TEST(steps_grow_while_the_store_is_quick)
{
	struct sweep s = {0};
	create_many(3000, NOW);
	slow.cost_us = 1;
	for (size_t expected = BATCH_FIRST; expected < BATCH_MAX; expected *= 2)
		assert_int_equal(step(&s).removed, expected);
	assert_int_equal(step(&s).removed, BATCH_MAX);
	assert_int_equal(step(&s).removed, BATCH_MAX);
}

TEST(steps_take_about_as_long_as_they_should)
{
	struct sweep s = {0};
	create_many(3000, NOW);
	slow.cost_us = 15;
	for (int i = 0; i < 6; i++)
		step(&s);
	for (int i = 0; i < 5; i++)
		assert_in_range(step(&s).took_us, AIM_US * 8 / 10, AIM_US);
}

TEST(steps_shrink_at_once_when_the_store_is_slow)
{
	struct sweep s = {.batch = BATCH_MAX};
	create_many(2000, NOW);
	slow.cost_us = 50;
	assert_int_equal(step(&s).took_us, 50 * BATCH_MAX);
	assert_int_equal(step(&s).removed, AIM_US / 50);
	slow.cost_us = 10000;
	step(&s);
	assert_int_equal(step(&s).removed, BATCH_MIN); /* some progress there must be */
	slow.cost_us = 1;
	step(&s);
	assert_int_equal(step(&s).removed, 2 * BATCH_MIN);
}

TEST(a_few_links_say_nothing_about_many)
{
	struct sweep s = {.batch = 256};
	create_many(3, NOW);
	slow.commit_us = 500;
	struct sweep_outcome outcome = step(&s);
	assert_int_equal(outcome.removed, 3);
	assert_false(outcome.more);
	assert_int_equal(s.batch, 256);
}

/* Counts the rests, and asks for the end after some. */
struct rests {
	unsigned taken, stop_after;
};

static bool rest(void *ctx, uint64_t ms)
{
	struct rests *r = ctx;
	assert_in_range(ms, 1, 1000);
	return ++r->taken == r->stop_after;
}

static struct sweep_run run_of(struct rests *rests)
{
	fx.clock_ns = NOW * 1000000LL; /* a run looks at the clock itself */
	return (struct sweep_run){
	    .links = fx.links, .metrics = fx.metrics, .until_ms = INT64_MAX, .wait = rest, .ctx = rests};
}

TEST(a_run_removes_everything_and_rests_in_between)
{
	struct rests rests = {0};
	struct sweep_run run = run_of(&rests);
	create_many(300, NOW);
	assert_int_equal(sweep_run(&run), 0);
	assert_int_equal(run.removed, 300);
	assert_false(run.more);
	assert_true(rests.taken >= 2);
}

TEST(a_run_ends_when_it_is_asked_to)
{
	struct rests rests = {.stop_after = 1};
	struct sweep_run run = run_of(&rests);
	create_many(300, NOW);
	assert_int_equal(sweep_run(&run), 0);
	assert_true(run.removed < 300);
	assert_true(run.more);
	assert_int_equal(rests.taken, 1);
	run.until_ms = 0; /* long ago: it takes one step all the same, or it might never get on */
	rests = (struct rests){0};
	assert_int_equal(sweep_run(&run), 0);
	assert_in_range(run.removed, 1, 299);
	assert_true(run.more);
}

TEST(a_link_that_is_prolonged_meanwhile_stays)
{
	struct sweep s = {0};
	create_many(10, NOW);
	slow.prolonged = fx.ids[4];
	assert_int_equal(step(&s).removed, 9);
	for (size_t i = 0; i < fx.count; i++)
		assert_int_equal(is_there(fx.keys[i]), i == 4);
}

TEST(a_failing_store_is_reported_and_tried_again)
{
	struct sweep s = {0};
	struct sweep_outcome outcome = {.removed = 99};
	create_many(10, NOW);
	slow.over_fails = ERR_UNAVAILABLE;
	assert_int_equal(sweep_step(&s, fx.links, NOW, fx.metrics, &outcome), ERR_UNAVAILABLE);
	slow.over_fails = 0;
	slow.apply_fails = ERR_UNAVAILABLE;
	assert_int_equal(sweep_step(&s, fx.links, NOW, fx.metrics, &outcome), ERR_UNAVAILABLE);
	assert_int_equal(outcome.removed, 99);
	slow.apply_fails = 0;
	assert_int_equal(step(&s).removed, 10);
}

TEST(swept_links_leave_the_cache)
{
	struct sweep s = {0};
	create_many(12, NOW);
	for (size_t i = 0; i < fx.count; i++) {
		struct link_resolve r = {.key = fx.keys[i], .arena = &fx.arena}, *wanted = &r;
		links_resolve(fx.links, &wanted, 1, NOW - 1, fx.metrics);
		assert_int_equal(r.result, 0);
		assert_non_null(cache_find(links_cache(fx.links), fx.keys[i]));
	}
	assert_int_equal(step(&s).removed, 12);
	for (size_t i = 0; i < fx.count; i++)
		assert_null(cache_find(links_cache(fx.links), fx.keys[i]));
}

int main(void)
{
	return sodium_init() < 0 ? 1 : RUN_TESTS(.setup = setup, .teardown = teardown);
}
