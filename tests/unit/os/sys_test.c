#include "lib/os_fault.h"
#include "lib/test.h"
#include "os/sys.h"

/* The seam, and the unreliable twin that all other tests rely on. */

static int reset(void **state)
{
	os_fault_reset();
	return 0;
}

TEST(the_table_holds_the_real_calls)
{
	assert_memory_equal(&os_sys, &os_sys_real, sizeof(os_sys));
	void *const *entries = (void *const *)(const void *)&os_sys_real;
	for (size_t i = 0; i < sizeof(os_sys_real) / sizeof(void *); i++)
		assert_non_null(entries[i]);
	assert_int_equal(sizeof(os_sys_real) / sizeof(void *), OS_CALLS);
}

TEST(every_file_call_does_what_the_system_does, test_dir_make, test_dir_remove)
{
	char from[TEMP_PATH_BYTES], to[TEMP_PATH_BYTES], data[16] = "";
	int fd = os_sys.open(temp_path(&test_dir, "a", from), O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(os_sys.write(fd, "hello", 5), 5);
	struct iovec iov[2] = {{"wo", 2}, {"rld", 3}};
	assert_int_equal(os_sys.pwritev(fd, iov, 2, 5), 5);
	assert_int_equal(os_sys.ftruncate(fd, 9), 0);
	assert_int_equal(os_sys.fsync(fd), 0);
	assert_int_equal(os_sys.fdatasync(fd), 0);
	assert_int_equal(os_sys.pread(fd, data, sizeof(data), 0), 9);
	assert_memory_equal(data, "helloworl", 9);
	assert_int_equal(os_sys.read(fd, data, sizeof(data)), 4); /* behind what write() wrote */
	assert_int_equal(os_sys.close(fd), 0);
	assert_int_equal(os_sys.rename(from, temp_path(&test_dir, "b", to)), 0);
	assert_int_equal(os_sys.unlink(to), 0);
	assert_int_equal(os_sys.unlink(to), -1);
	assert_int_equal(errno, ENOENT);
}

TEST(socket_calls_do_what_the_system_does)
{
	int pair[2];
	char data[8];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(os_sys.send(pair[0], "abc", 3, 0), 3);
	assert_int_equal(os_sys.recv(pair[1], data, sizeof(data), 0), 3);
	assert_memory_equal(data, "abc", 3);
	assert_int_equal(os_sys.accept4(pair[0], NULL, NULL, 0), -1);
	close(pair[0]);
	close(pair[1]);
	struct epoll_event event;
	int fd = epoll_create1(0);
	assert_int_equal(os_sys.epoll_wait(fd, &event, 1, 0), 0);
	close(fd);
}

TEST(the_nth_call_fails_once, NULL, reset)
{
	int fds[2];
	char c;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], "1234", 4), 4);
	os_fault_fail(OS_READ, 2, EIO, OS_ONCE);
	assert_int_equal(os_sys.read(fds[0], &c, 1), 1);
	assert_int_equal(os_sys.read(fds[0], &c, 1), -1);
	assert_int_equal(errno, EIO);
	assert_int_equal(os_sys.read(fds[0], &c, 1), 1);
	assert_int_equal(c, '2');
	assert_int_equal(os_fault_calls(OS_READ), 3);
	assert_int_equal(os_fault_hits(OS_READ), 1);

	os_fault_fail(OS_READ, 1, EINTR, OS_ONCE); /* numbers start anew with each arming */
	assert_int_equal(os_sys.read(fds[0], &c, 1), -1);
	assert_int_equal(errno, EINTR);
	assert_int_equal(os_sys.read(fds[0], &c, 1), 1);
	close(fds[0]);
	close(fds[1]);
}

TEST(a_call_may_fail_for_good_until_it_is_cleared, NULL, reset)
{
	os_fault_fail(OS_UNLINK, 2, EROFS, OS_FOR_GOOD);
	assert_int_equal(os_sys.unlink("/nowhere/at/all"), -1);
	assert_int_equal(errno, ENOENT);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(os_sys.unlink("/nowhere/at/all"), -1);
		assert_int_equal(errno, EROFS);
	}
	os_fault_clear(OS_UNLINK);
	assert_int_equal(os_sys.unlink("/nowhere/at/all"), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(os_fault_hits(OS_UNLINK), 5);
}

TEST(a_failing_close_still_closes, NULL, reset)
{
	int fd = os_sys.open("/dev/null", O_RDONLY, 0);
	os_fault_fail(OS_CLOSE, 1, EIO, OS_ONCE);
	assert_int_equal(os_sys.close(fd), -1);
	assert_int_equal(errno, EIO);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

TEST(writes_are_cut_short_at_any_byte, NULL, reset)
{
	CLEANUP(temp_release) struct temp dir;
	temp_init(&dir);
	char path[TEMP_PATH_BYTES];
	int fd = open(temp_path(&dir, "f", path), O_RDWR | O_CREAT, 0600);
	struct iovec iov[4] = {{"ab", 2}, {"", 0}, {"cde", 3}, {"f", 1}};
	for (size_t bytes = 1; bytes <= 7; bytes++) {
		char data[8] = "";
		size_t expected = MIN(bytes, 6);
		assert_int_equal(ftruncate(fd, 0), 0);
		os_fault_short(OS_PWRITEV, 1, bytes, OS_ONCE);
		assert_int_equal(os_sys.pwritev(fd, iov, 4, 0), expected);
		assert_int_equal(pread(fd, data, sizeof(data), 0), expected);
		assert_memory_equal(data, "abcdef", expected);
		assert_int_equal(os_sys.pwritev(fd, iov, 4, 0), 6);
	}
	os_fault_short(OS_PREAD, 1, 2, OS_FOR_GOOD);
	os_fault_fail(OS_PREAD, 2, EIO, OS_ONCE); /* the stronger of the two */
	char data[8];
	assert_int_equal(os_sys.pread(fd, data, 6, 0), 2);
	assert_int_equal(os_sys.pread(fd, data, 6, 0), -1);
	assert_int_equal(os_sys.pread(fd, data, 6, 0), 2);
	close(fd);
}

TEST(reset_restores_the_system, NULL, reset)
{
	os_fault_fail(OS_OPEN, 1, EMFILE, OS_FOR_GOOD);
	assert_int_equal(os_sys.open("/dev/null", O_RDONLY, 0), -1);
	os_fault_reset();
	assert_memory_equal(&os_sys, &os_sys_real, sizeof(os_sys));
	assert_int_equal(os_fault_calls(OS_OPEN), 0);
	int fd = os_sys.open("/dev/null", O_RDONLY, 0);
	assert_true(fd >= 0);
	close(fd);
}

enum { THREADS = 4, CALLS = 5000 };

static void *sync_nothing(void *failures)
{
	for (int i = 0; i < CALLS; i++)
		*(int *)failures += os_sys.fdatasync(-1) < 0 && errno == ENOSPC;
	return NULL;
}

TEST(exactly_one_call_of_all_threads_is_the_nth, NULL, reset)
{
	pthread_t threads[THREADS];
	int failures[THREADS] = {0}, sum = 0;
	os_fault_fail(OS_FDATASYNC, CALLS, ENOSPC, OS_ONCE);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, sync_nothing, &failures[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		sum += failures[i];
	}
	assert_int_equal(sum, 1);
	assert_int_equal(os_fault_calls(OS_FDATASYNC), THREADS * CALLS);
}

TEST_MAIN()
