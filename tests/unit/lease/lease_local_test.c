/* What is the files' own about leases; what all backends promise is in lib/lease_suite.c. */
#include "lease/backends.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "os/file.h"

static struct leases *open_here(void)
{
	struct leases *l = NULL;
	assert_int_equal(leases_local_open(test_dir.path, &l, NULL), 0);
	return l;
}

static uint64_t take_and_release(struct leases *l)
{
	struct lease *lease = NULL;
	assert_int_equal(l->ops->take(l, STR("a"), 1000, &lease), 0);
	uint64_t fence = l->ops->fence(lease);
	l->ops->release(l, lease);
	return fence;
}

static void write_file(const char *text)
{
	char path[TEMP_PATH_BYTES];
	assert_int_equal(file_write_atomic(temp_path(&test_dir, "a.lease", path), str_of(text), 0600, NULL),
	                 0);
}

TEST(the_number_is_kept_in_the_leases_file)
{
	struct leases *l = open_here();
	assert_int_equal(take_and_release(l), 1);
	assert_int_equal(take_and_release(l), 2);
	write_file("00000000000000000041\n");
	assert_int_equal(take_and_release(l), 42);
	leases_free(l);
}

TEST(a_damaged_number_is_not_guessed)
{
	struct leases *l = open_here();
	struct lease *lease = NULL;
	static const char *const damaged[] = {"41", "0000000000000000004x\n", "0000000000000000004"};
	for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
		write_file(damaged[i]);
		assert_int_equal(l->ops->take(l, STR("a"), 1000, &lease), ERR_CORRUPT);
	}
	write_file("00000000000000000006\n");
	assert_int_equal(take_and_release(l), 7); /* and nothing was left locked */
	leases_free(l);
}

/* Whatever fails, nobody gets a number twice, and the next try works. */
TEST(a_failing_disk_gives_no_lease_and_leaves_none_behind)
{
	static const enum os_call calls[] = {OS_OPEN, OS_PREAD, OS_PWRITEV, OS_FSYNC};
	struct leases *l = open_here();
	struct lease *lease = NULL;
	uint64_t last = 0;
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		os_fault_fail(calls[i], 1, EIO, OS_ONCE);
		assert_true(l->ops->take(l, STR("a"), 1000, &lease) < 0);
		os_fault_reset();
		uint64_t fence = take_and_release(l);
		assert_true(fence > last);
		last = fence;
	}
	char path[TEMP_PATH_BYTES];
	assert_int_equal(unlink(temp_path(&test_dir, "a.lease", path)), 0);
	os_fault_short(OS_PWRITEV, 1, 5, OS_ONCE); /* of a new file's first number */
	assert_true(l->ops->take(l, STR("a"), 1000, &lease) < 0);
	os_fault_reset();
	assert_int_equal(take_and_release(l), 1);
	leases_free(l);
}

TEST(the_folder_is_made_when_it_is_missing)
{
	char path[TEMP_PATH_BYTES];
	struct leases *l = NULL;
	assert_int_equal(leases_local_open(temp_path(&test_dir, "deep/er", path), &l, NULL), 0);
	take_and_release(l);
	leases_free(l);
}

TEST(a_folder_that_has_gone_is_reported_in_words)
{
	char path[TEMP_PATH_BYTES];
	struct leases *l = NULL;
	struct lease *lease = NULL;
	struct err e = {""};
	assert_int_equal(leases_local_open(temp_path(&test_dir, "gone", path), &l, NULL), 0);
	assert_int_equal(rmdir(path), 0);
	assert_true(l->ops->take(l, STR("a"), 1000, &lease) < 0);
	assert_int_equal(l->ops->ping(l, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, path));
	leases_free(l);
}

TEST_MAIN(.setup = test_dir_make, .teardown = test_dir_remove)
