/* GET /metrics: the counters of all threads, and what only others can say about themselves at the moment. */
#include "api/handlers.h"
#include "link/quota_sync.h"
#include "obs/log.h"

struct gauge {
	const char *name, *labels, *type, *help; /* help: NULL when the one before has the same name */
	uint64_t value;
};

static void gauges_render(struct buf *out, const struct gauge *gauges, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct gauge *g = &gauges[i];
		if (g->help)
			buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", g->name, g->help, g->name, g->type);
		buf_printf(out, "%s%s %llu\n", g->name, g->labels, (unsigned long long)g->value);
	}
}

static void render_own(struct buf *out, struct api *api)
{
	struct cache_stats s = cache_read_stats(links_cache(api->links));
	const struct gauge gauges[] = {
	    {"curt_cache_entries", "", "gauge", "Links in the in-process cache", s.entries},
	    {"curt_cache_bytes", "", "gauge", "Bytes of the in-process cache in use", s.bytes},
	    {"curt_cache_bytes_max", "", "gauge", "Bound of the in-process cache", s.bytes_max},
	    {"curt_cache_evictions_total", "", "counter", "Entries that left the main queue", s.evictions},
	    {"curt_events_spool_bytes", "", "gauge", "Bytes of the event log that wait to be analysed",
	     event_log_spool_bytes(api->event_log)},
	    {"curt_log_lines_dropped_total", "", "counter", "Log lines lost because a buffer was full",
	     log_dropped()},
	    {"curt_cache_scanned_out_total", "", "counter", "Entries that left the small queue unused",
	     s.scanned_out},
	};
	gauges_render(out, gauges, ARRAY_LEN(gauges));
}

static void render_rcache(struct buf *out, struct rcache *rcache)
{
	struct rcache_stats s = rcache->ops->stats(rcache);
	const struct gauge gauges[] = {
	    {"curt_shared_cache_lookups_total", "{result=\"hit\"}", "counter",
	     "Lookups in the cache that servers share", s.hits},
	    {"curt_shared_cache_lookups_total", "{result=\"miss\"}", "counter", NULL, s.misses},
	    {"curt_shared_cache_errors_total", "", "counter", "Calls of the shared cache that failed",
	     s.errors},
	    {"curt_shared_cache_nodes", "", "gauge", "Nodes of the shared cache", s.nodes},
	    {"curt_shared_cache_nodes_sick", "", "gauge", "Nodes that are left alone because they failed",
	     s.nodes_failing},
	    {"curt_shared_cache_listening", "", "gauge", "1 while changes by other servers arrive",
	     s.listening},
	};
	gauges_render(out, gauges, ARRAY_LEN(gauges));
}

static void render_source(struct buf *out, struct key_source *source)
{
	struct source_stats s = source->ops->stats(source);
	const struct gauge gauges[] = {
	    {"curt_keys_available", "", "gauge", "Keys that can be had now", s.available},
	    {"curt_keys_aside", "", "gauge",
	     "Keys that wait for a part of the store that was away when they were tried", s.deferred},
	    {"curt_keys_taken_total", "", "counter", "Keys taken from their source and not given back",
	     s.taken},
	    {"curt_keys_refilled_total", "", "counter",
	     "Keys that were brought to the shards, for all servers, since this one started", s.refilled},
	    {"curt_keys_lost_total", "", "counter",
	     "Keys, at most, that were taken and did not arrive, or found no room to go back to", s.lost},
	    {"curt_keys_shards", "", "gauge", "Redis shards that hold keys", s.shards},
	    {"curt_keys_shards_sick", "", "gauge", "Shards that are left alone because they failed",
	     s.shards_failing},
	};
	gauges_render(out, gauges, ARRAY_LEN(gauges));
}

static void render_quota_sync(struct buf *out, struct quota_sync *quota_sync)
{
	struct quota_sync_stats s = quota_sync_stats(quota_sync);
	const struct gauge gauges[] = {
	    {"curt_limits_servers", "", "gauge", "Servers that share the limits", s.servers},
	    {"curt_limits_meters", "", "gauge", "Limits that are being settled", s.meters},
	    {"curt_limits_settles_total", "", "counter", "Times that limits were settled", s.rounds},
	    {"curt_limits_settle_failures_total", "", "counter", "Times that they could not be", s.failures},
	};
	gauges_render(out, gauges, ARRAY_LEN(gauges));
}

void metrics_get(struct api_call *call)
{
	const struct api *api = call->w->api;
	struct buf CLEANUP(buf_release) body = {0};
	metrics_render(&body);
	render_own(&body, call->w->api);
	if (api->rcache)
		render_rcache(&body, api->rcache);
	if (api->source)
		render_source(&body, api->source);
	if (api->quota_sync)
		render_quota_sync(&body, api->quota_sync);
	const struct http_response r = {
	    .status = 200,
	    .content_type = STR("text/plain; version=0.0.4; charset=utf-8"),
	    .body = buf_view(&body),
	};
	http_reply(call->c, &r);
}
