#include "keys/leased_worker.h"
#include "lease/backends.h"
#include "lib/keys_kit.h"
#include "lib/test.h"
#include "obs/log.h"

enum { PLACES = 3, LIFE_MS = 20000 };

/* Somebody who looks after places, and what happened to them. */
struct keeper {
	struct leases *leases;
	_Atomic unsigned begun[PLACES], visited[PLACES];
	_Atomic uint64_t fence[PLACES];
	_Atomic bool failing[PLACES];
	_Atomic bool mute[PLACES]; /* only visits fail */
	struct leased_worker *leased_worker;
};

static int lease_of(void *ctx, size_t resource, struct leases **ret, char name[LEASE_NAME_BYTES],
                    struct err *e)
{
	(void)e;
	struct keeper *k = ctx;
	char number[8];
	snprintf(number, sizeof(number), "%zu", resource);
	leased_worker_name("test", str_of(number), name);
	*ret = k->leases;
	return 0;
}

static int begin(void *ctx, size_t resource, uint64_t fence, struct err *e)
{
	struct keeper *k = ctx;
	atomic_store(&k->fence[resource], fence);
	atomic_fetch_add(&k->begun[resource], 1);
	return atomic_load(&k->failing[resource]) ? err_set(e, ERR_UNAVAILABLE, "it fails") : 0;
}

static int visit(void *ctx, size_t resource, uint64_t fence, struct err *e)
{
	struct keeper *k = ctx;
	if (fence != atomic_load(&k->fence[resource]) || atomic_load(&k->failing[resource]) ||
	    atomic_load(&k->mute[resource]))
		return err_set(e, ERR_UNAVAILABLE, "it fails");
	atomic_fetch_add(&k->visited[resource], 1);
	return 0;
}

static void status(void *ctx, const bool *held, uint64_t ms)
{
	(void)ctx;
	(void)held;
	(void)ms;
}

static struct str address(void *ctx, size_t resource)
{
	(void)ctx;
	(void)resource;
	return STR("somewhere");
}

static const struct leased_worker_ops ops = {
    .lease = lease_of,
    .begin = begin,
    .visit = visit,
    .status = status,
    .address = address,
};

static void keeper_start(struct keeper *k, size_t held_max)
{
	const struct leased_worker_config config = {
	    .ops = &ops,
	    .ctx = k,
	    .task = "test",
	    .what = "place",
	    .resources = PLACES,
	    .held_max = held_max,
	    .lease_ms = LIFE_MS,
	};
	assert_int_equal(leased_worker_start(&config, &k->leased_worker, NULL), 0);
}

static unsigned places_of(const struct keeper *k)
{
	unsigned count = 0;
	for (int i = 0; i < PLACES; i++)
		count += atomic_load(&k->visited[i]) > 0 ? 1 : 0;
	return count;
}

static struct leases *leases_open(void)
{
	struct leases *l = NULL;
	assert_int_equal(leases_local_open(test_dir.path, &l, NULL), 0);
	return l;
}

TEST(each_looks_after_as_many_places_as_it_may_and_the_rest_is_for_others, test_dir_make, test_dir_remove)
{
	struct keeper first = {.leases = leases_open()}, second = {.leases = leases_open()};
	keeper_start(&first, 2);
	UNTIL(places_of(&first) == 2);
	keeper_start(&second, 2);
	UNTIL(places_of(&second) == 1);
	assert_int_equal(places_of(&first), 2);
	leased_worker_stop(first.leased_worker);
	UNTIL(places_of(&second) == 2); /* one of those that are free now */
	leased_worker_stop(second.leased_worker);
	leases_free(first.leases);
	leases_free(second.leases);
}

TEST(a_place_that_fails_is_given_up_and_tried_again_under_a_larger_number, test_dir_make, test_dir_remove)
{
	struct keeper k = {.leases = leases_open()};
	keeper_start(&k, PLACES);
	UNTIL(places_of(&k) == PLACES);
	uint64_t before = atomic_load(&k.fence[1]);
	unsigned others = atomic_load(&k.begun[0]);
	atomic_store(&k.failing[1], true);
	UNTIL(atomic_load(&k.begun[1]) >= 2);
	unsigned visited = atomic_load(&k.visited[1]);
	atomic_store(&k.failing[1], false);
	UNTIL(atomic_load(&k.visited[1]) > visited);
	assert_true(atomic_load(&k.fence[1]) > before);
	assert_int_equal(atomic_load(&k.begun[0]), others);
	leased_worker_stop(k.leased_worker);
	leases_free(k.leases);
}

static size_t lines_with(const char *path, const char *text)
{
	char line[512];
	size_t count = 0;
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, text) ? 1 : 0;
	fclose(file);
	return count;
}

/* Its lease can be had each time: that alone is no news. */
TEST(a_place_that_goes_on_failing_is_reported_once, test_dir_make, test_dir_remove)
{
	char path[sizeof(test_dir.path) + 8];
	snprintf(path, sizeof(path), "%s/log", test_dir.path);
	const struct log_settings settings = {.level = LOG_INFO, .file = path};
	struct keeper k = {.leases = leases_open()};
	assert_int_equal(log_start(&settings, NULL), 0);
	keeper_start(&k, 1);
	UNTIL(places_of(&k) == 1);
	for (int i = 0; i < PLACES; i++)
		atomic_store(&k.mute[i], true);
	UNTIL(atomic_load(&k.begun[0]) + atomic_load(&k.begun[1]) + atomic_load(&k.begun[2]) >= 5);
	leased_worker_stop(k.leased_worker);
	leases_free(k.leases);
	log_stop();
	assert_in_range(lines_with(path, "error=\"it fails\""), 1, PLACES); /* once for each */
	assert_in_range(lines_with(path, "lease acquired"), 1, PLACES);
}

/* A lease service whose word can be made doubtful. */
struct doubtful {
	struct leases base;
	struct leases *inner;
	_Atomic bool doubt;
};
static struct doubtful doubtful;

static int doubtful_take(struct leases *l, struct str name, uint64_t life_ms, struct lease **ret)
{
	(void)l;
	return doubtful.inner->ops->take(doubtful.inner, name, life_ms, ret);
}

static bool doubtful_is_held(const struct lease *lease)
{
	return !atomic_load(&doubtful.doubt) && doubtful.inner->ops->is_held(lease);
}

static uint64_t doubtful_fence(const struct lease *lease)
{
	return doubtful.inner->ops->fence(lease);
}

static void doubtful_release(struct leases *l, struct lease *lease)
{
	(void)l;
	doubtful.inner->ops->release(doubtful.inner, lease);
}

TEST(no_place_is_visited_under_a_lease_in_doubt, test_dir_make, test_dir_remove)
{
	static const struct leases_ops doubtful_ops = {
	    .take = doubtful_take,
	    .is_held = doubtful_is_held,
	    .fence = doubtful_fence,
	    .release = doubtful_release,
	};
	doubtful.base.ops = &doubtful_ops;
	doubtful.inner = leases_open();
	struct keeper k = {.leases = &doubtful.base};
	keeper_start(&k, 1);
	UNTIL(places_of(&k) == 1);
	int resource = 0;
	while (atomic_load(&k.visited[resource]) == 0)
		resource++;
	atomic_store(&doubtful.doubt, true);
	UNTIL(atomic_load(&k.begun[resource]) >= 2); /* given up and taken anew */
	unsigned visited = atomic_load(&k.visited[resource]);
	UNTIL(atomic_load(&k.begun[resource]) >= 3);
	assert_int_equal(atomic_load(&k.visited[resource]), visited);
	atomic_store(&doubtful.doubt, false);
	UNTIL(atomic_load(&k.visited[resource]) > visited);
	leased_worker_stop(k.leased_worker);
	leases_free(doubtful.inner);
}

TEST(stopping_leaves_every_lease_free, test_dir_make, test_dir_remove)
{
	struct keeper k = {.leases = leases_open()};
	struct lease *lease = NULL;
	keeper_start(&k, PLACES);
	UNTIL(places_of(&k) == PLACES);
	assert_int_equal(k.leases->ops->take(k.leases, STR("test:1"), LIFE_MS, &lease), ERR_BUSY);
	leased_worker_stop(k.leased_worker);
	assert_int_equal(k.leases->ops->take(k.leases, STR("test:1"), LIFE_MS, &lease), 0);
	k.leases->ops->release(k.leases, lease);
	leases_free(k.leases);
}

TEST(names_of_leases_are_made_of_what_they_may_be_made_of)
{
	char name[LEASE_NAME_BYTES], other[LEASE_NAME_BYTES];
	leased_worker_name("keysync", STR("127.0.0.1:6379/2"), name);
	assert_string_equal(name, "keysync:127.0.0.1:6379-2");
	leased_worker_name(
	    "keysync", STR("a-very-long-name-of-a-host.with.many.parts.in.some.domain.example:6379/1"), name);
	leased_worker_name("keysync",
	                   STR("a-very-long-name-of-a-host.with.many.parts.in.some.domain.example:6379/2"),
	                   other);
	assert_true(strlen(name) < LEASE_NAME_BYTES);
	assert_string_not_equal(name, other);
}

TEST_MAIN()
