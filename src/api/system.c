/* What operators and newcomers ask the server about itself. */
#include "api/ask.h"
#include "api/handlers.h"
#include "api/html.h"
#include "api/jobs.h"
#include "api/reply.h"
#include "base/json_out.h"
#include "lease/lease.h"
#include "limiter/limiter.h"
#include "web/assets.h"

void healthz_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                 const struct route_match *match)
{
	(void)w, (void)req, (void)match;
	static const struct http_response alive = {.status = 200,
	                                           .content_type = {"application/json", 16},
	                                           .body = {"{\"status\":\"alive\"}\n", 19}};
	http_reply(c, &alive);
}

/* What is looked at, in the order in which it is told. */
enum check {
	CHECK_STORE,
	CHECK_LOG,
	CHECK_STATS,
	CHECK_SINK,
	CHECK_CACHE,
	CHECK_KEYS,
	CHECK_LIMITS,
	CHECK_LEASES,
	CHECKS
};
static const char *const check_names[CHECKS] = {
    [CHECK_STORE] = "store",   [CHECK_LOG] = "event_log",      [CHECK_STATS] = "stats_worker",
    [CHECK_SINK] = "sink",     [CHECK_CACHE] = "shared_cache", [CHECK_KEYS] = "keys",
    [CHECK_LIMITS] = "limits", [CHECK_LEASES] = "leases",
};

struct readyz_job {
	struct ask_job ask;
	struct {
		bool asked; /* there is such a thing */
		int result;
		struct err why;
	} checks[CHECKS];
};

static int keys_check(struct key_source *source, struct err *e)
{
	struct source_stats s = source->ops->stats(source);
	if (s.shards == 0 || s.stock > 0)
		return 0;
	return err_set(e, ERR_LIMIT,
	               "no keys are left in stock (%llu of %llu shards do not answer): links with an alias "
	               "can be made, others not",
	               (unsigned long long)s.shards_sick, (unsigned long long)s.shards);
}

static struct err *why_of(struct readyz_job *j, enum check check)
{
	return &j->checks[check].why;
}

static void note(struct readyz_job *j, enum check check, int result)
{
	j->checks[check].asked = true;
	j->checks[check].result = result;
}

static void check_shared(struct readyz_job *j, struct api *api)
{
	if (api->rcache)
		note(j, CHECK_CACHE, api->rcache->ops->ping(api->rcache, why_of(j, CHECK_CACHE)));
	if (api->source)
		note(j, CHECK_KEYS, keys_check(api->source, why_of(j, CHECK_KEYS)));
	if (api->limiter)
		note(j, CHECK_LIMITS, api->limiter->ops->ping(api->limiter, why_of(j, CHECK_LIMITS)));
	if (api->leases)
		note(j, CHECK_LEASES, api->leases->ops->ping(api->leases, why_of(j, CHECK_LEASES)));
}

static void readyz_run(struct ask_job *ask)
{
	struct readyz_job *j = container_of(ask, struct readyz_job, ask);
	struct api *api = ask->worker->api;
	note(j, CHECK_STORE, store_ping(api->store, why_of(j, CHECK_STORE)));
	note(j, CHECK_LOG, event_log_trouble(api->event_log, why_of(j, CHECK_LOG)));
	note(j, CHECK_STATS, stats_worker_trouble(api->stats, why_of(j, CHECK_STATS)));
	note(j, CHECK_SINK, api->sink->ops->ping(api->sink, why_of(j, CHECK_SINK)));
	check_shared(j, api);
}

static void readyz_done(struct ask_job *ask)
{
	struct readyz_job *j = container_of(ask, struct readyz_job, ask);
	/* Links are served without statistics too, and without what servers share: then a server is not taken
	 * out, but says what it lacks. A log that lost a flush wants a restart. */
	bool ready = j->checks[CHECK_STORE].result == 0 &&
	             !event_log_sync_failed(ask->worker->api->event_log);
	bool whole = true;
	struct buf CLEANUP(buf_release) body = {0};
	for (size_t i = 0; i < CHECKS; i++)
		whole &= j->checks[i].result == 0;
	buf_printf(&body, "{\"status\":\"%s\",\"checks\":{",
	           !ready  ? "not ready"
	           : whole ? "ready"
	                   : "degraded");
	for (size_t i = 0; i < CHECKS; i++) {
		if (!j->checks[i].asked)
			continue;
		buf_printf(&body, "%s\"%s\":", i > 0 ? "," : "", check_names[i]);
		json_out_str(&body, j->checks[i].result == 0 ? STR("ok") : str_of(j->checks[i].why.text));
	}
	buf_str(&body, STR("}}"));
	api_reply_json(ask->conn, ready ? 200 : 503, &body, NULL, 0);
}

void readyz_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                const struct route_match *match)
{
	(void)req, (void)match;
	struct readyz_job *j = ask_job_new(w, c, sizeof(*j), readyz_run, readyz_done);
	if (j)
		ask_job_submit_check(&j->ask);
}

void openapi_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                 const struct route_match *match)
{
	(void)w, (void)req, (void)match;
	const struct http_response r = {
	    .status = 200, .content_type = STR("application/json"), .body = asset_openapi()};
	http_reply(c, &r);
}

void front_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
               const struct route_match *match)
{
	(void)match;
	struct capture_draft draft;
	capture_read(&w->capture, c, req, &draft);
	capture_orphan(&w->capture, &draft, STR_NULL);
	struct buf CLEANUP(buf_release) page = {0};
	html_page_begin(&page, STR("curt"));
	buf_str(&page, STR("<h1>curt is running</h1><p>Make a short link:</p><pre>curl -X POST "));
	html_text(&page, w->api->base_url);
	buf_str(&page, STR("/api/v1/links \\\n     -H \"Authorization: Bearer $KEY\" \\\n"
	                   "     -d '{\"original_url\": \"https://example.com/a/long/address\"}'</pre>"
	                   "<p class=\"quiet\"><code>$KEY</code> is the admin key that the first start "
	                   "printed, or one made "
	                   "with <code>curt key create</code>. The whole contract is at "
	                   "<a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a>.</p>"));
	html_page_end(&page);
	api_reply_page(c, &page);
}
