/*
 * A served click is in the event log at the end of its turn. The stats worker moves the log to the sink, and
 * the sink has the total.
 *
 * A server whose events go to a queue has no stats worker. Then events on their way to the sink are missing
 * from the total, and so a limit over several servers is exact only up to these.
 */
#include "handler/live_clicks.h"
#include "handler/problem.h"
#include "os/reclaim.h"
#include "redirect/redirect.h"

enum { CATCH_UP_MS = 10000 };

void click_count_submit(struct read_job *j, void (*done)(struct read_job *))
{
	/* Visitors of the same link share one count. */
	j->job.share = str_n((const char *)&j->resolve.link, sizeof(j->resolve.link));
	j->done = done;
	if (offload_submit(j->worker->api->click_counter, &j->job) < 0) {
		click_limit_unpin(j->resolve.limit);
		problem_reply_store(j->conn, ERR_LIMIT);
	}
}

static int totals_read(struct api *api, struct sink_total *totals, size_t n)
{
	struct err ignored;
	/* Do not wait for a sink that is known to fail, nor in a server that stops. */
	if (atomic_load(&api->stopping) || (api->stats && queue_consumer_trouble(api->stats, &ignored) < 0))
		return ERR_UNAVAILABLE;
	/* Until its limit was known, workers may have served the link from their cache, in this very turn.
	 * After all turns have ended, those clicks are logged. From then on the limit, still uncounted, lets
	 * no visitor through. If the limit is removed and set again meanwhile, its round changes, and this
	 * count is discarded. */
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

const struct offload_ops click_counter_ops = {.run = counter_run, .adopt = counter_adopt};
