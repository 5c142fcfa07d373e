/*
 * Counters and histograms, declared once in the lists below: the lists make the struct, the sum over
 * threads and the text of /metrics.
 *
 * Each thread that counts registers one `struct metrics` and is its only writer: a count is a relaxed load
 * and store, never a locked instruction. Readers sum all registered sets with relaxed loads.
 */
#pragma once

#include "base/buf.h"

#include <stdatomic.h>

/* name, Prometheus labels (or ""), help; entries that share a name stand together and share its help */
#define METRICS_COUNTERS(X)                                                                                 \
	X(redirects, "curt_redirects_total", "", "Redirects answered")                                      \
	X(cache_hits, "curt_cache_lookups_total", "{result=\"hit\"}", "In-process cache lookups")           \
	X(cache_negative, "curt_cache_lookups_total", "{result=\"negative\"}", "")                          \
	X(cache_misses, "curt_cache_lookups_total", "{result=\"miss\"}", "")                                \
	X(cache_refreshes, "curt_cache_refreshes_total", "", "Cached links that were read again in time")   \
	X(cache_rescues, "curt_cache_rescues_total", "",                                                    \
	  "Redirects from the cache because the store did not answer")                                      \
	X(links_created, "curt_links_created_total", "", "Links created")                                   \
	X(links_deleted, "curt_links_deleted_total", "", "Links deleted on request")                        \
	X(links_swept, "curt_links_reaped_total", "", "Links removed because their time was over")          \
	X(keys_skipped, "curt_keys_skipped_total", "",                                                      \
	  "Generated keys that could not be used and were skipped")                                         \
	X(keys_dry, "curt_keys_dry_total", "", "Times that the source of keys had none")                    \
	X(store_lookups, "curt_store_lookups_total", "", "Links looked up in the store")                    \
	X(store_lookup_batches, "curt_store_lookup_batches_total", "", "Batches of store lookups")          \
	X(store_writes, "curt_store_writes_total", "", "Changes written to the store")                      \
	X(store_commits, "curt_store_commits_total", "", "Transactions that carried those changes")         \
	X(store_errors, "curt_store_errors_total", "", "Store calls that failed")                           \
	X(events_clicks, "curt_events_logged_total", "{kind=\"click\"}", "Events written to the event log") \
	X(events_orphans, "curt_events_logged_total", "{kind=\"orphan\"}", "")                              \
	X(events_impressions, "curt_events_logged_total", "{kind=\"impression\"}", "")                      \
	X(events_clicks_dropped, "curt_events_dropped_total", "{kind=\"click\"}",                           \
	  "Events not recorded because of overload")                                                        \
	X(events_orphans_dropped, "curt_events_dropped_total", "{kind=\"orphan\"}", "")                     \
	X(events_refused, "curt_events_refused_total", "", "Requests to /event answered with 503")          \
	X(events_rejected, "curt_events_rejected_total", "", "Events refused because they were wrong")      \
	X(events_segments_removed, "curt_events_segments_removed_total", "",                                \
	  "Segments of the event log removed after they were analysed")                                     \
	X(events_unreadable_bytes, "curt_events_unreadable_bytes_total", "",                                \
	  "Bytes of the event log lost to damage")                                                          \
	X(queue_sent, "curt_queue_sent_total", "", "Events sent to the queue, with its receipt")            \
	X(queue_failures, "curt_queue_failures_total", "", "Times that the queue did not take events")      \
	X(queue_producers, "curt_queue_producers_replaced_total", "",                                       \
	  "Producers that failed for good and were replaced")                                               \
	X(queue_replays, "curt_queue_replays_total", "",                                                    \
	  "Events read that had been sent twice, and were left out")                                        \
	X(queue_lost, "curt_queue_lost_total", "", "Messages that the queue removed before they were read") \
	X(stats_batches, "curt_stats_batches_total", "", "Batches committed to the sink")                   \
	X(stats_visits, "curt_stats_events_total", "{kind=\"visit\"}", "Events committed to the sink")      \
	X(stats_impressions, "curt_stats_events_total", "{kind=\"impression\"}", "")                        \
	X(stats_duplicates, "curt_stats_duplicates_total", "", "Impressions dropped as duplicates")         \
	X(stats_unusable, "curt_stats_dead_letters_total", "", "Events that went to the dead-letter file")  \
	X(stats_failures, "curt_stats_failures_total", "", "Commits that the sink refused")                 \
	X(counters_clicks, "curt_counters_clicks_total", "", "Clicks added to the live counts")             \
	X(counters_rebuilt, "curt_counters_rebuilt_total", "",                                              \
	  "Times that the live counts of a stream began anew")                                              \
	X(counters_updates, "curt_counters_updates_total", "", "Totals of links written to the link store") \
	X(http_requests, "curt_http_requests_total", "", "Requests answered")                               \
	X(http_2xx, "curt_http_responses_total", "{class=\"2xx\"}", "Responses by class")                   \
	X(http_3xx, "curt_http_responses_total", "{class=\"3xx\"}", "")                                     \
	X(http_4xx, "curt_http_responses_total", "{class=\"4xx\"}", "")                                     \
	X(http_5xx, "curt_http_responses_total", "{class=\"5xx\"}", "")                                     \
	X(bodies_refused, "curt_bodies_refused_total", "",                                                  \
	  "Requests refused because too many large bodies were on their way")                               \
	X(limited, "curt_limited_total", "", "Requests refused by a limit")                                 \
	X(conns_accepted, "curt_connections_accepted_total", "", "Connections accepted")                    \
	X(conns_closed, "curt_connections_closed_total", "", "Connections closed")                          \
	X(conns_refused, "curt_connections_refused_total", "", "Connections refused at a limit")            \
	X(conns_timed_out, "curt_connections_timed_out_total", "", "Connections ended by a deadline")       \
	X(loop_turns, "curt_loop_turns_total", "", "Turns of the event loops")

#define METRICS_HISTOGRAMS(X)                                                                      \
	X(store_lookup_us, "curt_store_lookup_microseconds", "Time of one batch of store lookups") \
	X(store_commit_us, "curt_store_commit_microseconds", "Time of one store transaction")      \
	X(stats_commit_us, "curt_stats_commit_microseconds", "Time of one commit to the sink")

/* Powers of two with four steps in each: a value's bucket is within a quarter of it. */
enum { HISTOGRAM_BUCKETS = 128 };

struct histogram {
	_Atomic uint64_t buckets[HISTOGRAM_BUCKETS];
	_Atomic uint64_t sum;
};

struct metrics {
#define X(name, prometheus, labels, help) _Atomic uint64_t name;
	METRICS_COUNTERS(X)
#undef X
#define X(name, prometheus, help) struct histogram name;
	METRICS_HISTOGRAMS(X)
#undef X
	struct metrics *next; /* registration chain */
};

/* Only by the owning thread. */
static inline void metric_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
	                      memory_order_relaxed);
}
void histogram_record(struct histogram *h, uint64_t value);

/* A zeroed set that lives until the process ends; NULL when memory ran out. Any thread. */
struct metrics *metrics_register(void);

/* The Prometheus text of everything registered. Any thread. */
void metrics_render(struct buf *out);

/* The sum of one counter over all threads: metrics_sum(offsetof(struct metrics, redirects)). */
uint64_t metrics_sum(size_t counter_offset);
