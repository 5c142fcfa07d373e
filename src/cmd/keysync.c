#include "cmd/service.h"
#include "server/keys_services.h"

#include <stdio.h>

static int start(void *ctx, const struct settings *settings, struct err *e)
{
	struct keysync_service *k = ctx;
	int r = keysync_service_start(k, settings, e);
	if (r == 0)
		printf("keysync: ready for %zu Redis server%s\n", k->list_count,
		       k->list_count == 1 ? "" : "s");
	return r;
}

static void stop(void *ctx)
{
	struct keysync_service *k = ctx;
	struct keysync_sums sums;
	bool started = k->keysync != NULL;
	keysync_service_stop(k, &sums);
	if (started)
		printf("keysync: %ju keys moved, %ju put back, %ju lost\n", (uintmax_t)sums.moved,
		       (uintmax_t)sums.returned, (uintmax_t)sums.lost);
}

static int run(struct args *a)
{
	struct keysync_service k = {0};
	return service_run(&(struct service){.start = start, .stop = stop, .ctx = &k}, a);
}

const struct command keysync_command = {
    .name = "keysync",
    .summary = "Move keys from the keys databases to Redis",
    .details = "Keeps each Redis server of keys.url between keys.low and keys.high, with keys from "
               "keys.db_url. Any number of keysyncs may run: each refills up to keys.sync_shards servers, "
               "each under a lease from lease.url, or else from the Redis server itself. SIGTERM stops it.",
    .examples = "curt keysync --config cluster.conf",
    .takes_settings = true,
    .run = run,
};
