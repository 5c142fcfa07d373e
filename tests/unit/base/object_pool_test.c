#include "base/object_pool.h"
#include "lib/test.h"

TEST(objects_come_zeroed_the_first_time_and_aligned)
{
	struct object_pool p;
	object_pool_init(&p, 100, 4);
	unsigned char *object = object_pool_get(&p);
	assert_int_equal((uintptr_t)object % 16, 0);
	for (size_t i = 0; i < 100; i++)
		assert_int_equal(object[i], 0);
	object_pool_put(&p, object);
	object_pool_release(&p);
}

TEST(a_returned_object_is_handed_out_again_as_it_was_left)
{
	struct object_pool p;
	object_pool_init(&p, 32, 4);
	unsigned char *object = object_pool_get(&p);
	memset(object, 0xab, 32);
	object_pool_put(&p, object);
	unsigned char *again = object_pool_get(&p);
	assert_ptr_equal(again, object);
	for (size_t i = 0; i < 32; i++)
		assert_int_equal(again[i], 0xab);
	object_pool_put(&p, again);
	object_pool_release(&p);
}

TEST(beyond_its_bound_the_pool_says_no_until_one_is_back)
{
	struct object_pool p;
	object_pool_init(&p, 8, 2);
	void *a = object_pool_get(&p);
	void *b = object_pool_get(&p);
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(p.live, 2);
	assert_null(object_pool_get(&p));
	object_pool_put(&p, a);
	assert_int_equal(p.live, 1);
	void *c = object_pool_get(&p);
	assert_ptr_equal(c, a);
	assert_null(object_pool_get(&p));
	object_pool_put(&p, b);
	object_pool_put(&p, c);
	object_pool_release(&p);
}

TEST(returning_null_is_fine)
{
	struct object_pool p;
	object_pool_init(&p, 8, 2);
	object_pool_put(&p, NULL);
	assert_int_equal(p.live, 0);
	object_pool_release(&p);
}

TEST_MAIN()
