#include "cmd/service.h"
#include "server/keys_services.h"

#include <stdio.h>

static int start(void *ctx, const struct settings *settings, struct err *e)
{
	struct keygen_service *k = ctx;
	int r = keygen_service_start(k, settings, e);
	if (r == 0)
		printf("keygen: ready for %zu keys database%s\n", k->db_count, k->db_count == 1 ? "" : "s");
	return r;
}

static void stop(void *ctx)
{
	struct keygen_service *k = ctx;
	struct keygen_sums sums;
	bool started = k->keygen != NULL;
	keygen_service_stop(k, &sums);
	if (started)
		printf("keygen: %ju keys made, %ju lost\n", (uintmax_t)sums.made, (uintmax_t)sums.lost);
}

static int run(struct args *a)
{
	struct keygen_service k = {0};
	return service_run(&(struct service){.start = start, .stop = stop, .ctx = &k}, a);
}

const struct command keygen_command = {
    .name = "keygen",
    .summary = "Make keys for new links and store them in the keys databases",
    .details = "Keeps each database of keys.db_url between keys.db_low and keys.db_high. Any number "
               "of keygens may run: each refills up to keys.gen_dbs databases, each under a lease from "
               "lease.url, or else from the first server of keys.url. SIGTERM stops it.",
    .examples = "curt keygen --config cluster.conf",
    .takes_settings = true,
    .run = run,
};
