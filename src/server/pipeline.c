#include "server/pipeline.h"

#include "obs/log.h"
#include "queue/queue_kafka.h"
#include "queue/queue_log.h"
#include "server/backends.h"
#include "sink/sink_lazy.h"
#include "stats/batch.h"
#include "stats/checkpoint_handover.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

/* A shared sink has one total for all workers, under this node in the store. */
enum { SHARED_SINK_NODE = 1 };

enum { END_MS = 4000 }; /* how long a stop waits for the sink */

static bool has_kafka(const struct pipeline *p)
{
	return p->settings->queue.url[0] != '\0';
}

/* No other process can write to it. */
static bool sink_is_ours(const struct pipeline *p)
{
	return backend_sink_is_file(p->settings->serve.sink_url);
}

/* Where the position in the log is stored. */
static enum checkpoint_owner owner_of(const struct pipeline *p)
{
	if (has_kafka(p))
		return OWNER_FORWARDER;
	return p->sink->ops->resume ? OWNER_SINK : OWNER_WORKER;
}

static int checkpoint_open(struct pipeline *p, struct err *e)
{
	const char *file = p->folder ? handover_file(owner_of(p)) : NULL;
	p->events_path = p->folder ? folder_path(p->folder, "events") : NULL;
	if ((p->folder && !p->events_path) ||
	    (file && asprintf(&p->checkpoint_path, "%s/%s", p->events_path, file) < 0)) {
		p->checkpoint_path = NULL;
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	if (p->folder && !has_kafka(p) &&
	    !(p->dirty_links_path = folder_path(p->folder, "events/dirty-links")))
		return err_set(e, ERR_NOMEM, "out of memory");
	return 0;
}

/* Sinks that find duplicates themselves need no filter. */
static int seen_open(struct pipeline *p, struct err *e)
{
	if (!p->sink->ops->find_duplicates || !p->settings->serve.seen_url[0])
		return 0;
	return backend_open_seen(p->settings->serve.seen_url, p->store, p->sink, p->settings->sink.seen_ms,
	                         &p->seen, e);
}

static int counters_open(struct pipeline *p, struct err *e)
{
	if (!has_kafka(p) || !p->settings->serve.seen_url[0])
		return 0;
	return backend_open_counters(p->settings->serve.seen_url, p->store, &p->counters, e);
}

static int sink_open(void *ctx, struct sink **ret, struct err *e)
{
	const struct pipeline *p = ctx;
	return backend_open_sink(p->settings->serve.sink_url, p->folder, &p->settings->sink, ret, e);
}

/* Such a process only queries the sink. It starts without it: redirects and the queue do not need the sink. */
static bool only_queries(const struct pipeline *p)
{
	return !sink_is_ours(p) && p->folder && (has_kafka(p) || p->settings->serve.role == ROLE_STATS);
}

static int sink_open_or_lazy(struct pipeline *p, struct err *e)
{
	int r = sink_open(p, &p->sink, e);
	if (r != ERR_UNAVAILABLE || !only_queries(p))
		return r;
	log_warn("server", "sink not available, statistics are not served until it is: %s", e->text);
	p->sink_is_lazy = true;
	return sink_lazy_new(&(struct sink_lazy_config){.open = sink_open, .ctx = p}, &p->sink, e);
}

int pipeline_open(struct pipeline *p, const struct settings *s, struct store *store,
                  const struct folder *folder, struct err *e)
{
	p->settings = s;
	p->store = store;
	p->folder = folder;
	int r = sink_open_or_lazy(p, e);
	if (r == 0)
		r = checkpoint_open(p, e);
	if (r == 0)
		r = counters_open(p, e);
	return r;
}

/* Called while the log opens, when its node is known, and once more by open_local. */
int pipeline_resume(void *ctx, uint64_t node, struct arena *arena, struct position **ret, size_t *ret_count)
{
	struct pipeline *p = ctx;
	struct err e;
	(void)arena;
	const struct handover_config config = {
	    .folder = p->events_path,
	    .owner = owner_of(p),
	    .sink = p->sink,
	    .sink_is_unavailable = p->sink_is_lazy,
	};
	int r = p->has_handover ? 0 : checkpoint_handover(&config, node, &p->arena, &p->checkpoint, &e);
	if (r < 0) {
		log_error("server", "%s", e.text);
		return r;
	}
	p->has_handover = true;
	*ret = p->checkpoint.positions;
	*ret_count = p->checkpoint.count;
	return 0;
}

int pipeline_counts(struct pipeline *p, uint64_t node, struct event_counts *ret, struct err *e)
{
	struct event_counts reconciliation = {0};
	int r = p->checkpoint_path ? 0 : handover_consumed(p->sink, node, &reconciliation, e);
	if (r == 0)
		*ret = event_counts_max(p->checkpoint.counts, reconciliation);
	return r;
}

static int log_sync(void *ctx)
{
	struct pipeline *p = ctx;
	return p->checkpoint_path || !p->sink->ops->sync ? 0 : p->sink->ops->sync(p->sink);
}

static void log_forget(void *ctx, const uint64_t *segments, size_t count)
{
	struct pipeline *p = ctx;
	if (!p->checkpoint_path)
		p->sink->ops->forget(p->sink, event_log_node(p->log), segments, count);
}

static int open_local(struct pipeline *p, struct err *e)
{
	struct position *read = NULL;
	size_t count = 0;
	int r = pipeline_resume(p, event_log_node(p->log), &p->arena, &read, &count);
	if (r < 0)
		return err_set(e, r, "cannot find out how far the event log was read (%s)", err_name(r));
	const struct queue_log_config config = {
	    .log = p->log,
	    .settings = &p->settings->events,
	    .read = read,
	    .read_count = count,
	    .checkpoint = p->checkpoint_path,
	    .counts = p->checkpoint.counts,
	    .boots_in_order = has_kafka(p),
	    .sync = log_sync,
	    .forget = log_forget,
	    .ctx = p,
	};
	return queue_log_new(&config, &p->local, e);
}

static int remote_resume(void *ctx, uint64_t source, struct arena *arena, struct position **ret,
                         size_t *ret_count)
{
	struct pipeline *p = ctx;
	return p->sink->ops->resume(p->sink, source, arena, ret, ret_count);
}

static int open_remote(struct pipeline *p, struct err *e)
{
	const struct queue_kafka_config config = {
	    .settings = &p->settings->queue,
	    .resume = p->sink->ops->resume ? remote_resume : NULL,
	    .ctx = p,
	};
	return queue_kafka_new(&config, &p->remote, e);
}

/* The store keeps the secret: with another one, a replayed impression would count twice. */
static int start_stats(struct pipeline *p, struct queue *queue, const struct pipeline_outlet *outlet,
                       struct err *e)
{
	uint8_t secret[DEDUP_SECRET_BYTES];
	int r = seen_open(p, e);
	if (r < 0)
		return r;
	randombytes_buf(secret, sizeof(secret));
	r = registry_constant(p->store->registry, STR("dedup-secret"), secret, sizeof(secret));
	if (r < 0)
		return err_set(e, r, "cannot read the secret of duplicate detection from the store (%s)",
		               err_name(r));
	const struct stats_worker_config config = {
	    .settings = &p->settings->stats,
	    .queue = queue,
	    .sink = p->sink,
	    .seen = p->seen,
	    .counters = p->counters,
	    .store = p->store,
	    .folder = outlet->folder,
	    .dirty_links = p->dirty_links_path,
	    .node = sink_is_ours(p) ? event_log_node(p->log) : SHARED_SINK_NODE,
	    .seen_ms = p->settings->sink.seen_ms,
	    .dedup_secret = secret,
	    .publish = outlet->publish,
	    .ctx = outlet->ctx,
	};
	return stats_worker_start(&config, &p->stats, e);
}

static int start_forwarder(struct pipeline *p, const struct pipeline_outlet *outlet, struct err *e)
{
	const struct live_source_config news = {
	    .settings = &p->settings->stats,
	    .seen_ms = p->settings->sink.seen_ms,
	    .is_watched = outlet->is_watched,
	    .publish = outlet->publish,
	    .ctx = outlet->ctx,
	};
	int r = live_source_new(&news, &p->live_source, e);
	if (r < 0)
		return r;
	const struct forwarder_config config = {
	    .settings = &p->settings->queue,
	    .queue = p->local,
	    .watch = live_source_watch(p->live_source),
	};
	return forwarder_start(&config, &p->forwarder, e);
}

int pipeline_start_server(struct pipeline *p, struct event_log *log, const struct pipeline_outlet *outlet,
                          struct err *e)
{
	p->log = log;
	int r = open_local(p, e);
	if (r < 0 || !has_kafka(p))
		return r < 0 ? r : start_stats(p, p->local, outlet, e);
	r = start_forwarder(p, outlet, e);
	if (r < 0 || !sink_is_ours(p))
		return r;
	struct pipeline_outlet quiet = *outlet;
	quiet.publish = NULL; /* the forwarder publishes */
	return pipeline_start_worker(p, &quiet, e);
}

int pipeline_start_worker(struct pipeline *p, const struct pipeline_outlet *outlet, struct err *e)
{
	int r = open_remote(p, e);
	if (r < 0)
		return r;
	return start_stats(p, p->remote, outlet, e);
}

struct queue_consumer *pipeline_pump(struct pipeline *p)
{
	return p->forwarder ? forwarder_consumer(p->forwarder)
	       : p->stats   ? stats_worker_consumer(p->stats)
	                    : NULL;
}

void pipeline_let_go(struct pipeline *p)
{
	if (p->sink && !p->stats && p->sink->ops->cancel)
		p->sink->ops->cancel(p->sink);
}

/* A sink that hangs is not waited for: the next start reads the events again. */
static void threads_end(struct pipeline *p)
{
	if (p->forwarder)
		queue_consumer_ask_stop(forwarder_consumer(p->forwarder));
	if (!p->stats)
		return;
	queue_consumer_ask_stop(stats_worker_consumer(p->stats));
	if (queue_consumer_wait_stop(stats_worker_consumer(p->stats), END_MS))
		return;
	log_warn("server",
	         "sink does not answer at the stop, its last events are counted after the next start");
	if (p->sink->ops->cancel)
		p->sink->ops->cancel(p->sink);
}

void pipeline_stop(struct pipeline *p)
{
	threads_end(p);
	forwarder_stop(p->forwarder);
	live_source_free(p->live_source);
	stats_worker_stop(p->stats);
	p->forwarder = NULL;
	p->live_source = NULL;
	p->stats = NULL;
	if (p->local)
		p->local->ops->free(p->local);
	if (p->remote)
		p->remote->ops->free(p->remote);
	p->local = p->remote = NULL;
}

void pipeline_close(struct pipeline *p)
{
	pipeline_stop(p);
	if (p->counters)
		p->counters->ops->free(p->counters);
	if (p->seen)
		p->seen->ops->free(p->seen);
	if (p->sink)
		p->sink->ops->free(p->sink);
	arena_release(&p->arena);
	free(p->checkpoint_path);
	free(p->dirty_links_path);
	free(p->events_path);
	*p = (struct pipeline){0};
}
