#include "cmd/housekeeper.h"

#include "link/sweep.h"
#include "obs/log.h"
#include "os/clock.h"
#include "os/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { USES_EVERY_MS = 60 * 1000, USES_MAX = 256, NICE = 10 };

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
	pthread_t thread;
	pthread_mutex_t lock; /* guards `stopping` */
	pthread_cond_t wake;
	bool stopping;
};

/* True: the end was asked for. */
static bool wait_ms(struct housekeeper *h, uint64_t ms)
{
	struct timespec at = clock_mono_after(ms);
	pthread_mutex_lock(&h->lock);
	while (!h->stopping && pthread_cond_timedwait(&h->wake, &h->lock, &at) != ETIMEDOUT)
		;
	bool stopping = h->stopping;
	pthread_mutex_unlock(&h->lock);
	return stopping;
}

/* True: the end was asked for. */
static bool sweep_all(struct housekeeper *h)
{
	struct sweep sweep = {0};
	struct sweep_outcome step = {.more = true};
	uint64_t removed = 0;
	bool stopping = false;
	while (step.more && !stopping) {
		int r = sweep_step(&sweep, h->api->links, clock_real_ms(), api_pool_metrics(), &step);
		if (r < 0) {
			log_warn("cmd",
			         "links whose time is over could not be removed (%s); tried again later",
			         err_name(r));
			break;
		}
		removed += step.removed;
		stopping = wait_ms(h, sweep_rest_ms(&step));
	}
	if (removed > 0)
		log_info("cmd", "%llu links whose time was over were removed", (unsigned long long)removed);
	return stopping;
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

static void *housekeeper_thread(void *arg)
{
	struct housekeeper *h = arg;
	int64_t sweep_at_ms = clock_mono_ms() + (int64_t)h->settings.sweep_ms;
	int64_t uses_at_ms = clock_mono_ms() + USES_EVERY_MS;
	bool stopping = false;
	thread_step_back(NICE);
	while (!stopping) {
		int64_t next_ms = h->settings.sweep_ms ? MIN(sweep_at_ms, uses_at_ms) : uses_at_ms;
		stopping = wait_ms(h, (uint64_t)MAX(next_ms - clock_mono_ms(), 0));
		if (!stopping && h->settings.sweep_ms && clock_mono_ms() >= sweep_at_ms) {
			stopping = sweep_all(h);
			sweep_at_ms = clock_mono_ms() + (int64_t)h->settings.sweep_ms;
		}
		if (stopping || clock_mono_ms() >= uses_at_ms) {
			uses_flush(h);
			uses_at_ms = clock_mono_ms() + USES_EVERY_MS;
		}
	}
	return NULL;
}

int housekeeper_start(struct api *api, const struct housekeeper_settings *settings, struct housekeeper **ret,
                      struct err *e)
{
	struct housekeeper *h = calloc(1, sizeof(*h));
	if (!h)
		return err_set(e, ERR_NOMEM, "out of memory");
	h->api = api;
	h->settings = *settings;
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->wake, &attr);
	pthread_condattr_destroy(&attr);
	int r = thread_start(&h->thread, "housekeeper", housekeeper_thread, h, e);
	if (r < 0) {
		free(h);
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
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->lock);
	free(h);
}
