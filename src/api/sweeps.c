/*
 * POST /api/v1/sweep: removes links that are over, for at most a second, and says how many there still are.
 * Whoever wants them all gone asks again until there are none: `curt sweep` does, and shows how far it is.
 */
#include "api/handlers.h"
#include "handler/caller.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/reply.h"
#include "link/sweep.h"
#include "os/clock.h"
#include "os/thread.h"

#include <time.h>

enum { SWEEP_MS = 1000 };

struct sweep_job {
	struct ask_job ask;
	uint64_t removed;
	uint64_t remaining;
};

static bool wait_or_stop(void *ctx, uint64_t ms)
{
	const struct api *api = ctx;
	const struct timespec rest = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};
	nanosleep(&rest, NULL);
	return atomic_load_explicit(&api->stopping, memory_order_relaxed);
}

static void sweep_job_run(struct ask_job *ask)
{
	struct sweep_job *j = container_of(ask, struct sweep_job, ask);
	struct api *api = ask->worker->api;
	struct sweep_run run = {
	    .links = api->links,
	    .metrics = api_pool_metrics(),
	    .until_ms = clock_mono_ms() + SWEEP_MS,
	    .wait = wait_or_stop,
	    .ctx = api,
	};
	thread_only_when_idle(); /* the pool's one thread does nothing else */
	ask->result = sweep_run(&run);
	j->removed = run.removed;
	struct store_expired left = {.now_ms = ask->now_ms, .count_all = true};
	if (ask->result == 0)
		ask->result = store_expired(api->store, &left);
	j->remaining = left.total;
}

static void sweep_job_done(struct ask_job *ask)
{
	struct sweep_job *j = container_of(ask, struct sweep_job, ask);
	if (ask->result < 0) {
		problem_reply_store(ask->conn, ask->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_printf(&body, "{\"removed\":%llu,\"remaining\":%llu}", (unsigned long long)j->removed,
	           (unsigned long long)j->remaining);
	api_reply_json(ask->conn, 200, &body, NULL, 0);
}

void sweep_post(struct api_call *call)
{
	struct sweep_job *j = ask_job_new(call->w, call->c, sizeof(*j), sweep_job_run, sweep_job_done);
	if (j)
		ask_job_submit_to(&j->ask, call->w->api->sweeper);
}
