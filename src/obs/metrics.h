/*
 * Counters, histograms and the tables of all metrics. A table makes the text of /metrics and docs/metrics.md;
 * the two lists below also make the struct that threads count in.
 *
 * Each thread that counts registers one `struct metrics` and is its only writer: a count is a relaxed load
 * and store, never a locked instruction. Readers sum all registered sets with relaxed loads.
 */
#pragma once

#include "base/buf.h"

#include <stdatomic.h>

/* field, name, labels, meaning, when to worry. Rows of one name are adjacent; the first has the sentences. */
#define METRICS_COUNTERS(X)                                                                                  \
	X(redirects, "curt_redirects_total", "", "Redirects sent", "")                                       \
	X(cache_hits, "curt_cache_lookups_total", "result=\"hit\"",                                          \
	  "Lookups in the in-process cache; `negative`: it knows that there is no such link",                \
	  "The share of `miss` grows: raise `cache.memory`")                                                 \
	X(cache_negative, "curt_cache_lookups_total", "result=\"negative\"", "", "")                         \
	X(cache_misses, "curt_cache_lookups_total", "result=\"miss\"", "", "")                               \
	X(cache_refreshes, "curt_cache_refreshes_total", "",                                                 \
	  "Cached links that were read from the store again before they were too old to serve", "")          \
	X(cache_stale_served, "curt_cache_stale_served_total", "",                                           \
	  "Redirects served from the cache because the store did not answer",                                \
	  "It grows: the store does not answer")                                                             \
	X(links_created, "curt_links_created_total", "", "Links created", "")                                \
	X(links_deleted, "curt_links_deleted_total", "", "Links deleted by a request", "")                   \
	X(links_swept, "curt_links_swept_total", "", "Expired links removed", "")                            \
	X(keys_skipped, "curt_keys_skipped_total", "",                                                       \
	  "Generated keys skipped: already taken, not valid here, or of a database that did not answer", "") \
	X(keys_exhausted, "curt_keys_exhausted_total", "", "Times that the key source had no key",           \
	  "It grows: creates get 503; check that `curt keygen` and `curt keysync` run")                      \
	X(store_lookups, "curt_store_lookups_total", "", "Links looked up in the store", "")                 \
	X(store_lookup_batches, "curt_store_lookup_batches_total", "", "Batches of store lookups", "")       \
	X(store_writes, "curt_store_writes_total", "", "Changes written to the store", "")                   \
	X(store_commits, "curt_store_commits_total", "", "Store transactions; one holds many changes", "")   \
	X(store_errors, "curt_store_errors_total", "", "Store calls that failed",                            \
	  "It grows: requests get 503; see the log")                                                         \
	X(events_clicks, "curt_events_logged_total", "kind=\"click\"", "Events written to the event log",    \
	  "")                                                                                                \
	X(events_orphans, "curt_events_logged_total", "kind=\"orphan\"", "", "")                             \
	X(events_impressions, "curt_events_logged_total", "kind=\"impression\"", "", "")                     \
	X(events_clicks_dropped, "curt_events_dropped_total", "kind=\"click\"",                              \
	  "Events not recorded because the event log could not keep up",                                     \
	  "Above 0: the disk is full or too slow, and statistics miss these events")                         \
	X(events_orphans_dropped, "curt_events_dropped_total", "kind=\"orphan\"", "", "")                    \
	X(events_requests_refused, "curt_events_requests_refused_total", "",                                 \
	  "Requests to /event that got 503", "It grows: the event log cannot keep up")                       \
	X(events_invalid, "curt_events_invalid_total", "", "Events refused because they were invalid", "")   \
	X(events_segments_removed, "curt_events_segments_removed_total", "",                                 \
	  "Segments of the event log removed after they were counted", "")                                   \
	X(events_unreadable_bytes, "curt_events_unreadable_bytes_total", "",                                 \
	  "Bytes of the event log lost to damage", "Above 0: check the disk, run `curt verify`")             \
	X(queue_sent, "curt_queue_sent_total", "", "Events sent to the queue and acknowledged", "")          \
	X(queue_send_failures, "curt_queue_send_failures_total", "", "Sends that the queue did not accept",  \
	  "It grows: the queue does not answer; events stay in the event log")                               \
	X(queue_producers_replaced, "curt_queue_producers_replaced_total", "",                               \
	  "Producers replaced after an error that cannot be retried", "")                                    \
	X(queue_duplicates, "curt_queue_duplicates_total", "",                                               \
	  "Events read that had been sent twice, and were left out", "")                                     \
	X(queue_lost, "curt_queue_lost_total", "", "Messages that the queue removed before they were read",  \
	  "Above 0: raise the retention of the topics, or start more workers")                               \
	X(stats_batches, "curt_stats_batches_total", "", "Batches committed to the sink", "")                \
	X(stats_visits, "curt_stats_events_total", "kind=\"visit\"", "Events committed to the sink", "")     \
	X(stats_impressions, "curt_stats_events_total", "kind=\"impression\"", "", "")                       \
	X(stats_duplicates, "curt_stats_duplicates_total", "", "Impressions dropped as duplicates", "")      \
	X(stats_dead_letters, "curt_stats_dead_letters_total", "",                                           \
	  "Events written to the dead-letter file because they cannot be counted",                           \
	  "Above 0: look at dead-letters.ndjson")                                                            \
	X(stats_commit_failures, "curt_stats_commit_failures_total", "", "Commits that the sink refused",    \
	  "It grows: the sink does not answer; statistics fall behind")                                      \
	X(counters_clicks, "curt_counters_clicks_total", "", "Clicks added to the live counts", "")          \
	X(counters_rebuilds, "curt_counters_rebuilds_total", "",                                             \
	  "Times that the live counts of a stream were rebuilt", "")                                         \
	X(counters_updates, "curt_counters_updates_total", "",                                               \
	  "Click totals of links written to the link store", "")                                             \
	X(http_requests, "curt_http_requests_total", "", "HTTP requests answered", "")                       \
	X(http_2xx, "curt_http_responses_total", "class=\"2xx\"",                                            \
	  "HTTP responses by class; 501 and 505, which "                                                     \
	  "refuse what the client sent, are in `4xx`",                                                       \
	  "The share of `5xx` grows")                                                                        \
	X(http_3xx, "curt_http_responses_total", "class=\"3xx\"", "", "")                                    \
	X(http_4xx, "curt_http_responses_total", "class=\"4xx\"", "", "")                                    \
	X(http_5xx, "curt_http_responses_total", "class=\"5xx\"", "", "")                                    \
	X(http_bodies_refused, "curt_http_bodies_refused_total", "",                                         \
	  "Requests that got 503 because too many large bodies were arriving", "")                           \
	X(http_requests_limited, "curt_http_requests_limited_total", "",                                     \
	  "Requests that got 429 because of a limit", "")                                                    \
	X(conns_accepted, "curt_connections_accepted_total", "", "Connections accepted", "")                 \
	X(conns_closed, "curt_connections_closed_total", "", "Connections closed", "")                       \
	X(conns_refused, "curt_connections_refused_total", "", "Connections refused at a limit",             \
	  "It grows: raise `limits.connections` or the limit of open files (`ulimit -n`)")                   \
	X(conns_timed_out, "curt_connections_timed_out_total", "", "Connections that missed a deadline", "") \
	X(loop_turns, "curt_loop_turns_total", "", "Turns of the event loops", "")

#define METRICS_HISTOGRAMS(X)                                                                                \
	X(store_lookup_duration, "curt_store_lookup_duration_seconds", "",                                   \
	  "Time of one batch of store lookups", "The upper quantiles grow: the store is slow")               \
	X(store_commit_duration, "curt_store_commit_duration_seconds", "", "Time of one store transaction",  \
	  "The upper quantiles grow: creates are slow")                                                      \
	X(stats_commit_duration, "curt_stats_commit_duration_seconds", "", "Time of one commit to the sink", \
	  "The upper quantiles grow: statistics fall behind")

enum { HISTOGRAM_BOUNDS = 19, METRICS_ROUTES_MAX = 48 };

/* Bucket i counts durations of at most bound i; the last bucket counts all longer ones. */
struct histogram {
	_Atomic uint64_t buckets[HISTOGRAM_BOUNDS + 1];
	_Atomic uint64_t sum_ns;
};

struct metrics {
#define X(field, ...) _Atomic uint64_t field;
	METRICS_COUNTERS(X)
#undef X
#define X(field, ...) struct histogram field;
	METRICS_HISTOGRAMS(X)
#undef X
	struct histogram http_request_duration[METRICS_ROUTES_MAX]; /* by route: http_conn_set_route */
	struct metrics *next;                                       /* registration chain */
};

/* Only by the owning thread. */
static inline void metric_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
	                      memory_order_relaxed);
}

/* Counts `n` events of the same duration. */
void histogram_add(struct histogram *h, uint64_t duration_ns, uint64_t n);

/* A zeroed set that lives until the process ends; NULL when memory ran out. Any thread. */
struct metrics *metrics_register(void);

/* The sum of one counter over all threads: metrics_sum(offsetof(struct metrics, redirects)). */
uint64_t metrics_sum(size_t counter_offset);

/* A row of a table. The value is a uint64_t at `offset` of the struct that the table describes. It is in
 * nanoseconds where the name says seconds. */
struct metric {
	const char *name;
	const char *type;   /* as Prometheus calls it */
	const char *labels; /* `result="hit"`, or only the labels' names where the values vary */
	const char *help;   /* "" where the row before has the same name */
	const char *worry;  /* when somebody should look; or "" */
	size_t offset;
};

/* The families whose label values only their module knows. It writes the samples itself. */
extern const struct metric metrics_http_request_duration, metrics_queue_lag;

/* The Prometheus text of a table, of a family's head, and of the latency of each route that was requested.
 * `values` is NULL for what is registered; `route_name` says NULL behind the last route. */
void metrics_write(struct buf *out, const struct metric *rows, size_t n, const void *values);
void metrics_write_family(struct buf *out, const struct metric *row);
void metrics_write_routes(struct buf *out, const char *(*route_name)(size_t number));

/* What every process has: all that is registered, the process itself and its build. Any thread. */
void metrics_write_common(struct buf *out);

/* Rows of Markdown: name, type, labels, meaning, when to worry. */
void metrics_markdown(struct buf *out, const struct metric *rows, size_t n);
void metrics_markdown_common(struct buf *out);
