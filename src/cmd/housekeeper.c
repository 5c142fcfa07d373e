#include "cmd/housekeeper.h"

#include "cmd/day_salt.h"
#include "lease/lease.h"
#include "link/sweep.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { USES_EVERY_MS = 60 * 1000, USES_MAX = 256, NICE = 10, SWEEP_LEASE_MS = 30000 };

const struct conf_row housekeeper_rows[] = {
    {.section = "sweep",
     .name = "interval",
     .type = CONF_DURATION,
     .offset = offsetof(struct housekeeper_settings, sweep_ms),
     .def = "10m",
     .max = 24ULL * 3600 * 1000,
     .help = "How often links whose time is over are looked for and removed; 0 never. One that is asked for "
             "is removed at once in any case."},
};
const size_t housekeeper_row_count = ARRAY_LEN(housekeeper_rows);

struct housekeeper {
	struct api *api;
	struct housekeeper_settings settings;
	struct salts *salts; /* NULL: nobody shares them */
	pthread_t uses_thread, sweep_thread;
	bool uses_started, sweep_started;
	struct lease *lease;  /* the sweeper's own; NULL: it has none */
	pthread_mutex_t lock; /* guards `stopping` */
	pthread_cond_t wake;
	bool stopping;
};

/* True: the end was asked for. */
static bool wait_ms(void *ctx, uint64_t ms)
{
	struct housekeeper *h = ctx;
	struct timespec at = clock_mono_after(ms);
	pthread_mutex_lock(&h->lock);
	while (!h->stopping && pthread_cond_timedwait(&h->wake, &h->lock, &at) != ETIMEDOUT)
		;
	bool stopping = h->stopping;
	pthread_mutex_unlock(&h->lock);
	return stopping;
}

/* The same for a sweep, which also ends with its lease. */
static bool sweep_wait(void *ctx, uint64_t ms)
{
	struct housekeeper *h = ctx;
	return wait_ms(h, ms) || (h->lease && !h->api->leases->ops->is_held(h->lease));
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

static void *sweep_thread(void *arg)
{
	struct housekeeper *h = arg;
	thread_only_when_idle();
	while (!wait_ms(h, h->settings.sweep_ms)) {
		if (h->api->leases)
			sweep_leased(h);
		else
			sweep(h);
	}
	return NULL;
}

/* A use that cannot be written now is forgotten: the next one will be. */
static void uses_flush(struct housekeeper *h)
{
	struct store_write writes[USES_MAX];
	size_t n;
	do {
		memset(writes, 0, sizeof(writes));
		n = accounts_uses(h->api->accounts, writes, USES_MAX);
		int r = n > 0 ? store_apply(h->api->store, writes, n) : 0;
		if (r < 0) {
			log_warn("cmd", "the last uses of API keys could not be written (%s)", err_name(r));
			return;
		}
	} while (n == USES_MAX);
}

static void *uses_thread(void *arg)
{
	struct housekeeper *h = arg;
	bool stopping = false;
	thread_step_back(NICE);
	while (!stopping) {
		stopping = wait_ms(h, USES_EVERY_MS);
		uses_flush(h);
		if (h->salts && !stopping)
			day_salt_keep(h->salts, h->api->store, clock_real_ms());
	}
	return NULL;
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
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->wake, &attr);
	pthread_condattr_destroy(&attr);
	int r = thread_start(&h->uses_thread, "housekeeper", uses_thread, h, e);
	h->uses_started = r == 0;
	if (r == 0 && settings->sweep_ms > 0) {
		r = thread_start(&h->sweep_thread, "sweeper", sweep_thread, h, e);
		h->sweep_started = r == 0;
	}
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
	pthread_mutex_lock(&h->lock);
	h->stopping = true;
	pthread_cond_broadcast(&h->wake);
	pthread_mutex_unlock(&h->lock);
	if (h->uses_started)
		pthread_join(h->uses_thread, NULL);
	if (h->sweep_started)
		pthread_join(h->sweep_thread, NULL);
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
