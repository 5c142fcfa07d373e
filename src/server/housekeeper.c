#include "server/housekeeper.h"

#include "lease/lease.h"
#include "link/sweep.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/task.h"
#include "server/day_salt.h"

#include <stdlib.h>

enum {
	USES_EVERY_MS = 60 * 1000,
	USES_MAX = 256,
	PURGES = 5,      /* in each round, */
	PURGE_MAX = 100, /* keys each */
	PURGE_REST_MS = 200,
	NICE = 10,
	SWEEP_LEASE_MS = 30000
};

#define SETTING(...) CONF_ROW(struct housekeeper_settings, __VA_ARGS__)

const struct conf_row housekeeper_rows[] = {
    SETTING("sweep", "interval", CONF_DURATION, sweep_ms, "10m",
            "How often expired links are removed. 0ms: never. A request for an expired link removes it at "
            "once in any case.",
            .max = 24ULL * 3600 * 1000),
    SETTING("store", "feed_time", CONF_DURATION, feed_ms, "7d",
            "How long the change feed is kept. A server that was cut off from the store for longer reads "
            "everything again.",
            .min = 3600ULL * 1000, .max = 3650ULL * 24 * 3600 * 1000),
    SETTING("accounts", "key_retention", CONF_DURATION, key_retention_ms, "30d",
            "How long a revoked or expired API key stays in lists before it is removed.",
            .max = 3660ULL * 24 * 3600 * 1000),
};
const size_t housekeeper_row_count = ARRAY_LEN(housekeeper_rows);

struct housekeeper {
	struct api *api;
	struct housekeeper_settings settings;
	struct salts *salts; /* NULL: not shared */
	struct task uses, sweeper;
	struct lease *lease; /* of the sweep that runs; NULL: none */
};

/* True: the sweep must end; a lost lease ends it too. */
static bool sweep_wait(void *ctx, uint64_t ms)
{
	struct housekeeper *h = ctx;
	return task_sleep(&h->sweeper, ms) || (h->lease && !h->api->leases->ops->is_held(h->lease));
}

static void sweep(struct housekeeper *h)
{
	struct sweep_run run = {
	    .links = h->api->links,
	    .metrics = api_pool_metrics(),
	    .until_ms = INT64_MAX,
	    .wait = sweep_wait,
	    .ctx = h,
	};
	int r = sweep_run(&run);
	if (r < 0)
		log_warn("server", "sweep failed, it is retried later error=%s", err_name(r));
	if (run.removed > 0)
		log_info("server", "expired links removed count=%llu", (unsigned long long)run.removed);
}

/* The lease only saves work: two sweeps at the same time do no harm. */
static void sweep_leased(struct housekeeper *h)
{
	struct leases *leases = h->api->leases;
	int r = leases->ops->take(leases, STR("sweeper"), SWEEP_LEASE_MS, &h->lease);
	if (r == ERR_BUSY)
		return; /* another server has it */
	if (r < 0) {
		log_warn("server", "lease.url does not answer, sweep skipped error=%s", err_name(r));
		return;
	}
	sweep(h);
	leases->ops->release(leases, h->lease);
	h->lease = NULL;
}

static int64_t sweeper_run(struct task *t)
{
	struct housekeeper *h = container_of(t, struct housekeeper, sweeper);
	if (h->api->leases)
		sweep_leased(h);
	else
		sweep(h);
	return (int64_t)h->settings.sweep_ms;
}

/* A use that cannot be written is dropped; a later one replaces it. */
static void uses_flush(struct housekeeper *h)
{
	struct registry_write writes[USES_MAX];
	size_t n, at = 0;
	do {
		memset(writes, 0, sizeof(writes));
		n = accounts_take_key_uses(h->api->accounts, &at, writes, USES_MAX);
		int r = n > 0 ? registry_apply(h->api->store->registry, writes, n) : 0;
		if (r < 0) {
			log_warn("server", "cannot write the last uses of API keys error=%s", err_name(r));
			return;
		}
	} while (n == USES_MAX);
}

/* In small steps, each followed by a pause as long as the step: the store serves others too. */
static void feeds_prune(struct housekeeper *h)
{
	int64_t until_ms = clock_real_ms() - (int64_t)h->settings.feed_ms, took_ms;
	size_t gone = 0, accounts = 0;
	int r;
	do {
		int64_t start_ms = clock_mono_ms();
		r = store_feed_prune(h->api->store, until_ms, &gone);
		if (r == 0)
			r = registry_feed_prune(h->api->store->registry, until_ms, &accounts);
		took_ms = clock_mono_ms() - start_ms;
	} while (r == 0 && gone + accounts > 0 && !task_sleep(&h->uses, (uint64_t)took_ms + 1));
	if (r < 0)
		log_warn("server", "cannot prune the change feed error=%s", err_name(r));
}

/* In small steps: the store's writer serves others too. */
static void keys_purge(struct housekeeper *h)
{
	int64_t now_ms = clock_real_ms();
	for (int i = 0; i < PURGES; i++) {
		struct registry_write w = {
		    .kind = REGISTRY_KEY_PURGE,
		    .now_ms = now_ms,
		    .purge = {now_ms - (int64_t)h->settings.key_retention_ms, PURGE_MAX}};
		int r = registry_apply(h->api->store->registry, &w, 1);
		if (r < 0)
			log_warn("server", "cannot remove old API keys, retried later error=%s", err_name(r));
		if (r < 0 || task_sleep(&h->uses, PURGE_REST_MS))
			return;
	}
}

static int64_t uses_run(struct task *t)
{
	struct housekeeper *h = container_of(t, struct housekeeper, uses);
	uses_flush(h);
	feeds_prune(h);
	keys_purge(h);
	if (h->salts && !task_is_stopping(t))
		day_salt_keep(h->salts, h->api->store, clock_real_ms());
	return USES_EVERY_MS;
}

int housekeeper_start(struct api *api, const struct housekeeper_settings *settings, struct salts *salts,
                      struct housekeeper **ret, struct err *e)
{
	struct housekeeper *h = calloc(1, sizeof(*h));
	if (!h)
		return err_set(e, ERR_NOMEM, "out of memory");
	h->api = api;
	h->settings = *settings;
	h->salts = salts;
	const struct task_config uses = {
	    .name = "housekeeper", .run = uses_run, .first_ms = USES_EVERY_MS, .nice = NICE};
	const struct task_config sweeper = {.name = "sweeper",
	                                    .run = sweeper_run,
	                                    .first_ms = (int64_t)settings->sweep_ms,
	                                    .nice = TASK_ONLY_WHEN_IDLE};
	int r = task_start(&h->uses, &uses, e);
	if (r == 0 && settings->sweep_ms > 0)
		r = task_start(&h->sweeper, &sweeper, e);
	if (r < 0) {
		housekeeper_stop(h);
		return r;
	}
	*ret = h;
	return 0;
}

void housekeeper_stop(struct housekeeper *h)
{
	if (!h)
		return;
	task_ask_stop(&h->sweeper); /* so that both end at the same time */
	task_stop(&h->uses);
	task_stop(&h->sweeper);
	if (task_was_started(&h->uses))
		uses_flush(h);
	free(h);
}
