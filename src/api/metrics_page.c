/* GET /metrics, and docs/metrics.md from the same tables. */
#include "api/metrics_page.h"

#include "api/handlers.h"
#include "api/routes.h"
#include "link/quota_sync.h"
#include "obs/log.h"

struct server_stats {
	struct cache_stats cache;
	uint64_t spool_bytes, log_lines_dropped;
};

#define ROW(field, name, type, labels, help, worry)                     \
	{                                                               \
		name, type, labels, help, worry, offsetof(STATS, field) \
	}

#define STATS struct server_stats
static const struct metric server_metrics[] = {
    ROW(cache.entries, "curt_cache_entries", "gauge", "", "Links in the in-process cache", ""),
    ROW(cache.bytes, "curt_cache_bytes", "gauge", "", "Memory of the in-process cache", ""),
    ROW(cache.bytes_max, "curt_cache_max_bytes", "gauge", "", "Bound of that memory (`cache.memory`)", ""),
    ROW(cache.main_evictions, "curt_cache_evictions_total", "counter", "queue=\"main\"",
        "Entries that the in-process cache dropped: links that had been hit (`main`) and others (`small`)",
        ""),
    ROW(cache.small_evictions, "curt_cache_evictions_total", "counter", "queue=\"small\"", "", ""),
    ROW(spool_bytes, "curt_events_spool_bytes", "gauge", "", "Bytes of the event log that wait to be counted",
        "It grows for long: the sink or the queue does not keep up"),
    ROW(log_lines_dropped, "curt_log_lines_dropped_total", "counter", "",
        "Log lines lost because a buffer was full", ""),
};
#undef STATS

#define STATS struct rcache_stats
static const struct metric rcache_metrics[] = {
    ROW(hits, "curt_shared_cache_lookups_total", "counter", "result=\"hit\"",
        "Lookups in the cache that servers share", ""),
    ROW(misses, "curt_shared_cache_lookups_total", "counter", "result=\"miss\"", "", ""),
    ROW(errors, "curt_shared_cache_errors_total", "counter", "", "Calls of the shared cache that failed", ""),
    ROW(nodes, "curt_shared_cache_nodes", "gauge", "", "Nodes of the shared cache", ""),
    ROW(nodes_unhealthy, "curt_shared_cache_nodes_unhealthy", "gauge", "",
        "Nodes that failed and are not used until they answer again", "Above 0"),
    ROW(listening, "curt_shared_cache_listening", "gauge", "",
        "1 while changes by other servers arrive from every node",
        "0: links are read from the store more often"),
};
#undef STATS

#define STATS struct source_stats
static const struct metric source_metrics[] = {
    ROW(available, "curt_keys_available", "gauge", "", "Keys that creates can take now",
        "It nears 0: creates will get 503"),
    ROW(deferred, "curt_keys_set_aside", "gauge", "",
        "Keys that wait for a database that did not answer when they were tried",
        "It stays high after that database is back"),
    ROW(taken, "curt_keys_taken_total", "counter", "", "Keys taken from their source and not given back", ""),
    ROW(refilled, "curt_keys_refilled_total", "counter", "",
        "Keys added to the shards, for all servers, since this server started", ""),
    ROW(lost, "curt_keys_lost_total", "counter", "",
        "Keys taken that did not arrive, or that found no room when given back; an upper bound", ""),
    ROW(shards, "curt_keys_shards", "gauge", "", "Redis shards that hold keys", ""),
    ROW(shards_unhealthy, "curt_keys_shards_unhealthy", "gauge", "",
        "Shards that failed and are not used until they answer again", "Above 0"),
};
#undef STATS

#define STATS struct quota_sync_stats
static const struct metric quota_sync_metrics[] = {
    ROW(servers, "curt_limits_servers", "gauge", "", "Servers that share the limits",
        "It differs from the number of servers"),
    ROW(meters, "curt_limits_synced", "gauge", "", "Limits that this server synchronises with others", ""),
    ROW(syncs, "curt_limits_syncs_total", "counter", "", "Synchronisations of limits with other servers", ""),
    ROW(failures, "curt_limits_sync_failures_total", "counter", "", "Synchronisations that failed",
        "It grows: each server continues with its share of the limits"),
};
#undef STATS

void metrics_get(struct api_call *call)
{
	struct api *api = call->w->api;
	struct buf CLEANUP(buf_release) body = {0};
	metrics_write_common(&body);
	metrics_write_routes(&body, route_label);
	const struct server_stats server = {.cache = cache_read_stats(links_cache(api->links)),
	                                    .spool_bytes = event_log_spool_bytes(api->event_log),
	                                    .log_lines_dropped = log_dropped()};
	metrics_write(&body, server_metrics, ARRAY_LEN(server_metrics), &server);
	if (api->rcache) {
		const struct rcache_stats s = api->rcache->ops->stats(api->rcache);
		metrics_write(&body, rcache_metrics, ARRAY_LEN(rcache_metrics), &s);
	}
	if (api->source) {
		const struct source_stats s = api->source->ops->stats(api->source);
		metrics_write(&body, source_metrics, ARRAY_LEN(source_metrics), &s);
	}
	if (api->quota_sync) {
		const struct quota_sync_stats s = quota_sync_stats(api->quota_sync);
		metrics_write(&body, quota_sync_metrics, ARRAY_LEN(quota_sync_metrics), &s);
	}
	const struct http_response r = {
	    .status = 200,
	    .content_type = STR("text/plain; version=0.0.4; charset=utf-8"),
	    .body = buf_view(&body),
	};
	http_reply(call->c, &r);
}

static void markdown_section(struct buf *out, const char *title, const char *about)
{
	buf_printf(out,
	           "\n## %s\n\n%s\n\n| name | type | labels | meaning | when to worry |\n"
	           "| --- | --- | --- | --- | --- |\n",
	           title, about);
}

void metrics_markdown_page(struct buf *out)
{
	buf_str(
	    out,
	    STR("# Metrics\n"
	        "\n"
	        "`GET /metrics` of `curt serve`, and of `curt worker` on `worker.listen`, is Prometheus' "
	        "text format.\n"
	        "`make docs` writes this page from the same tables.\n"
	        "\n"
	        "    scrape_configs:\n"
	        "      - job_name: curt\n"
	        "        static_configs:\n"
	        "          - targets: [\"127.0.0.1:8080\"]\n"
	        "\n"
	        "Counters begin at 0 when the process starts. Durations are histograms in seconds, with\n"
	        "bounds of 1, 2.5 and 5 times each power of ten from 10 µs to 10 s. The 99th percentile of\n"
	        "redirects:\n"
	        "\n"
	        "    histogram_quantile(0.99, sum by (le) (\n"
	        "      rate(curt_http_request_duration_seconds_bucket{route=\"/{key}\"}[5m])))\n"));
	markdown_section(out, "Every process", "Metrics of parts that a process does not run stay 0.");
	metrics_markdown_common(out);
	markdown_section(
	    out, "curt serve",
	    "The duration of a request begins when its event loop receives its last byte, and ends\n"
	    "just before its response is sent, with its event on record. Requests that the\n"
	    "loop answers in the turn in which they arrived share one reading of the clock. A route\n"
	    "appears after its first request; `/{key}` is a short link, `other` is no known route.");
	metrics_markdown(out, &metrics_http_request_duration, 1);
	metrics_markdown(out, server_metrics, ARRAY_LEN(server_metrics));
	markdown_section(out, "curt serve with cache.url", "The cache that servers share.");
	metrics_markdown(out, rcache_metrics, ARRAY_LEN(rcache_metrics));
	markdown_section(out, "curt serve with keys.source = pool or claim",
	                 "Where creates take their keys from.");
	metrics_markdown(out, source_metrics, ARRAY_LEN(source_metrics));
	markdown_section(out, "curt serve with limits.url", "Limits that servers share.");
	metrics_markdown(out, quota_sync_metrics, ARRAY_LEN(quota_sync_metrics));
	markdown_section(out, "curt worker", "A worker shows the partitions that it has.");
	metrics_markdown(out, &metrics_queue_lag, 1);
}
