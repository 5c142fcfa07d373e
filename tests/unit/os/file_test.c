#include "lib/os_fault.h"
#include "lib/test.h"
#include "os/file.h"

#include <dirent.h>
#include <sys/wait.h>

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void assert_holds(const char *path, const char *expected)
{
	CLEANUP(buf_release) struct buf b = {0};
	struct err e;
	assert_int_equal(file_read(path, 1 << 20, &b, &e), 0);
	assert_true(str_eq(buf_view(&b), str_of(expected)));
}

static int entries(const char *path)
{
	int count = 0;
	DIR *d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		count++;
	closedir(d);
	return count - 2;
}

TEST(read_appends_the_whole_file)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	CLEANUP(buf_release) struct buf b = {0};
	buf_str(&b, STR("before:"));
	put(temp_path(&test_dir, "f", path), "content");
	assert_int_equal(file_read(path, 7, &b, &e), 0);
	assert_true(str_eq(buf_view(&b), STR("before:content")));
}

TEST(read_of_a_large_file_survives_short_reads_and_signals)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	CLEANUP(buf_release) struct buf b = {0}, expected = {0};
	for (int i = 0; i < 40000; i++)
		buf_printf(&expected, "%d,", i);
	assert_int_equal(file_write_atomic(temp_path(&test_dir, "f", path), buf_view(&expected), 0600, &e),
	                 0);
	os_fault_short(OS_READ, 1, 1000, OS_FOR_GOOD);
	os_fault_fail(OS_READ, 3, EINTR, OS_ONCE);
	os_fault_fail(OS_OPEN, 1, EINTR, OS_ONCE);
	assert_int_equal(file_read(path, 1 << 20, &b, &e), 0);
	assert_true(os_fault_calls(OS_READ) > 200);
	assert_true(str_eq(buf_view(&b), buf_view(&expected)));
}

TEST(read_beyond_the_bound_is_a_limit_and_leaves_the_buffer)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	CLEANUP(buf_release) struct buf b = {0};
	buf_str(&b, STR("before"));
	put(temp_path(&test_dir, "f", path), "content");
	assert_int_equal(file_read(path, 6, &b, &e), ERR_LIMIT);
	assert_true(str_eq(buf_view(&b), STR("before")));
	assert_non_null(strstr(e.text, path));
	assert_non_null(strstr(e.text, "6 bytes"));
	put(path, "");
	assert_int_equal(file_read(path, 0, &b, &e), 0);
}

TEST(read_errors_name_the_path_and_the_fix)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	CLEANUP(buf_release) struct buf b = {0};
	assert_int_equal(file_read(temp_path(&test_dir, "none", path), 10, &b, &e), ERR_NOT_FOUND);
	assert_non_null(strstr(e.text, path));
	assert_int_equal(file_read(test_dir.path, 10, &b, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "name a file, not a folder"));
	put(path, "x");
	os_fault_fail(OS_OPEN, 1, EACCES, OS_ONCE);
	assert_int_equal(file_read(path, 10, &b, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "give this user access"));
	os_fault_fail(OS_READ, 1, EIO, OS_ONCE);
	assert_int_equal(file_read(path, 10, &b, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, path));
	assert_int_equal(file_read(path, 10, &b, NULL), 0); /* and nobody must want the sentence */
}

TEST(write_creates_and_replaces_with_the_mode_asked_for)
{
	char path[TEMP_PATH_BYTES];
	struct stat st;
	struct err e;
	mode_t mask = umask(0);
	assert_int_equal(file_write_atomic(temp_path(&test_dir, "f", path), STR("one"), 0600, &e), 0);
	assert_holds(path, "one");
	assert_int_equal(file_write_atomic(path, STR(""), 0640, &e), 0);
	umask(mask);
	assert_holds(path, "");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_int_equal(entries(test_dir.path), 1);
}

TEST(write_survives_short_writes_and_signals)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	os_fault_short(OS_WRITE, 1, 1, OS_FOR_GOOD);
	os_fault_fail(OS_WRITE, 3, EINTR, OS_ONCE);
	assert_int_equal(file_write_atomic(temp_path(&test_dir, "f", path), STR("abcdef"), 0600, &e), 0);
	assert_int_equal(os_fault_calls(OS_WRITE), 7);
	assert_holds(path, "abcdef");
}

/* The temporary is synced before it is renamed, and the folder after. */
TEST(write_syncs_the_file_and_then_its_folder)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	os_fault_clear(OS_FSYNC);
	assert_int_equal(file_write_atomic(temp_path(&test_dir, "f", path), STR("new"), 0600, &e), 0);
	assert_int_equal(os_fault_calls(OS_FSYNC), 2);

	put(path, "old");
	os_fault_fail(OS_FSYNC, 1, EIO, OS_ONCE);
	assert_int_equal(file_write_atomic(path, STR("new"), 0600, &e), ERR_UNAVAILABLE);
	assert_holds(path, "old");
	os_fault_fail(OS_FSYNC, 2, EIO, OS_ONCE);
	assert_int_equal(file_write_atomic(path, STR("new"), 0600, &e), ERR_UNCERTAIN);
	assert_holds(path, "new");
}

TEST(whichever_call_fails_the_file_is_whole_and_nothing_is_left_over)
{
	static const enum os_call calls[] = {OS_OPEN, OS_WRITE, OS_FSYNC, OS_RENAME, OS_CLOSE};
	static const int spans[] = {OS_ONCE, OS_FOR_GOOD};
	char path[TEMP_PATH_BYTES];
	temp_path(&test_dir, "f", path);
	for (size_t c = 0; c < ARRAY_LEN(calls) * 2; c++) {
		enum os_call call = calls[c / 2];
		bool reached = true;
		for (uint64_t n = 1; reached; n++) {
			struct err e = {""};
			put(path, "old");
			os_fault_short(OS_WRITE, 1, 2, OS_FOR_GOOD);
			os_fault_fail(call, n, ENOSPC, spans[c % 2]);
			int r = file_write_atomic(path, STR("newer"), 0600, &e);
			reached = os_fault_calls(call) >= n;
			os_fault_reset();
			if (r == 0 || r == ERR_UNCERTAIN) {
				assert_holds(path, "newer");
			} else {
				assert_int_equal(r, ERR_UNAVAILABLE);
				assert_holds(path, "old");
			}
			if (r < 0)
				assert_non_null(strstr(e.text, path));
			assert_int_equal(entries(test_dir.path), 1);
		}
	}
}

TEST(write_into_a_missing_folder_says_so)
{
	char path[TEMP_PATH_BYTES], name[5000];
	struct err e;
	assert_int_equal(file_write_atomic(temp_path(&test_dir, "no/f", path), STR("x"), 0600, &e),
	                 ERR_NOT_FOUND);
	assert_non_null(strstr(e.text, path));
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(file_write_atomic(name, STR("x"), 0600, &e), ERR_INVALID);
}

TEST(write_takes_a_path_without_a_folder)
{
	char before[4096];
	struct err e;
	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(test_dir.path), 0);
	assert_int_equal(file_write_atomic("plain", STR("x"), 0600, &e), 0);
	assert_holds("plain", "x");
	assert_int_equal(chdir(before), 0);
}

TEST(dir_create_makes_parents_and_takes_an_existing_one)
{
	char path[TEMP_PATH_BYTES];
	struct stat st;
	struct err e;
	os_fault_clear(OS_FSYNC);
	assert_int_equal(dir_create(temp_path(&test_dir, "a/b//c/", path), 0700, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(os_fault_calls(OS_FSYNC), 3); /* each new name is made durable in its folder */
	assert_int_equal(dir_create(path, 0700, &e), 0);
	assert_int_equal(os_fault_calls(OS_FSYNC), 3);
	assert_int_equal(dir_create("/", 0700, &e), 0);
	assert_int_equal(dir_create(".", 0700, &e), 0);
}

TEST(dir_create_over_a_file_is_an_error)
{
	char path[TEMP_PATH_BYTES], below[TEMP_PATH_BYTES];
	struct err e;
	put(temp_path(&test_dir, "f", path), "x");
	assert_int_equal(dir_create(path, 0700, &e), ERR_INVALID);
	assert_non_null(strstr(e.text, "not a folder"));
	assert_int_equal(dir_create(temp_path(&test_dir, "f/g", below), 0700, &e), ERR_INVALID);
	assert_int_equal(dir_create("", 0700, &e), ERR_INVALID);
}

TEST(dir_sync_tells_what_failed)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	assert_int_equal(dir_sync(test_dir.path, &e), 0);
	assert_int_equal(dir_sync(temp_path(&test_dir, "none", path), &e), ERR_NOT_FOUND);
	os_fault_fail(OS_FSYNC, 1, EIO, OS_ONCE);
	assert_int_equal(dir_sync(test_dir.path, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, test_dir.path));
	os_fault_fail(OS_FSYNC, 1, EINVAL, OS_ONCE);
	assert_int_equal(dir_sync(test_dir.path, &e), 0);
}

static int lock_in_another_process(const char *path)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct err e;
		int fd;
		_exit(-file_lock(path, &fd, &e));
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

TEST(one_process_at_a_time_holds_a_lock)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	int fd = -1, second = -1;
	assert_int_equal(file_lock(temp_path(&test_dir, "lock", path), &fd, &e), 0);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(lock_in_another_process(path), ERR_BUSY);
	assert_int_equal(file_lock(path, &second, &e), ERR_BUSY);
	assert_int_equal(second, -1);
	assert_non_null(strstr(e.text, path));
	close(fd);
	assert_int_equal(lock_in_another_process(path), 0);
}

TEST(a_lock_that_cannot_be_created_says_why)
{
	char path[TEMP_PATH_BYTES];
	struct err e;
	int fd;
	assert_int_equal(file_lock(temp_path(&test_dir, "no/lock", path), &fd, &e), ERR_NOT_FOUND);
	os_fault_fail(OS_OPEN, 1, EMFILE, OS_ONCE);
	assert_int_equal(file_lock(temp_path(&test_dir, "lock", path), &fd, &e), ERR_UNAVAILABLE);
	assert_non_null(strstr(e.text, "ulimit -n"));
}

TEST_MAIN(.setup = test_dir_make, .teardown = test_dir_remove)
