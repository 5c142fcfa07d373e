#include "lib/store_kit.h"
#include "lib/test.h"
#include "link/ids.h"
#include "store/backends.h"

TEST(ids_come_one_after_the_other_from_leased_blocks)
{
	struct store *store;
	struct ids ids;
	uint64_t id, leased;
	store = kit_store_new();
	ids_init(&ids, store->registry, 10, 1000000);
	for (uint64_t i = 1; i <= 25; i++) {
		assert_int_equal(ids_next(&ids, &id), 0);
		assert_int_equal(id, i);
	}
	/* three blocks of ten are gone: the next process gets none of them */
	assert_int_equal(registry_lease(store->registry, STR("link"), 1, &leased), 0);
	assert_int_equal(leased, 31);
	ids_release(&ids);
	store_free(store);
}

TEST(a_restart_skips_what_was_leased)
{
	struct store *store;
	uint64_t id;
	store = kit_store_new();
	for (uint64_t life = 0; life < 5; life++) {
		struct ids ids;
		ids_init(&ids, store->registry, 100, 1000000);
		assert_int_equal(ids_next(&ids, &id), 0);
		assert_int_equal(id, life * 100 + 1);
		ids_release(&ids);
	}
	store_free(store);
}

TEST(the_end_of_the_key_space_is_a_limit)
{
	struct store *store;
	struct ids ids;
	uint64_t id;
	store = kit_store_new();
	ids_init(&ids, store->registry, 4, 6);
	for (int i = 1; i < 6; i++)
		assert_int_equal(ids_next(&ids, &id), 0);
	assert_int_equal(id, 5);
	assert_int_equal(ids_next(&ids, &id), ERR_LIMIT);
	assert_int_equal(ids_next(&ids, &id), ERR_LIMIT);
	ids_release(&ids);
	store_free(store);
}

TEST(a_store_that_fails_is_passed_on_and_asked_again)
{
	struct store *inner, *store;
	struct ids ids;
	uint64_t id;
	inner = kit_store_new();
	assert_int_equal(store_fault_open("lease=unavailable@1!", inner, &store, NULL), 0);
	ids_init(&ids, store->registry, 10, 1000);
	assert_int_equal(ids_next(&ids, &id), ERR_UNAVAILABLE);
	assert_int_equal(ids_next(&ids, &id), 0);
	ids_release(&ids);
	store_free(store);
}

enum { PER_THREAD = 5000, THREADS = 4 };
static struct ids shared;
static _Atomic unsigned char seen[PER_THREAD * THREADS + 1];
static _Atomic int wrong;

static void *take_many(void *arg)
{
	(void)arg;
	for (int i = 0; i < PER_THREAD; i++) {
		uint64_t id;
		if (ids_next(&shared, &id) != 0 || id == 0 || id > PER_THREAD * THREADS || seen[id]++)
			wrong++;
	}
	return NULL;
}

TEST(threads_never_get_the_same_id)
{
	struct store *store;
	pthread_t threads[THREADS];
	store = kit_store_new();
	ids_init(&shared, store->registry, 7, UINT64_MAX);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_many, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(wrong, 0);
	ids_release(&shared);
	store_free(store);
}

TEST_MAIN()
