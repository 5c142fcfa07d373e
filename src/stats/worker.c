#include "stats/worker.h"

#include "obs/log.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/failpoint.h"
#include "stats/batch.h"
#include "stats/clicks.h"
#include "stats/dedup.h"

#include <stdlib.h>

enum {
	AGENTS_MAX = 16384,
	RETENTION_EVERY_MS = 10000,
	RETENTION_MS = 50,               /* at a time: clicks should show within a second */
	IDLE_COMMIT_MS = 30 * 60 * 1000, /* retention depends on the time of the last commit */
	TOTALS_MS = 1000,                /* at a time; the rest is flushed the next time */
	TOTALS_MAX = STORE_COUNTS_MAX,
};

static const char *const dedup_names[] = {"id", "tuple", NULL};

#define FIELD(f) offsetof(struct stats_settings, f)

const struct conf_row stats_rows[] = {
    {"worker", "batch", CONF_UINT, FIELD(batch), .def = "65536", .min = 1, .max = 1 << 20,
     .help = "The most events that are analysed and committed together."},
    {"worker", "interval_ms", CONF_UINT, FIELD(interval_ms), .def = "250", .min = 1, .max = 60000,
     .help = "How long events wait to be committed together with others, in milliseconds."},
    {"worker", "dedup_key", CONF_ENUM, FIELD(dedup_key), .def = "id", .choices = dedup_names,
     .help = "What identifies an impression. id: its id. tuple: its id, ts, userId and adId together."},
    {"worker", "totals_time", CONF_DURATION, FIELD(totals_ms), .def = "30s", .min = 10,
     .max = 24ULL * 3600 * 1000,
     .help = "How often the click totals of links are written to the link store."},
    {"worker", "flush_time", CONF_DURATION, FIELD(flush_ms), .def = "30m", .min = 10,
     .max = 24ULL * 3600 * 1000,
     .help =
         "The same where Redis holds live counts (seen.url with queue.url); the rest is written at a stop."},
    {"worker", "places", CONF_STRING, FIELD(places), .def = "",
     .help = "A MaxMind database (.mmdb) that gives country, region and city of an address. Empty: none."},
};
const size_t stats_row_count = ARRAY_LEN(stats_rows);

struct stats_worker {
	struct stats_worker_config config;
	struct queue_consumer *consumer;
	struct metrics *metrics;
	struct agents *agents;
	struct places *places;
	struct dead_letters *dead_letters;
	struct batch *batch;
	struct dedup *dedup;
	struct sink_batch
	    filtered; /* the batch without duplicates: the same for every attempt to commit it */
	bool is_filtered;
	struct clicks *clicks;                   /* NULL: only the sink needs them */
	int64_t totals_due_ms, retention_due_ms; /* monotonic */
};

/* Batches */

static void worker_begin(void *ctx)
{
	struct stats_worker *w = ctx;
	batch_begin(w->batch, clock_real_ms());
	w->is_filtered = false;
}

static bool worker_is_full(void *ctx)
{
	const struct stats_worker *w = ctx;
	return batch_is_full(w->batch);
}

static int worker_add(void *ctx, struct queue *queue, const struct queue_event *ev)
{
	struct stats_worker *w = ctx;
	return batch_add(w->batch, queue, ev);
}

static int filter(struct stats_worker *w)
{
	if (w->is_filtered)
		return 0;
	struct queue *q = w->config.queue;
	w->filtered = *batch_result(w->batch);
	w->filtered.source = q->ops->source(q);
	const struct advance *partitions;
	size_t partition_count = q->ops->partition_advances(q, &partitions);
	int r = dedup_filter(w->dedup, &w->filtered, partitions, partition_count);
	w->is_filtered = r == 0;
	return r;
}

static int worker_commit(void *ctx, const struct advance *advances, size_t count)
{
	struct stats_worker *w = ctx;
	struct sink *sink = w->config.sink;
	struct sink_batch *b = &w->filtered;
	uint64_t duplicates = 0;
	int64_t start_ns = clock_mono_ns();
	int r = filter(w);
	b->advances = advances;
	b->advance_count = count;
	if (r == 0 && w->clicks)
		clicks_announce(w->clicks, b);
	failpoint("worker-filtered");
	if (r == 0)
		r = sink->ops->commit(sink, b, &duplicates);
	if (r < 0) {
		metric_add(&w->metrics->stats_commit_failures, 1);
		return r;
	}
	failpoint("worker-committed");
	dedup_record(w->dedup);
	if (w->clicks)
		clicks_count(w->clicks, b);
	failpoint("worker-recorded");
	histogram_add(&w->metrics->stats_commit_duration, (uint64_t)(clock_mono_ns() - start_ns), 1);
	struct metrics *m = w->metrics;
	metric_add(&m->stats_batches, 1);
	metric_add(&m->stats_visits, b->visit_count);
	metric_add(&m->stats_impressions, b->impression_count - duplicates);
	metric_add(&m->stats_duplicates, b->tally.duplicates + duplicates);
	metric_add(&m->stats_dead_letters, b->tally.unusable_clicks + b->tally.unusable_impressions);
	struct live_batch live = {.batch = b, .duplicates = duplicates};
	live.recent = batch_recent(w->batch, &live.recent_count);
	if (w->config.publish)
		w->config.publish(w->config.ctx, &live);
	return 0;
}

/* Maintenance */

/* The interval of flushes to the store. */
static uint64_t totals_ms(const struct stats_worker_config *c)
{
	return c->counters ? c->settings->flush_ms : c->settings->totals_ms;
}

static void totals_flush(struct stats_worker *w, int64_t until_ms)
{
	while (clock_mono_ms() < until_ms) {
		struct arena CLEANUP(arena_release) arena = {0};
		struct sink *sink = w->config.sink;
		struct sink_total *totals;
		struct store_count counts[TOTALS_MAX];
		size_t n;
		int r = sink->ops->totals(sink, TOTALS_MAX, &arena, &totals, &n);
		if (r == 0 && n == 0)
			return;
		for (size_t i = 0; r == 0 && i < n; i++)
			counts[i] = (struct store_count){totals[i].link, totals[i].clicks};
		if (r == 0)
			r = store_set_clicks(w->config.store, w->config.node, counts, n);
		if (r == 0)
			r = sink->ops->totals_flushed(sink, totals, n);
		if (r < 0) {
			log_warn("stats",
			         "cannot flush click totals to the link store, retrying later: error=%s",
			         err_name(r));
			return;
		}
		metric_add(&w->metrics->counters_updates, n);
		if (n < TOTALS_MAX)
			return;
	}
}

/* Only when the queue is read to its end: the sink forgets fingerprints by the times it has seen. */
static void retention(struct stats_worker *w)
{
	int64_t until_ms = clock_mono_ms() + RETENTION_MS;
	int r;
	do {
		r = w->config.sink->ops->retention(w->config.sink, clock_real_ms());
	} while (r > 0 && clock_mono_ms() < until_ms);
	if (r < 0)
		log_warn("stats", "retention of statistics failed, retrying later: error=%s", err_name(r));
	if (r <= 0)
		w->retention_due_ms = clock_mono_ms() + RETENTION_EVERY_MS;
}

static void worker_maintain(void *ctx, bool caught_up)
{
	struct stats_worker *w = ctx;
	int64_t now_ms = clock_mono_ms();
	if (!w->config.sink->ops->totals) {
		clicks_maintain(w->clicks);
	} else if (now_ms >= w->totals_due_ms) {
		totals_flush(w, now_ms + TOTALS_MS);
		if (w->clicks)
			clicks_trim(w->clicks);
		w->totals_due_ms = now_ms + (int64_t)totals_ms(&w->config);
	}
	if (caught_up && now_ms >= w->retention_due_ms)
		retention(w);
}

static void worker_finish(void *ctx)
{
	struct stats_worker *w = ctx;
	if (!w->config.sink->ops->totals)
		clicks_finish(w->clicks);
	else
		totals_flush(w, clock_mono_ms() + TOTALS_MS);
}

static const struct batch_handler handler = {
    .begin = worker_begin,
    .is_full = worker_is_full,
    .add = worker_add,
    .commit = worker_commit,
    .maintain = worker_maintain,
    .finish = worker_finish,
};

/* Starting and stopping */

static int clicks_make(struct stats_worker *w)
{
	const struct clicks_config config = {
	    .sink = w->config.sink,
	    .counters = w->config.counters,
	    .store = w->config.sink->ops->totals ? NULL : w->config.store,
	    .node = w->config.node,
	    .flush_ms = totals_ms(&w->config),
	    .dirty_links = w->config.dirty_links,
	    .metrics = w->metrics,
	};
	return config.counters || config.store ? clicks_new(&config, &w->clicks) : 0;
}

static int parts_make(struct stats_worker *w, struct err *e)
{
	const struct stats_settings *s = w->config.settings;
	int r = agents_new(AGENTS_MAX, &w->agents, e);
	if (r == 0 && s->places[0])
		r = places_open(s->places, &w->places, e);
	if (r == 0)
		r = dead_letters_new(w->config.folder, &w->dead_letters, e);
	if (r < 0)
		return r;
	struct batch_config config = {
	    .events_max = s->batch,
	    .dedup_key = s->dedup_key,
	    .seen_ms = w->config.seen_ms,
	    .keeps_in_doubt = w->config.sink->ops->find_duplicates != NULL,
	    .agents = w->agents,
	    .places = w->places,
	    .dead_letters = w->dead_letters,
	};
	memcpy(config.dedup_secret, w->config.dedup_secret, sizeof(config.dedup_secret));
	if (batch_new(&config, &w->batch) < 0 || dedup_new(w->config.sink, w->config.seen, &w->dedup) < 0 ||
	    clicks_make(w) < 0)
		return err_set(e, ERR_NOMEM, "out of memory for the stats worker");
	return 0;
}

int stats_worker_start(const struct stats_worker_config *config, struct stats_worker **ret, struct err *e)
{
	struct stats_worker *w = calloc(1, sizeof(*w));
	if (!w || !(w->metrics = metrics_register())) {
		free(w);
		return err_set(e, ERR_NOMEM, "out of memory for the stats worker");
	}
	w->config = *config;
	w->totals_due_ms = clock_mono_ms() + (int64_t)totals_ms(config);
	const struct queue_consumer_config consumer_config = {
	    .name = "stats",
	    .refuses = "the sink does not take events",
	    .queue = config->queue,
	    .handler = &handler,
	    .ctx = w,
	    .interval_ms = config->settings->interval_ms,
	    .idle_ms = IDLE_COMMIT_MS,
	};
	int r = parts_make(w, e) ?: queue_consumer_start(&consumer_config, &w->consumer, e);
	if (r < 0) {
		stats_worker_stop(w);
		return r;
	}
	*ret = w;
	return 0;
}

struct queue_consumer *stats_worker_consumer(struct stats_worker *w)
{
	return w->consumer;
}

void stats_worker_stop(struct stats_worker *w)
{
	if (!w)
		return;
	queue_consumer_stop(w->consumer);
	batch_free(w->batch);
	dedup_free(w->dedup);
	clicks_free(w->clicks);
	dead_letters_free(w->dead_letters);
	places_close(w->places);
	agents_free(w->agents);
	free(w);
}
