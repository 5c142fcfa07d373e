/* Every backend of the role `lease` keeps the same promises: lib/lease_suite.c has them. */
#include "lease/backends.h"
#include "lib/lease_suite.h"
#include "lib/redis_server.h"
#include "lib/test.h"

#include <sodium.h>

enum { URL_BYTES = 256 };

static int redis_open(const char *address, struct leases **ret, struct err *e)
{
	char url[URL_BYTES];
	snprintf(url, sizeof(url), "redis://%s", address);
	return leases_redis_open(url, ret, e);
}

static int sentinel_open(const char *address, struct leases **ret, struct err *e)
{
	char url[URL_BYTES];
	snprintf(url, sizeof(url), "redis+sentinel://%s/main", address);
	return leases_redis_open(url, ret, e);
}

static int zookeeper_open(const char *address, struct leases **ret, struct err *e)
{
	char url[URL_BYTES];
	snprintf(url, sizeof(url), "zookeeper://%s/curt-test/leases", address);
	return leases_zookeeper_open(url, ret, e);
}

enum { LOCAL, REDIS, SENTINEL, ZOOKEEPER, BACKENDS };

static struct lease_backend backends[BACKENDS] = {
    [LOCAL] = {.name = "local", .open = leases_local_open},
    [REDIS] = {.name = "redis",
               .missing = "CURT_TEST_REDIS is not set",
               .open = redis_open,
               .has_server = true,
               .expires = true},
    [SENTINEL] = {.name = "sentinel",
                  .missing = "redis-tools is not installed",
                  .open = sentinel_open,
                  .expires = true},
    [ZOOKEEPER] = {.name = "zookeeper",
                   .missing = "CURT_TEST_ZOOKEEPER is not set",
                   .open = zookeeper_open,
                   .has_server = true,
                   .expires = true},
};

int main(int argc, char **argv)
{
	int status;
	if (sodium_init() < 0)
		return 1;
	if (lease_suite_is_puppet(argc, argv, backends, BACKENDS, &status))
		return status;

	CLEANUP(temp_release) struct temp folder;
	temp_init(&folder);
	backends[LOCAL].address = folder.path;
	backends[REDIS].address = getenv("CURT_TEST_REDIS");
	backends[ZOOKEEPER].address = getenv("CURT_TEST_ZOOKEEPER");

	struct redis_server primary = {0}, sentinel = {0};
	char sentinel_address[URL_BYTES];
	if (redis_server_exists()) {
		redis_server_start(&primary, NULL);
		redis_server_start_sentinel(&sentinel, primary.port);
		snprintf(sentinel_address, sizeof(sentinel_address), "127.0.0.1:%u", sentinel.port);
		backends[SENTINEL].address = sentinel_address;
	}
	int failed = 0;
	for (size_t i = 0; i < BACKENDS; i++)
		failed += lease_suite_run(&backends[i]);
	redis_server_stop(&sentinel);
	redis_server_stop(&primary);
	return failed;
}
