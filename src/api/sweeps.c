/*
 * POST /api/v1/sweep: removes links that are over, for at most a second, and says how many there still are.
 * Whoever wants them all gone asks again until there are none: `curt sweep` does, and shows how far it is.
 */
#include "api/ask.h"
#include "api/auth.h"
#include "api/handlers.h"
#include "api/problem.h"
#include "api/reply.h"
#include "link/sweep.h"
#include "os/clock.h"

#include <time.h>

enum { SWEEP_MS = 1000 };

struct sweep_job {
	struct ask_job ask;
	uint64_t removed;
	uint64_t remaining;
};

static void sweep_run(struct ask_job *ask)
{
	struct sweep_job *j = container_of(ask, struct sweep_job, ask);
	struct api *api = ask->worker->api;
	struct sweep sweep = {0};
	struct sweep_outcome step = {.more = true};
	int64_t until_ms = clock_mono_ms() + SWEEP_MS;
	while (ask->result == 0 && step.more && clock_mono_ms() < until_ms &&
	       !atomic_load_explicit(&api->stopping, memory_order_relaxed)) {
		ask->result = sweep_step(&sweep, api->links, ask->now_ms, api_pool_metrics(), &step);
		if (ask->result < 0)
			return;
		j->removed += step.removed;
		uint64_t rest_ms = sweep_rest_ms(&step);
		nanosleep(&(struct timespec){.tv_nsec = (long)MIN(rest_ms, 999) * 1000000L}, NULL);
	}
	struct store_over left = {.now_ms = ask->now_ms, .count_all = true};
	ask->result = links_over(api->links, &left);
	j->remaining = left.total;
}

static void sweep_done(struct ask_job *ask)
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

void sweep_post(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                const struct route_match *match)
{
	(void)match;
	struct caller caller;
	if (!auth_require_admin(w, c, req, &caller))
		return;
	struct sweep_job *j = ask_job_new(w, c, sizeof(*j), sweep_run, sweep_done);
	if (j)
		ask_job_submit(&j->ask);
}
