/* The suites of a folder as one program. Each suite is a *_test.c with a main of its own, which the Makefile
 * renames to <suite>_main; it also lists them, as SUITES. A process runs one suite, so suites share nothing.
 *
 *     run SUITE [ARGUMENT…]     all tests of a suite
 *     run SUITE::PATTERN        those whose names match, with * and ?
 */
#include "lib/test.h"

#define SUITE(name) int name##_main(int argc, char **argv);
SUITES
#undef SUITE

static const struct suite {
	const char *name;
	int (*main)(int argc, char **argv);
} suites[] = {
#define SUITE(name) {#name, name##_main},
    SUITES
#undef SUITE
};

/* tests/run wants to know of suites that start threads: only those run under the thread sanitizer. */
static atomic_bool has_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	atomic_store(&has_threads, true);
	return __real_pthread_create(thread, attr, run, arg);
}

enum { COUNT = sizeof(suites) / sizeof(suites[0]) };

int main(int argc, char **argv)
{
	const char *wanted = argc > 1 ? argv[1] : "";
	size_t len = strcspn(wanted, ":");
	for (size_t i = 0; i < COUNT; i++) {
		if (strlen(suites[i].name) != len || memcmp(suites[i].name, wanted, len) != 0)
			continue;
		if (strncmp(wanted + len, "::", 2) == 0)
			cmocka_set_test_filter(wanted + len + 2);
		int status = suites[i].main(argc - 1, argv + 1);
		if (atomic_load(&has_threads))
			puts("[ THREADS  ]");
		return status;
	}
	fprintf(stderr, "usage: %s SUITE[::PATTERN], where SUITE is one of\n", argv[0]);
	for (size_t i = 0; i < COUNT; i++)
		fprintf(stderr, "    %s\n", suites[i].name);
	return 2;
}
