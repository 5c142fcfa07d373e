/* GET /api/v1/reconcile: compares what was served, logged and counted. */
#include "api/handlers.h"
#include "base/json_out.h"
#include "base/utf8.h"
#include "handler/problem.h"
#include "handler/query_job.h"
#include "handler/reply.h"

struct reconcile_job {
	struct query_job base;
	bool deep;
	struct reconciliation sink;
	struct capture_counts log;
};

static void reconcile_add(struct capture_counts *to, const struct capture_counts *more)
{
	to->served += more->served;
	to->counts.clicks += more->counts.clicks;
	to->counts.orphans += more->counts.orphans;
	to->counts.impressions += more->counts.impressions;
	to->counts.rejected += more->counts.rejected;
	to->counts.dropped += more->counts.dropped;
}

/* The sink is read before the workers, so what was consumed is never more than what was logged. */
static void reconcile_run(struct query_job *base)
{
	struct reconcile_job *j = container_of(base, struct reconcile_job, base);
	struct api *api = base->worker->api;
	base->result = query_job_sink_result(
	    base,
	    api->sink->ops->reconciliation(api->sink, event_log_node(api->event_log), j->deep, &j->sink));
	j->log = api->previous_counts;
	for (unsigned i = 0; i < api->worker_count; i++) {
		struct capture_counts mine = capture_counts_read(&api->workers[i]->capture);
		reconcile_add(&j->log, &mine);
	}
}

static uint64_t apart(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static uint64_t above(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* The sum of all deviations. Events that wait in the log are not a deviation. */
static uint64_t difference(const struct reconcile_job *j)
{
	const struct sink_tally *read = &j->sink.tally;
	const struct event_counts *logged = &j->log.counts;
	return apart(j->log.served, logged->clicks + logged->dropped) + above(read->clicks, logged->clicks) +
	       apart(read->clicks, j->sink.clicks_in_rollups + read->unusable_clicks) +
	       above(read->impressions, logged->impressions) +
	       apart(read->impressions,
	             j->sink.impressions_counted + j->sink.duplicates + read->unusable_impressions);
}

static void reconcile_done(struct query_job *base)
{
	struct reconcile_job *j = container_of(base, struct reconcile_job, base);
	struct buf CLEANUP(buf_release) body = {0};
	if (query_job_reply_failed(base))
		return;
	const struct sink_tally *read = &j->sink.tally;
	const struct event_counts *logged = &j->log.counts;
	const struct {
		const char *name;
		uint64_t value;
	} lines[] = {
	    {"redirects_served", j->log.served},
	    {"clicks_logged", logged->clicks},
	    {"clicks_consumed", read->clicks},
	    {"clicks_in_rollups", j->sink.clicks_in_rollups},
	    {"clicks_pending", above(logged->clicks, read->clicks)},
	    {"impressions_accepted", logged->impressions},
	    {"impressions_consumed", read->impressions},
	    {"impressions_counted", j->sink.impressions_counted},
	    {"impressions_pending", above(logged->impressions, read->impressions)},
	    {"orphans_logged", logged->orphans},
	    {"orphans_in_rollups", j->sink.orphans_in_rollups},
	    {"duplicates", j->sink.duplicates},
	    {"rejected", logged->rejected},
	    {"dead_letters", read->unusable_clicks + read->unusable_impressions},
	    {"dropped", logged->dropped},
	    {"damaged_bytes", event_log_damaged_bytes(base->worker->api->event_log)},
	    {"difference", difference(j)},
	    {"visit_rows", j->sink.visit_rows},
	    {"impression_rows", j->sink.impression_rows},
	};
	size_t count = ARRAY_LEN(lines) - (j->deep ? 0 : 2); /* only a deep run counts rows */
	buf_char(&body, '{');
	for (size_t i = 0; i < count; i++)
		json_out_name_u64(&body, lines[i].name, lines[i].value);
	buf_char(&body, '}');
	reply_json(base->conn, 200, &body, NULL, 0);
}

void reconcile_get(struct api_call *call)
{
	struct str deep = http_query_param(call->req->query, STR("deep"));
	struct echo shown;
	bool is_deep = deep.ptr && str_eq(deep, STR("true"));
	if (deep.ptr && !is_deep && !str_eq(deep, STR("false"))) {
		problem_reply(call->c, 400, "invalid-parameter",
		              "The parameter 'deep' is '%s'; it must be true or false.", echo(&shown, deep));
		return;
	}
	struct reconcile_job *j = query_job_new(call->w, call->c, sizeof(*j), reconcile_run, reconcile_done);
	if (!j)
		return;
	j->deep = is_deep;
	query_job_submit(&j->base);
}
