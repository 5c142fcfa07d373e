/* The server about itself: liveness, readiness and the front page. */
#include "api/handlers.h"
#include "api/health_checks.h"
#include "api/routes.h"
#include "base/json_out.h"
#include "handler/html.h"
#include "handler/query_job.h"
#include "handler/reply.h"
#include "limiter/limiter.h"

void healthz_get(struct api_call *call)
{
	static const struct http_response alive = {.status = 200,
	                                           .content_type = {"application/json", 16},
	                                           .body = {"{\"status\":\"alive\"}\n", 19}};
	http_reply(call->c, &alive);
}

/* In the order of the response. */
enum check_id {
	CHECK_STORE,
	CHECK_LOG,
	CHECK_STATS,
	CHECK_SINK,
	CHECK_CACHE,
	CHECK_KEYS,
	CHECK_LIMITS,
	CHECKS
};
static const char *const check_names[CHECKS] = {
    [CHECK_STORE] = "store",   [CHECK_LOG] = "event_log",      [CHECK_STATS] = "stats_worker",
    [CHECK_SINK] = "sink",     [CHECK_CACHE] = "shared_cache", [CHECK_KEYS] = "keys",
    [CHECK_LIMITS] = "limits",
};

/* A proxy waits a limited time for /readyz (deploy/haproxy.cfg), so optional backends get less of it. */
enum { TIMEOUT_MS = 1000, TIMEOUT_OPTIONAL_MS = 400 };

struct readyz_job {
	struct query_job base;
	struct {
		bool is_configured;
		struct health_result result;
	} checks[CHECKS];
};

static int ping_store(void *ctx, struct err *e)
{
	return store_ping(ctx, e);
}

static int ping_sink(void *ctx, struct err *e)
{
	struct sink *sink = ctx;
	return sink->ops->ping(sink, e);
}

static int ping_cache(void *ctx, struct err *e)
{
	struct rcache *rcache = ctx;
	return rcache->ops->ping(rcache, e);
}

static int ping_limits(void *ctx, struct err *e)
{
	struct limiter *limiter = ctx;
	return limiter->ops->ping(limiter, e);
}

/* The checks that wait for a backend; returns how many. */
static size_t backend_checks(const struct api *api, struct health_check ret[CHECKS],
                             enum check_id ret_ids[CHECKS])
{
	const struct {
		enum check_id id;
		struct health_check check;
	} all[] = {
	    {CHECK_STORE, {"check-store", ping_store, api->store, TIMEOUT_MS}},
	    {CHECK_SINK, {"check-sink", ping_sink, api->sink, TIMEOUT_MS}},
	    {CHECK_CACHE, {"check-cache", ping_cache, api->rcache, TIMEOUT_OPTIONAL_MS}},
	    {CHECK_LIMITS, {"check-limits", ping_limits, api->limiter, TIMEOUT_OPTIONAL_MS}},
	};
	size_t count = 0;
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (!all[i].check.ctx)
			continue;
		ret[count] = all[i].check;
		ret_ids[count++] = all[i].id;
	}
	return count;
}

int readyz_init(struct api *api, struct err *e)
{
	struct health_check list[CHECKS];
	enum check_id ids[CHECKS];
	size_t n = backend_checks(api, list, ids);
	return health_checks_new(list, n, &api->health_checks, e);
}

static void keys_check(struct key_source *source, struct health_result *ret)
{
	struct source_stats s = source->ops->stats(source);
	if (s.shards > 0 && s.available == 0)
		ret->code = err_set(
		    &ret->why, ERR_LIMIT,
		    "no keys are left (%llu of %llu shards do not answer): only links with an "
		    "alias can be created",
		    (unsigned long long)s.shards_unhealthy, (unsigned long long)s.shards);
}

static void readyz_run(struct query_job *base)
{
	struct readyz_job *j = container_of(base, struct readyz_job, base);
	struct api *api = base->worker->api;
	struct health_check list[CHECKS];
	struct health_result results[CHECKS];
	struct health_result *log = &j->checks[CHECK_LOG].result, *stats = &j->checks[CHECK_STATS].result;
	enum check_id ids[CHECKS];
	size_t n = backend_checks(api, list, ids);
	health_checks_run(api->health_checks, results);
	for (size_t i = 0; i < n; i++) {
		j->checks[ids[i]].is_configured = true;
		j->checks[ids[i]].result = results[i];
	}
	j->checks[CHECK_LOG].is_configured = true;
	j->checks[CHECK_STATS].is_configured = api->stats;
	j->checks[CHECK_KEYS].is_configured = api->source;
	log->code = event_log_trouble(api->event_log, &log->why);
	if (api->stats)
		stats->code = queue_consumer_trouble(api->stats, &stats->why);
	if (api->source)
		keys_check(api->source, &j->checks[CHECK_KEYS].result);
}

static void readyz_adopt(struct query_job *follower, const struct query_job *leader)
{
	struct readyz_job *to = container_of(follower, struct readyz_job, base);
	const struct readyz_job *from = container_of(leader, struct readyz_job, base);
	memcpy(to->checks, from->checks, sizeof(to->checks));
}

static void readyz_done(struct query_job *base)
{
	struct readyz_job *j = container_of(base, struct readyz_job, base);
	if (query_job_reply_failed(base))
		return;
	/* Links are served also without statistics and without optional backends: then the server stays in
	 * service and reports what is missing. An event log whose sync failed needs a restart. */
	bool ready = j->checks[CHECK_STORE].result.code == 0 &&
	             !event_log_sync_failed(base->worker->api->event_log);
	bool healthy = true;
	struct buf CLEANUP(buf_release) body = {0};
	for (size_t i = 0; i < CHECKS; i++)
		healthy &= j->checks[i].result.code == 0;
	buf_printf(&body, "{\"status\":\"%s\",\"checks\":{",
	           !ready    ? "not ready"
	           : healthy ? "ready"
	                     : "degraded");
	for (size_t i = 0; i < CHECKS; i++) {
		if (!j->checks[i].is_configured)
			continue;
		bool forwards = i == CHECK_STATS && base->worker->api->forwards;
		const struct health_result *result = &j->checks[i].result;
		json_out_name_str(&body, forwards ? "forwarder" : check_names[i],
		                  result->code == 0 ? STR("ok") : str_of(result->why.text));
	}
	buf_str(&body, STR("}}"));
	reply_json(base->conn, ready ? 200 : 503, &body, NULL, 0);
}

void readyz_get(struct api_call *call)
{
	struct readyz_job *j = query_job_new(call->w, call->c, sizeof(*j), readyz_run, readyz_done);
	if (!j)
		return;
	j->base.job.share = STR("readyz"); /* requests at the same time share one job */
	j->base.adopt = readyz_adopt;
	query_job_submit_to(&j->base, call->w->api->checker);
}

void front_get(struct api_call *call)
{
	struct capture_draft draft;
	capture_read(&call->w->capture, call->c, call->req, &draft);
	capture_orphan(&call->w->capture, &draft, STR_NULL);
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("curt"));
	buf_str(&page, STR("<h1>curt is running</h1><p>Create a short link:</p><pre>curl -X POST "));
	html_text(&page, call->w->api->base_url);
	buf_str(&page, STR("/api/v1/links \\\n     -H \"Authorization: Bearer $KEY\" \\\n"
	                   "     -d '{\"original_url\": \"https://example.com/a/long/address\"}'</pre>"
	                   "<p class=\"quiet\"><code>$KEY</code> is the admin key that the first start "
	                   "printed, or one from <code>curt key create</code>. The API is described in "
	                   "<a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a>.</p>"));
	html_page_end(&page);
	reply_html(call->c, 200, &page, html_policy, NULL);
}
