#include "lib/test.h"
#include "os/failpoint.h"

#include <signal.h>
#include <sys/wait.h>

enum { SURVIVED = 7 };

/* What becomes of a process that passes `other` once and `place` three times: SIGKILL's number, or SURVIVED.
 */
static int end_of(const char *spec)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (spec)
			setenv("CURT_FAILPOINT", spec, 1);
		failpoint_init();
		failpoint("other");
		for (int i = 0; i < 3; i++)
			failpoint("place");
		_exit(SURVIVED);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(the_process_dies_at_the_place_that_is_named)
{
	assert_int_equal(end_of("place"), SIGKILL);
	assert_int_equal(end_of("place@3"), SIGKILL);
	assert_int_equal(end_of("other"), SIGKILL);
}

TEST(it_lives_when_it_does_not_come_there_as_often_or_nothing_is_named)
{
	assert_int_equal(end_of(NULL), SURVIVED);
	assert_int_equal(end_of("place@4"), SURVIVED);
	assert_int_equal(end_of("other@2"), SURVIVED);
	assert_int_equal(end_of("plac"), SURVIVED);
	assert_int_equal(end_of("@1"), SURVIVED);
}

TEST_MAIN()
