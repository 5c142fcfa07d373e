/*
 * All clicks that were served are in the event log when their turn has ended; the stats worker takes the log
 * to the sink; the sink knows the total.
 *
 * A server whose events go to a queue that others read has no stats worker. Then what is on its way to the
 * sink is not in the total: over several servers a limit holds only up to that.
 */
#include "handler/jobs.h"
#include "handler/live_clicks.h"
#include "handler/problem.h"
#include "os/reclaim.h"

enum { CATCH_UP_MS = 10000 };

void count_submit(struct read_job *j, void (*done)(struct read_job *))
{
	/* Those who wait for the same link wait together. */
	j->job.share = str_n((const char *)&j->resolve.link, sizeof(j->resolve.link));
	j->done = done;
	if (offload_submit(j->worker->api->counter, &j->job) < 0) {
		click_limit_unpin(j->resolve.limit);
		problem_reply_store(j->conn, ERR_LIMIT);
	}
}

static int totals_read(struct api *api, struct sink_total *totals, size_t n)
{
	struct err ignored;
	/* Nobody waits for a sink that is known to be away, nor in a server that stops. */
	if (atomic_load(&api->stopping) || (api->stats && queue_consumer_trouble(api->stats, &ignored) < 0))
		return ERR_UNAVAILABLE;
	/* Until the link was found to be limited, a worker may have served it without asking the gate: from
	 * its cache, in this very turn. When all turns have ended, that is on record. From then on the gate,
	 * which is not counted yet, lets nobody through; and if its limit is taken away and given again
	 * meanwhile, its round is over, and this count is not taken. */
	reclaim_wait();
	int r = api->stats ? queue_consumer_catch_up(api->stats, CATCH_UP_MS) : 0;
	if (r == 0)
		r = api->sink->ops->clicks(api->sink, totals, n);
	if (r == 0)
		live_clicks_raise(api, totals, n);
	return r;
}

static void counter_run(void *ctx, struct offload_job **jobs, size_t n)
{
	struct api *api = ctx;
	struct sink_total totals[OFFLOAD_BATCH_MAX];
	int64_t rounds[OFFLOAD_BATCH_MAX];
	for (size_t i = 0; i < n; i++) {
		const struct link_resolve *resolve = &container_of(jobs[i], struct read_job, job)->resolve;
		totals[i] = (struct sink_total){.link = resolve->link};
		rounds[i] = click_limit_round(resolve->limit);
	}
	int r = totals_read(api, totals, n);
	for (size_t i = 0; i < n; i++) {
		struct link_resolve *resolve = &container_of(jobs[i], struct read_job, job)->resolve;
		if (r == 0)
			click_limit_count(resolve->limit, rounds[i], totals[i].clicks);
		resolve->result = r;
	}
}

static void counter_adopt(void *ctx, struct offload_job *follower, const struct offload_job *leader)
{
	(void)ctx;
	container_of(follower, struct read_job, job)->resolve.result =
	    container_of(leader, const struct read_job, job)->resolve.result;
}

const struct offload_ops api_counter_ops = {.run = counter_run, .adopt = counter_adopt};
