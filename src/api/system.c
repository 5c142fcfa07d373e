/* What operators and newcomers ask the server about itself. */
#include "api/auth.h"
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

static void readyz_done(struct read_job *j)
{
	struct buf CLEANUP(buf_release) body = {0};
	bool ready = j->result == 0;
	buf_printf(&body, "{\"status\":\"%s\",\"checks\":{\"store\":", ready ? "ready" : "not ready");
	json_out_str(&body, ready ? STR("ok") : str_of(j->ping.text));
	buf_str(&body, STR("}}"));
	api_reply_json(j->conn, ready ? 200 : 503, &body, NULL, 0);
}

void readyz_get(struct api_worker *w, struct http_conn *c, const struct http_request *req,
                const struct route_match *match)
{
	(void)req, (void)match;
	struct read_job *j = read_job_new(w, c, READ_PING, readyz_done);
	if (j)
		read_job_submit(j);
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
	(void)req, (void)match;
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
