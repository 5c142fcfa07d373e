#include "event/salt.h"
#include "lib/os_fault.h"
#include "lib/test.h"
#include "obs/log.h"
#include "os/file.h"

enum { DAY = 20455 }; /* 2026-01-02 */

/* Of a process that starts, asks and ends. */
static void salt_of(int64_t day, uint8_t ret[SALT_BYTES])
{
	struct salts *s;
	assert_int_equal(salts_new(test_dir.path, &s, NULL), 0);
	salts_of_day(s, day, ret);
	salts_free(s);
}

static void read_line(struct buf *ret)
{
	char path[TEMP_PATH_BYTES];
	assert_int_equal(file_read(temp_path(&test_dir, "salt", path), 1000, ret, NULL), 0);
}

TEST(a_days_salt_survives_a_restart)
{
	uint8_t first[SALT_BYTES], again[SALT_BYTES];
	salt_of(DAY, first);
	for (int i = 0; i < 3; i++) {
		salt_of(DAY, again);
		assert_memory_equal(first, again, SALT_BYTES);
	}
}

TEST(another_day_has_another_salt)
{
	struct salts *s;
	uint8_t salts[10][SALT_BYTES], again[SALT_BYTES];
	assert_int_equal(salts_new(test_dir.path, &s, NULL), 0);
	for (int i = 0; i < 10; i++) {
		salts_of_day(s, DAY + i, salts[i]);
		salts_of_day(s, DAY + i, again);
		assert_memory_equal(salts[i], again, SALT_BYTES);
		for (int j = 0; j < i; j++)
			assert_memory_not_equal(salts[i], salts[j], SALT_BYTES);
	}
	salts_free(s);
	salt_of(DAY + 9, again);
	assert_memory_equal(salts[9], again, SALT_BYTES);
}

TEST(yesterdays_salt_is_gone_from_the_file)
{
	uint8_t salt[SALT_BYTES];
	struct buf CLEANUP(buf_release) before = {0};
	struct buf CLEANUP(buf_release) after = {0};
	struct stat st;
	char path[TEMP_PATH_BYTES];
	salt_of(DAY, salt);
	read_line(&before);
	assert_true(str_starts(buf_view(&before), STR("2026-01-02 ")));
	salt_of(DAY + 1, salt);
	read_line(&after);
	assert_int_equal(after.len, 10 + 1 + 2 * SALT_BYTES + 1);
	assert_true(str_starts(buf_view(&after), STR("2026-01-03 ")));
	assert_memory_not_equal(before.data + 11, after.data + 11, 2 * SALT_BYTES);
	assert_int_equal(stat(temp_path(&test_dir, "salt", path), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

TEST(a_damaged_file_is_replaced)
{
	static const char *const lines[] = {
	    "",
	    "2026-01-02 00112233445566778899aabbccddeef\n",
	    "2026-01-02 00112233445566778899aabbccddeexx\n",
	    "2026-01-02 00112233445566778899aabbccddeeff\nmore\n",
	    "2026-01-01 00112233445566778899aabbccddeeff\n",
	};
	static const uint8_t from_file[] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77};
	char path[TEMP_PATH_BYTES];
	temp_path(&test_dir, "salt", path);
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		uint8_t salt[SALT_BYTES], again[SALT_BYTES];
		assert_int_equal(file_write_atomic(path, str_of(lines[i]), 0600, NULL), 0);
		salt_of(DAY, salt);
		assert_memory_not_equal(salt, from_file, sizeof(from_file));
		salt_of(DAY, again);
		assert_memory_equal(salt, again, SALT_BYTES);
	}
}

TEST(a_salt_that_cannot_be_kept_serves_all_the_same)
{
	struct salts *s;
	uint8_t first[SALT_BYTES], again[SALT_BYTES];
	os_fault_fail(OS_WRITE, 1, ENOSPC, OS_FOR_GOOD);
	assert_int_equal(salts_new(test_dir.path, &s, NULL), 0);
	salts_of_day(s, DAY, first);
	salts_of_day(s, DAY, again);
	assert_memory_equal(first, again, SALT_BYTES);
	salts_free(s);
	salts_free(NULL);
}

TEST(a_salt_that_is_given_is_the_days_and_in_no_file)
{
	char path[TEMP_PATH_BYTES];
	const uint8_t today[SALT_BYTES] = {1}, tomorrow[SALT_BYTES] = {2}, other[SALT_BYTES] = {3};
	uint8_t got[SALT_BYTES], before[SALT_BYTES];
	struct salts *s;
	salt_of(DAY - 1, before); /* leaves a file */
	assert_int_equal(salts_new(test_dir.path, &s, NULL), 0);
	assert_false(salts_is_known(s, DAY));
	salts_give(s, DAY, today);
	salts_give(s, DAY + 1, tomorrow);
	assert_true(salts_is_known(s, DAY) && salts_is_known(s, DAY + 1));
	salts_of_day(s, DAY, got);
	assert_memory_equal(got, today, SALT_BYTES);
	assert_int_not_equal(access(temp_path(&test_dir, "salt", path), F_OK), 0);
	salts_give(s, DAY, other); /* too late */
	salts_of_day(s, DAY, got);
	assert_memory_equal(got, today, SALT_BYTES);
	salts_of_day(s, DAY + 1, got);
	assert_memory_equal(got, tomorrow, SALT_BYTES);
	assert_false(salts_is_known(s, DAY));
	salts_give(s, DAY + 2, other);
	salts_of_day(s, DAY + 2, got);
	assert_memory_equal(got, other, SALT_BYTES);
	salts_of_day(s, DAY + 3, got); /* nobody has given one */
	assert_memory_not_equal(got, other, SALT_BYTES);
	salts_free(s);
}

TEST_MAIN(.setup = test_dir_make, .teardown = test_dir_remove)
