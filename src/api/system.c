/* What operators and newcomers ask the server about itself. */
#include "api/ask.h"
#include "api/handlers.h"
#include "api/html.h"
#include "api/jobs.h"
#include "api/reply.h"
#include "base/json_out.h"
#include "obs/log.h"
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

struct readyz_job {
	struct ask_job ask;
	struct err store, events, stats, sink;
	int store_result, events_result, stats_result, sink_result;
};

static void readyz_run(struct ask_job *ask)
{
	struct readyz_job *j = container_of(ask, struct readyz_job, ask);
	struct api *api = ask->worker->api;
	j->store_result = store_ping(api->store, &j->store);
	j->events_result = event_log_trouble(api->event_log, &j->events);
	j->stats_result = stats_worker_trouble(api->stats, &j->stats);
	j->sink_result = api->sink->ops->ping(api->sink, &j->sink);
}

static void readyz_done(struct ask_job *ask)
{
	struct readyz_job *j = container_of(ask, struct readyz_job, ask);
	const struct {
		const char *name;
		int result;
		const struct err *why;
	} checks[] = {
	    {"store", j->store_result, &j->store},
	    {"event_log", j->events_result, &j->events},
	    {"stats_worker", j->stats_result, &j->stats},
	    {"sink", j->sink_result, &j->sink},
	};
	/* Links are served without statistics too: then a server is not taken out, but says what it lacks. A
	 * log that lost a flush wants a restart. */
	bool ready = j->store_result == 0 && !event_log_sync_failed(ask->worker->api->event_log);
	bool whole = true;
	struct buf CLEANUP(buf_release) body = {0};
	for (size_t i = 0; i < ARRAY_LEN(checks); i++)
		whole &= checks[i].result == 0;
	buf_printf(&body, "{\"status\":\"%s\",\"checks\":{",
	           !ready  ? "not ready"
	           : whole ? "ready"
	                   : "degraded");
	for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
		buf_printf(&body, "%s\"%s\":", i > 0 ? "," : "", checks[i].name);
		json_out_str(&body, checks[i].result == 0 ? STR("ok") : str_of(checks[i].why->text));
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

void metrics_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                 const struct route_match *match)
{
	(void)req, (void)match;
	struct buf CLEANUP(buf_release) body = {0};
	metrics_render(&body);
	struct cache_stats s = cache_read_stats(links_cache(w->api->links));
	const struct {
		const char *name, *type, *help;
		uint64_t value;
	} gauges[] = {
	    {"curt_cache_entries", "gauge", "Links in the in-process cache", s.entries},
	    {"curt_cache_bytes", "gauge", "Bytes of the in-process cache in use", s.bytes},
	    {"curt_cache_bytes_max", "gauge", "Bound of the in-process cache", s.bytes_max},
	    {"curt_cache_evictions_total", "counter", "Entries that left the main queue", s.evictions},
	    {"curt_events_spool_bytes", "gauge", "Bytes of the event log that wait to be analysed",
	     event_log_spool_bytes(w->api->event_log)},
	    {"curt_log_lines_dropped_total", "counter", "Log lines lost because a buffer was full",
	     log_dropped()},
	    {"curt_cache_scanned_out_total", "counter", "Entries that left the small queue unused",
	     s.scanned_out},
	};
	for (size_t i = 0; i < ARRAY_LEN(gauges); i++)
		buf_printf(&body, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", gauges[i].name, gauges[i].help,
		           gauges[i].name, gauges[i].type, gauges[i].name,
		           (unsigned long long)gauges[i].value);
	const struct http_response r = {
	    .status = 200,
	    .content_type = STR("text/plain; version=0.0.4; charset=utf-8"),
	    .body = buf_view(&body),
	};
	http_reply(c, &r);
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
