/*
 * POST /api/v1/sweep: removes expired links for at most a second, and reports how many remain. To remove all,
 * a client repeats it until none remain; `curt sweep` does.
 */
#include "api/handlers.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/reply.h"
#include "link/sweep.h"
#include "os/clock.h"
#include "os/thread.h"

#include <time.h>

enum { SWEEP_MS = 1000 };

struct sweep_job {
	struct query_job base;
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

static void sweep_job_run(struct query_job *base)
{
	struct sweep_job *j = container_of(base, struct sweep_job, base);
	struct api *api = base->worker->api;
	struct sweep_run run = {
	    .links = api->links,
	    .metrics = api_pool_metrics(),
	    .until_ms = clock_mono_ms() + SWEEP_MS,
	    .wait = wait_or_stop,
	    .ctx = api,
	};
	thread_only_when_idle(); /* the pool's one thread does nothing else */
	base->result = sweep_run(&run);
	j->removed = run.removed;
	struct store_expired left = {.now_ms = base->now_ms, .count_all = true};
	if (base->result == 0)
		base->result = store_expired(api->store, &left);
	j->remaining = left.total;
}

static void sweep_job_done(struct query_job *base)
{
	struct sweep_job *j = container_of(base, struct sweep_job, base);
	if (base->result < 0) {
		problem_reply_store(base->conn, base->result);
		return;
	}
	struct buf CLEANUP(buf_release) body = {0};
	buf_printf(&body, "{\"removed\":%llu,\"remaining\":%llu}", (unsigned long long)j->removed,
	           (unsigned long long)j->remaining);
	reply_json(base->conn, 200, &body, NULL, 0);
}

void sweep_post(struct api_call *call)
{
	struct sweep_job *j = query_job_new(call->w, call->c, sizeof(*j), sweep_job_run, sweep_job_done);
	if (j)
		query_job_submit_to(&j->base, call->w->api->sweeper);
}
