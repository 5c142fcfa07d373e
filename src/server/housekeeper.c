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
            "How often links whose time is over are looked for and removed; 0 never. One that is asked for "
            "is removed at once in any case.",
            .max = 24ULL * 3600 * 1000),
    SETTING("store", "feed_time", CONF_DURATION, feed_ms, "7d",
            "How long the change feed is kept. Servers that were cut off from the store for longer read "
            "everything again.",
            .min = 3600ULL * 1000, .max = 3650ULL * 24 * 3600 * 1000),
    SETTING("accounts", "key_retention", CONF_DURATION, key_retention_ms, "30d",
            "How long API keys stay in lists after they were revoked or have expired; then they are "
            "removed.",
            .max = 3660ULL * 24 * 3600 * 1000),
};
const size_t housekeeper_row_count = ARRAY_LEN(housekeeper_rows);

struct housekeeper {
	struct api *api;
	struct housekeeper_settings settings;
	struct salts *salts; /* NULL: nobody shares them */
	struct task uses, sweeper;
	struct lease *lease; /* the sweeper's own; NULL: it has none */
};

/* True: the sweep shall end; it also ends with its lease. */
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
		log_warn("cmd", "links whose time is over could not be removed (%s); tried again later",
		         err_name(r));
	if (run.removed > 0)
		log_info("cmd", "%llu links whose time was over were removed",
		         (unsigned long long)run.removed);
}

/* Several sweepers do no harm, they only do the same work; so a lease in doubt ends a sweep, and guards
 * nothing. */
static void sweep_leased(struct housekeeper *h)
{
	struct leases *leases = h->api->leases;
	int r = leases->ops->take(leases, STR("sweeper"), SWEEP_LEASE_MS, &h->lease);
	if (r == ERR_BUSY)
		return; /* another server has it */
	if (r < 0) {
		log_warn("cmd", "lease.url does not answer: links whose time is over are removed later");
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

/* A use that cannot be written now is forgotten: the next one will be. */
static void uses_flush(struct housekeeper *h)
{
	struct registry_write writes[USES_MAX];
	size_t n, at = 0;
	do {
		memset(writes, 0, sizeof(writes));
		n = accounts_take_key_uses(h->api->accounts, &at, writes, USES_MAX);
		int r = n > 0 ? registry_apply(h->api->store->registry, writes, n) : 0;
		if (r < 0) {
			log_warn("cmd", "the last uses of API keys could not be written (%s)", err_name(r));
			return;
		}
	} while (n == USES_MAX);
}

/* In small portions, and as long a rest after each as it took. */
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
		log_warn("cmd", "the change feed could not be pruned (%s)", err_name(r));
}

/* In small portions: the store's writer has others to serve. */
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
			log_warn("cmd", "dead API keys could not be removed (%s); tried again later",
			         err_name(r));
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
	task_ask_stop(&h->sweeper); /* both at the same time */
	task_stop(&h->uses);
	task_stop(&h->sweeper);
	if (task_was_started(&h->uses))
		uses_flush(h);
	free(h);
}
