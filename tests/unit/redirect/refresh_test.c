#include "handler/jobs.h"
#include "lib/store_kit.h"
#include "lib/test.h"
#include "redirect/refresh.h"
#include "store/backends.h"

enum { NOW_MS = 1000000, LIFE_MS = 5000 };

/* Clocks that stand, and a pool that only keeps what it was given. */
struct offload {
	struct offload_job *jobs[8];
	size_t count, max;
};

static int64_t mono_ms;
static unsigned shared;

int64_t loop_real_ms(const struct loop *l)
{
	(void)l;
	return NOW_MS;
}

int64_t loop_mono_ms(const struct loop *l)
{
	(void)l;
	return mono_ms;
}

int offload_submit(struct offload *o, struct offload_job *job)
{
	if (o->count == o->max)
		return ERR_LIMIT;
	o->jobs[o->count++] = job;
	return 0;
}

void read_job_share(struct read_job *j)
{
	(void)j;
	shared++;
}

static struct {
	struct store *store;
	struct store_ops ops;
	struct store shared_store;
	struct budgets *budgets;
	struct links *links;
	struct offload readers;
	struct api api;
	struct api_worker worker;
} fx;

static int render(const struct link_record *link, struct buf *out, uint16_t *ret_date_at)
{
	(void)link, (void)out, (void)ret_date_at;
	return 0;
}

static int start(void **state)
{
	mono_ms = 100000;
	shared = 0;
	fx.store = kit_store_new();
	fx.shared_store = (struct store){.ops = &fx.ops, .registry = fx.store->registry, .is_shared = true};
	fx.budgets = budgets_new();
	const struct links_config config = {.store = &fx.shared_store,
	                                    .budgets = fx.budgets,
	                                    .settings = {.cache_bytes = 1 << 20, .life_ms = LIFE_MS},
	                                    .id_block = 1,
	                                    .render = render};
	assert_int_equal(links_new(&config, &fx.links, NULL), 0);
	fx.readers = (struct offload){.max = ARRAY_LEN(fx.readers.jobs)};
	fx.api = (struct api){.links = fx.links, .readers = &fx.readers};
	if (!fx.worker.metrics)
		fx.worker.metrics = metrics_register();
	fx.worker.api = &fx.api;
	return 0;
}

static int stop(void **state)
{
	for (size_t i = 0; i < fx.readers.count; i++)
		fx.readers.jobs[i]->done(fx.readers.jobs[i]);
	links_free(fx.links);
	budgets_free(fx.budgets);
	store_free(fx.store);
	return 0;
}

/* An entry that was due so long ago. */
static struct cache_entry *entry(struct cache_fill fill, int64_t ago_ms)
{
	fill.key = STR("key");
	fill.due_ms = mono_ms - ago_ms;
	struct cache *cache = links_cache(fx.links);
	cache_insert(cache, &fill, cache_epoch(cache, fill.key));
	struct cache_entry *e = cache_find(cache, fill.key);
	assert_non_null(e);
	return e;
}

static struct cache_entry *due_entry(int64_t ago_ms)
{
	return entry((struct cache_fill){.response = STR("answer")}, ago_ms);
}

TEST(the_first_who_finds_an_entry_due_has_it_read_and_all_are_served)
{
	struct cache_entry *e = due_entry(0);
	for (unsigned i = 0; i < 5; i++)
		assert_true(refresh_stale_while_revalidate(&fx.worker, e));
	assert_int_equal(fx.readers.count, 1);
	assert_int_equal(shared, 1);
	const struct read_job *j = container_of(fx.readers.jobs[0], struct read_job, job);
	assert_true(str_eq(j->resolve.key, STR("key")));
	assert_int_equal(j->kind, READ_RESOLVE);
	assert_null(j->conn);
	assert_null(j->job.origin);
}

TEST(an_entry_that_could_not_be_read_is_tried_again_a_second_later)
{
	struct cache_entry *e = due_entry(0);
	assert_true(refresh_stale_while_revalidate(&fx.worker, e));
	assert_true(e->due_ms > mono_ms);
	mono_ms = e->due_ms;
	assert_true(refresh_stale_while_revalidate(&fx.worker, e));
	assert_int_equal(fx.readers.count, 2);
}

TEST(an_entry_that_nobody_wanted_for_a_further_life_is_asked_for_first)
{
	assert_true(refresh_stale_while_revalidate(&fx.worker, due_entry(LIFE_MS)));
	assert_false(refresh_stale_while_revalidate(&fx.worker, due_entry(LIFE_MS + 1)));
	assert_int_equal(fx.readers.count, 1);
}

TEST(what_is_not_there_and_what_is_limited_is_always_asked_for_first)
{
	struct click_limits *click_limits = click_limits_new();
	struct click_limit *gate = click_limits_get(click_limits, 1);
	assert_false(refresh_stale_while_revalidate(&fx.worker, entry((struct cache_fill){0}, 0)));
	assert_null(refresh_stale_if_error(&fx.worker, STR("key"), ERR_UNAVAILABLE));
	const struct cache_fill limited = {.response = STR("answer"), .limit = gate, .max_clicks = 3};
	assert_false(refresh_stale_while_revalidate(&fx.worker, entry(limited, 0)));
	assert_null(refresh_stale_if_error(&fx.worker, STR("key"), ERR_UNAVAILABLE));
	assert_int_equal(fx.readers.count, 0);
	click_limit_unpin(gate);
	links_free(fx.links); /* whose cache has it pinned */
	fx.links = NULL;
	click_limits_free(click_limits);
}

TEST(a_full_queue_does_not_keep_an_entry_from_being_served)
{
	fx.readers.max = 0;
	assert_true(refresh_stale_while_revalidate(&fx.worker, due_entry(0)));
	assert_int_equal(fx.readers.count, 0);
}

TEST(when_the_store_fails_what_is_there_is_served_and_left_alone_for_a_second)
{
	struct cache_entry *e = due_entry(10 * LIFE_MS);
	assert_ptr_equal(refresh_stale_if_error(&fx.worker, STR("key"), ERR_UNAVAILABLE), e);
	assert_int_equal(e->due_ms, mono_ms + 1000);
	mono_ms += 1001;
	assert_true(refresh_stale_while_revalidate(&fx.worker, e));
}

TEST(nothing_is_rescued_past_its_end_or_when_it_is_damaged_or_unknown)
{
	assert_null(refresh_stale_if_error(&fx.worker, STR("key"), ERR_UNAVAILABLE));
	entry((struct cache_fill){.response = STR("answer"), .expires_ms = NOW_MS}, 0);
	assert_null(refresh_stale_if_error(&fx.worker, STR("key"), ERR_UNAVAILABLE));
	entry((struct cache_fill){.response = STR("answer"), .expires_ms = NOW_MS + 1}, 0);
	assert_non_null(refresh_stale_if_error(&fx.worker, STR("key"), ERR_UNAVAILABLE));
	assert_null(refresh_stale_if_error(&fx.worker, STR("key"), ERR_CORRUPT));
}

TEST_MAIN(.setup = start, .teardown = stop)
