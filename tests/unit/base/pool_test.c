#include "base/pool.h"
#include "lib/test.h"

TEST(objects_come_zeroed_the_first_time_and_aligned)
{
	struct pool p;
	pool_init(&p, 100, 4);
	unsigned char *object = pool_get(&p);
	assert_int_equal((uintptr_t)object % 16, 0);
	for (size_t i = 0; i < 100; i++)
		assert_int_equal(object[i], 0);
	pool_put(&p, object);
	pool_release(&p, NULL);
}

TEST(a_returned_object_is_handed_out_again_as_it_was_left)
{
	struct pool p;
	pool_init(&p, 32, 4);
	unsigned char *object = pool_get(&p);
	memset(object, 0xab, 32);
	pool_put(&p, object);
	unsigned char *again = pool_get(&p);
	assert_ptr_equal(again, object);
	for (size_t i = 0; i < 32; i++)
		assert_int_equal(again[i], 0xab);
	pool_put(&p, again);
	pool_release(&p, NULL);
}

TEST(beyond_its_bound_the_pool_says_no_until_one_is_back)
{
	struct pool p;
	pool_init(&p, 8, 2);
	void *a = pool_get(&p);
	void *b = pool_get(&p);
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(p.live, 2);
	assert_null(pool_get(&p));
	pool_put(&p, a);
	assert_int_equal(p.live, 1);
	void *c = pool_get(&p);
	assert_ptr_equal(c, a);
	assert_null(pool_get(&p));
	pool_put(&p, b);
	pool_put(&p, c);
	pool_release(&p, NULL);
}

TEST(returning_null_is_fine)
{
	struct pool p;
	pool_init(&p, 8, 2);
	pool_put(&p, NULL);
	assert_int_equal(p.live, 0);
	pool_release(&p, NULL);
}

static int released;

static void count_release(void *object)
{
	released += *(int *)object;
}

TEST(release_hands_every_kept_object_to_the_callback)
{
	struct pool p;
	pool_init(&p, sizeof(int), 8);
	int *objects[3];
	for (int i = 0; i < 3; i++) {
		objects[i] = pool_get(&p);
		*objects[i] = 1 << i;
	}
	for (int i = 0; i < 3; i++)
		pool_put(&p, objects[i]);
	released = 0;
	pool_release(&p, count_release);
	assert_int_equal(released, 7);
	assert_null(p.free_list);
}

TEST_MAIN()
