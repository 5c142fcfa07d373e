#include "stats/worker.h"

#include "obs/log.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/thread.h"
#include "stats/batch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
	AGENTS_MAX = 16384,
	RETRY_MS = 1000,
	TIDY_EVERY_MS = 10000,
	TIDY_MS = 50, /* at a time: clicks should show within a second */
	IDLE_COMMIT_MS = 30 * 60 *
	                 1000, /* the sink drops what is past its time by the time of the last commit */
	TOTALS_MS = 1000,      /* likewise; what is left is flushed the next time */
	NICE = 5,              /* visitors come first */
	LAST_READ_MS = 2000,   /* how long a stopping worker goes on reading */
	TOTALS_MAX = STORE_COUNTS_MAX,
};

static const char *const dedup_names[] = {"id", "tuple", NULL};

#define FIELD(f) offsetof(struct stats_settings, f)

const struct conf_row stats_rows[] = {
    {.section = "worker",
     .name = "batch",
     .type = CONF_UINT,
     .offset = FIELD(batch),
     .def = "65536",
     .min = 1,
     .max = 1 << 20,
     .help = "Most events that are analysed and committed together."},
    {.section = "worker",
     .name = "interval_ms",
     .type = CONF_UINT,
     .offset = FIELD(interval_ms),
     .def = "250",
     .min = 1,
     .max = 60000,
     .help = "How long events wait for others to be committed with, in milliseconds."},
    {.section = "worker",
     .name = "dedup_key",
     .type = CONF_ENUM,
     .offset = FIELD(dedup_key),
     .def = "id",
     .choices = dedup_names,
     .help = "What makes an impression the same as one before: its id alone, or id, ts, userId and adId "
             "together."},
    {.section = "worker",
     .name = "totals_time",
     .type = CONF_DURATION,
     .offset = FIELD(totals_ms),
     .def = "30s",
     .min = 10,
     .max = 24ULL * 3600 * 1000,
     .help = "How often the click totals of links are written to the link store."},
    {.section = "worker",
     .name = "places",
     .type = CONF_STRING,
     .offset = FIELD(places),
     .def = "",
     .help = "A MaxMind database (.mmdb) that tells country, region and city of an address; empty is none."},
};
const size_t stats_row_count = ARRAY_LEN(stats_rows);

/* A segment that is being read, or was. */
struct source {
	uint64_t segment;
	uint64_t committed; /* how far the sink has it; 0: nothing */
	uint64_t end;       /* as the log last said */
	uint64_t cut;       /* where it ended when the last cut was made */
	bool finished;
	bool unreadable; /* until the next start */
	int64_t modified_ms;
	struct event_reader reader;
	struct batch_segment *strings;
};

struct stats_worker {
	struct stats_worker_config config;
	struct metrics *metrics;
	struct agents *agents;
	struct places *places;
	struct dead_letters *dead_letters;
	struct batch *batch;
	struct source *sources;
	size_t source_count, source_cap;
	size_t first;     /* whose turn it is to be read first */
	bool read_failed; /* in this round, of some segment */
	struct sink_position *positions;
	int64_t totals_due_ms, tidy_due_ms, remove_due_ms, committed_ms; /* monotonic */

	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	bool stopping;
	struct err trouble; /* empty: none */
	/* Whoever wants the sink to catch up gets the next number. A cut says where all segments ended; it is
	 * for all numbers that were given out before. There is one at a time. */
	uint64_t asked;        /* the last number given out */
	uint64_t cut_for;      /* the last that the last cut is for; changed by the worker alone */
	uint64_t caught_up;    /* likewise, of the last cut that the sink has */
	unsigned waiting;      /* threads in stats_worker_catch_up */
	bool let_go;           /* nobody may wait any more */
	pthread_cond_t caught; /* caught_up, stopping or waiting has changed */
};

/* Waiting */

/* Sleeps, or until the end is asked for; when `hurry`, also until somebody wants the sink to catch up. */
static bool wait_ms(struct stats_worker *w, uint64_t ms, bool hurry)
{
	struct timespec at = clock_mono_after(ms);
	pthread_mutex_lock(&w->lock);
	while (!w->stopping && !(hurry && w->asked > w->cut_for) &&
	       pthread_cond_timedwait(&w->wake, &w->lock, &at) != ETIMEDOUT)
		;
	bool stopping = w->stopping;
	pthread_mutex_unlock(&w->lock);
	return stopping;
}

static bool is_stopping(struct stats_worker *w)
{
	pthread_mutex_lock(&w->lock);
	bool stopping = w->stopping;
	pthread_mutex_unlock(&w->lock);
	return stopping;
}

static void set_trouble(struct stats_worker *w, const char *what, int r)
{
	pthread_mutex_lock(&w->lock);
	bool was_well = w->trouble.text[0] == '\0';
	if (r < 0)
		err_set(&w->trouble, r, "%s (%s); events wait in the log meanwhile", what, err_name(r));
	else
		w->trouble.text[0] = '\0';
	pthread_mutex_unlock(&w->lock);
	if (r < 0 && was_well)
		log_error("stats", "%s (%s); events wait in the log meanwhile", what, err_name(r));
	else if (r == 0 && !was_well)
		log_info("stats", "events are analysed again");
}

int stats_worker_trouble(struct stats_worker *w, struct err *e)
{
	pthread_mutex_lock(&w->lock);
	int r = w->trouble.text[0] ? err_set(e, ERR_UNAVAILABLE, "%s", w->trouble.text) : 0;
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* Sources */

/* The first source whose number is not below; sources are sorted. */
static size_t source_place(const struct stats_worker *w, uint64_t segment)
{
	size_t low = 0, high = w->source_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (w->sources[middle].segment < segment)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct source *source_find(struct stats_worker *w, uint64_t segment)
{
	size_t i = source_place(w, segment);
	return i < w->source_count && w->sources[i].segment == segment ? &w->sources[i] : NULL;
}

static struct source *source_add(struct stats_worker *w, uint64_t segment)
{
	if (w->source_count == w->source_cap) {
		size_t cap = MAX(2 * w->source_cap, (size_t)16);
		struct source *more = reallocarray(w->sources, cap, sizeof(*more));
		if (more)
			w->sources = more;
		struct sink_position *positions = reallocarray(w->positions, cap, sizeof(*positions));
		if (positions)
			w->positions = positions;
		if (!more || !positions)
			return NULL;
		w->source_cap = cap;
	}
	struct source *s = &w->sources[source_place(w, segment)];
	memmove(s + 1, s, (size_t)(w->sources + w->source_count - s) * sizeof(*s));
	w->source_count++;
	*s = (struct source){.segment = segment, .reader.fd = -1};
	return s;
}

static void source_close(struct source *s)
{
	event_reader_close(&s->reader);
	batch_segment_free(s->strings);
	s->strings = NULL;
}

/* Bytes that will not be read do not wait in the spool. */
static void source_lose(struct stats_worker *w, uint64_t bytes)
{
	metric_add(&w->metrics->events_unreadable_bytes, bytes);
	event_log_consumed(w->config.log, bytes);
}

/* Asks the log how far its segments are written. */
static int sources_refresh(struct stats_worker *w)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct event_segment_state *states;
	size_t count;
	int r = event_log_segments(w->config.log, &arena, &states, &count);
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct source *s = source_find(w, states[i].segment);
		if (!s)
			s = source_add(w, states[i].segment);
		if (!s)
			return ERR_NOMEM;
		if (s->unreadable)
			source_lose(w, states[i].end - s->end);
		s->end = states[i].end;
		s->finished = states[i].finished;
		s->modified_ms = states[i].modified_ms;
	}
	return r;
}

static uint64_t unread_from(const struct source *s)
{
	return MAX(s->committed, (uint64_t)EVENT_HEADER_BYTES);
}

static uint64_t read_to(const struct source *s)
{
	return s->strings ? s->reader.position : unread_from(s);
}

/* What cannot be read is left as it is: nothing behind damage is trusted. */
static void source_give_up(struct stats_worker *w, struct source *s, const char *why)
{
	log_error("stats",
	          "segment %016llx of the event log cannot be read at byte %llu: %s; its last %llu bytes are "
	          "lost ('curt verify' tells more)",
	          (unsigned long long)s->segment, (unsigned long long)unread_from(s), why,
	          (unsigned long long)(s->end - unread_from(s)));
	source_lose(w, s->end - unread_from(s));
	s->unreadable = true;
	source_close(s);
}

static int source_open(struct stats_worker *w, struct source *s)
{
	struct err e;
	if (s->strings)
		return 0;
	int r = event_reader_open(&s->reader, event_log_path(w->config.log), s->segment, s->committed, &e);
	if (r == 0 && !(s->strings = batch_segment_new())) {
		event_reader_close(&s->reader);
		r = ERR_NOMEM;
	}
	return r;
}

/* Reads records of one segment into the batch. */
static int source_read(struct stats_worker *w, struct source *s)
{
	struct event ev;
	if (s->unreadable || unread_from(s) >= s->end)
		return 0;
	int r = source_open(w, s);
	uint64_t start = s->reader.position;
	while (r == 0 && !batch_is_full(w->batch)) {
		uint64_t before = s->reader.position;
		int got = event_reader_next(&s->reader, s->end, &ev);
		if (got <= 0) {
			r = got;
			break;
		}
		r = batch_add(w->batch, &s->reader, s->strings, &ev);
		if (r < 0)
			s->reader.position = before;
	}
	/* What was read before the bad place is committed first; then we come here again with nothing read.
	 */
	if (r < 0 && s->reader.position > start)
		return 0;
	if (r == ERR_NOT_FOUND)
		source_give_up(w, s, "it is gone");
	else if (r == ERR_CORRUPT)
		source_give_up(w, s,
		               s->strings ? event_fault_text(s->reader.fault) : "its header is not valid");
	w->read_failed |= r == ERR_UNAVAILABLE; /* tried again; the other segments go on meanwhile */
	return r == ERR_NOMEM ? r : 0;
}

static size_t positions_collect(struct stats_worker *w)
{
	size_t n = 0;
	for (size_t i = 0; i < w->source_count; i++) {
		const struct source *s = &w->sources[i];
		if (s->strings && s->reader.position > unread_from(s))
			w->positions[n++] = (struct sink_position){s->segment, s->reader.position};
	}
	return n;
}

static void positions_settle(struct stats_worker *w)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < w->source_count; i++) {
		struct source *s = &w->sources[i];
		if (!s->strings)
			continue;
		if (s->reader.position > unread_from(s)) {
			bytes += s->reader.position - unread_from(s);
			s->committed = s->reader.position;
		}
		if (s->finished && s->committed >= s->end)
			source_close(s);
	}
	event_log_consumed(w->config.log, bytes);
}

/* Catching up */

/* The last number given out; what was written before it was is found by a refresh that begins now. */
static uint64_t asked_now(struct stats_worker *w)
{
	pthread_mutex_lock(&w->lock);
	uint64_t asked = w->asked;
	pthread_mutex_unlock(&w->lock);
	return asked;
}

/* After a refresh that began when `asked` was the last number. Those who come while a cut is not reached wait
 * for the next one: a cut that moves might never be. */
static void cut_make(struct stats_worker *w, uint64_t asked)
{
	if (w->cut_for > w->caught_up || asked == w->cut_for)
		return;
	for (size_t i = 0; i < w->source_count; i++)
		w->sources[i].cut = w->sources[i].end;
	pthread_mutex_lock(&w->lock);
	w->cut_for = asked;
	pthread_mutex_unlock(&w->lock);
}

/* Tells those who wait for the cut, if the sink has all that is before it. */
static void cut_settle(struct stats_worker *w)
{
	if (w->cut_for == w->caught_up)
		return;
	for (size_t i = 0; i < w->source_count; i++) {
		const struct source *s = &w->sources[i];
		if (!s->unreadable && unread_from(s) < s->cut)
			return;
	}
	pthread_mutex_lock(&w->lock);
	w->caught_up = w->cut_for;
	pthread_cond_broadcast(&w->caught);
	pthread_mutex_unlock(&w->lock);
}

int stats_worker_catch_up(struct stats_worker *w, uint64_t timeout_ms)
{
	struct timespec at = clock_mono_after(timeout_ms);
	pthread_mutex_lock(&w->lock);
	uint64_t number = ++w->asked;
	w->waiting++;
	pthread_cond_signal(&w->wake);
	while (!w->stopping && !w->let_go && w->caught_up < number &&
	       pthread_cond_timedwait(&w->caught, &w->lock, &at) != ETIMEDOUT)
		;
	int r = w->caught_up >= number ? 0 : ERR_UNAVAILABLE;
	if (--w->waiting == 0)
		pthread_cond_broadcast(&w->caught); /* pairs with waiters_leave */
	pthread_mutex_unlock(&w->lock);
	return r;
}

void stats_worker_let_go(struct stats_worker *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->let_go = true;
	pthread_cond_broadcast(&w->caught);
	pthread_mutex_unlock(&w->lock);
}

static void waiters_leave(struct stats_worker *w)
{
	pthread_mutex_lock(&w->lock);
	while (w->waiting > 0)
		pthread_cond_wait(&w->caught, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

/* Batches */

/* A writer's segments are read one after the other: an open one is a descriptor. */
static bool is_its_turn(const struct stats_worker *w, size_t i)
{
	const struct source *s = &w->sources[i], *before = s - 1;
	if (i == 0 || before->segment >> 24 != s->segment >> 24 || before->unreadable)
		return true;
	return before->finished && read_to(before) >= before->end;
}

static bool is_behind(const struct stats_worker *w)
{
	for (size_t i = 0; i < w->source_count; i++) {
		if (!w->sources[i].unreadable && read_to(&w->sources[i]) < w->sources[i].end)
			return true;
	}
	return false;
}

/* Fills the batch from all segments in turn. */
static int batch_gather(struct stats_worker *w)
{
	uint64_t asked = asked_now(w);
	int r = sources_refresh(w);
	if (r == 0)
		cut_make(w, asked);
	w->read_failed = false;
	batch_begin(w->batch, clock_real_ms());
	for (size_t i = 0; r == 0 && i < w->source_count && !batch_is_full(w->batch); i++) {
		size_t next = (w->first + i) % w->source_count;
		if (is_its_turn(w, next))
			r = source_read(w, &w->sources[next]);
	}
	w->first++;
	return r;
}

static void count_batch(struct stats_worker *w, const struct sink_batch *b, uint64_t duplicates)
{
	struct metrics *m = w->metrics;
	metric_add(&m->stats_batches, 1);
	metric_add(&m->stats_visits, b->visit_count);
	metric_add(&m->stats_impressions, b->impression_count - duplicates);
	metric_add(&m->stats_duplicates, b->tally.duplicates + duplicates);
	metric_add(&m->stats_unusable, b->tally.unusable_clicks + b->tally.unusable_impressions);
}

static void publish(struct stats_worker *w, const struct sink_batch *b, uint64_t duplicates)
{
	struct stats_news news = {.batch = b, .duplicates = duplicates};
	news.recent = batch_recent(w->batch, &news.recent_count);
	if (w->config.publish)
		w->config.publish(w->config.ctx, &news);
}

/* Commits what was gathered; tries until it works or the end is asked for. False: not committed. */
static bool batch_commit(struct stats_worker *w, struct sink_batch *b)
{
	for (;;) {
		uint64_t duplicates = 0;
		int64_t start_ns = clock_mono_ns();
		int r = w->config.sink->ops->commit(w->config.sink, b, &duplicates);
		set_trouble(w, "the sink does not take events", r);
		if (r == 0) {
			w->committed_ms = clock_mono_ms();
			histogram_record(&w->metrics->stats_commit_us,
			                 (uint64_t)(clock_mono_ns() - start_ns) / 1000);
			positions_settle(w);
			count_batch(w, b, duplicates);
			publish(w, b, duplicates);
			return true;
		}
		metric_add(&w->metrics->stats_failures, 1);
		if (wait_ms(w, RETRY_MS, false))
			return false;
	}
}

/* Nothing was committed: reading begins again where the sink stands. */
static int round_failed(struct stats_worker *w, int r)
{
	for (size_t i = 0; i < w->source_count; i++)
		source_close(&w->sources[i]);
	return r;
}

/* One round. >0: there may be more at once; 0: caught up; <0: something failed. */
static int round_run(struct stats_worker *w)
{
	int r = batch_gather(w);
	if (r < 0) {
		set_trouble(w, "the event log cannot be read", r);
		return round_failed(w, r);
	}
	struct sink_batch b = *batch_result(w->batch);
	b.positions = w->positions;
	b.position_count = positions_collect(w);
	bool was_full = batch_is_full(w->batch), behind = is_behind(w);
	bool idle_long = clock_mono_ms() - w->committed_ms >= IDLE_COMMIT_MS;
	if ((b.position_count > 0 || idle_long) && !batch_commit(w, &b))
		return round_failed(w, ERR_UNAVAILABLE);
	if (w->read_failed)
		set_trouble(w, "a segment of the event log cannot be read", ERR_UNAVAILABLE);
	if (w->read_failed && !was_full)
		return ERR_UNAVAILABLE;
	return behind ? 1 : 0;
}

/* Chores */

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
			r = store_set_clicks(w->config.store, event_log_node(w->config.log), counts, n);
		if (r == 0)
			r = sink->ops->totals_flushed(sink, totals, n);
		if (r < 0) {
			log_warn(
			    "stats",
			    "click totals could not be written to the link store (%s); tried again later",
			    err_name(r));
			return;
		}
		if (n < TOTALS_MAX)
			return;
	}
}

/* One that cannot be read is not: it stays for people to look at. */
static bool is_done(const struct source *s)
{
	return s->finished && !s->strings && !s->unreadable && s->committed >= s->end;
}

/* Removes segments that are done with and past their time, or beyond what is kept of them; the oldest first.
 */
static void segments_remove(struct stats_worker *w)
{
	uint64_t kept_bytes = 0;
	bool settled = false;
	int64_t now_ms = clock_real_ms();
	for (size_t i = w->source_count; i-- > 0;) {
		struct source *s = &w->sources[i];
		if (!is_done(s))
			continue;
		kept_bytes += s->end;
		bool old = now_ms - s->modified_ms >= (int64_t)w->config.events->keep_ms;
		if (!old && kept_bytes <= w->config.events->keep_bytes)
			continue;
		struct sink *sink = w->config.sink;
		if (!settled && sink->ops->settle(sink) < 0)
			return;
		settled = true;
		if (event_log_remove(w->config.log, s->segment) < 0)
			continue;
		sink->ops->forget(sink, &s->segment, 1);
		metric_add(&w->metrics->events_segments_removed, 1);
		memmove(s, s + 1, (w->source_count - i - 1) * sizeof(*s));
		w->source_count--;
	}
}

/* Only when nothing old waits to be read: the sink forgets what it has seen by the times it knows. */
static void tidy(struct stats_worker *w)
{
	int64_t until_ms = clock_mono_ms() + TIDY_MS;
	int r;
	do {
		r = w->config.sink->ops->tidy(w->config.sink, clock_real_ms());
	} while (r > 0 && clock_mono_ms() < until_ms);
	if (r < 0)
		log_warn("stats", "old statistics could not be folded (%s); tried again later", err_name(r));
	if (r <= 0)
		w->tidy_due_ms = clock_mono_ms() + TIDY_EVERY_MS;
}

static void chores_run(struct stats_worker *w, bool caught_up)
{
	int64_t now_ms = clock_mono_ms();
	if (now_ms >= w->totals_due_ms) {
		totals_flush(w, now_ms + TOTALS_MS);
		w->totals_due_ms = now_ms + (int64_t)w->config.settings->totals_ms;
	}
	if (now_ms >= w->remove_due_ms) {
		segments_remove(w);
		w->remove_due_ms = now_ms + TIDY_EVERY_MS;
	}
	if (caught_up && now_ms >= w->tidy_due_ms)
		tidy(w);
}

static void *worker_thread(void *arg)
{
	struct stats_worker *w = arg;
	w->metrics = metrics_register();
	ASSERT(w->metrics);
	metric_add(&w->metrics->events_unreadable_bytes, event_log_damaged_bytes(w->config.log));
	thread_step_back(NICE);
	for (bool stopping = false; !stopping;) {
		int r = round_run(w);
		cut_settle(w);
		chores_run(w, r == 0);
		stopping = r > 0 ? is_stopping(w)
		                 : wait_ms(w, r < 0 ? RETRY_MS : w->config.settings->interval_ms, r == 0);
	}
	int64_t until_ms = clock_mono_ms() + LAST_READ_MS;
	while (clock_mono_ms() < until_ms && round_run(w) > 0)
		;
	totals_flush(w, clock_mono_ms() + TOTALS_MS);
	return NULL;
}

/* Starting and stopping */

static int positions_resume(struct stats_worker *w, struct err *e)
{
	struct arena CLEANUP(arena_release) arena = {0};
	struct sink_position *positions;
	size_t count;
	struct sink *sink = w->config.sink;
	int r = sources_refresh(w);
	if (r == 0)
		r = sink->ops->resume(sink, &arena, &positions, &count);
	for (size_t i = 0; r == 0 && i < count; i++) {
		/* A segment that is not there may come back (a folder that was not mounted): its position
		 * stays. */
		struct source *s = source_find(w, positions[i].segment);
		if (s)
			s->committed = positions[i].offset;
	}
	return r < 0 ? err_set(e, r, "cannot find out how far the event log was read (%s)", err_name(r)) : 0;
}

static int parts_make(struct stats_worker *w, struct err *e)
{
	const struct stats_settings *s = w->config.settings;
	int r = agents_new(AGENTS_MAX, &w->agents, e);
	if (r == 0 && s->places[0])
		r = places_open(s->places, &w->places, e);
	if (r == 0)
		r = dead_letters_new(event_log_path(w->config.log), event_log_node(w->config.log),
		                     &w->dead_letters, e);
	if (r < 0)
		return r;
	struct batch_config config = {
	    .events_max = s->batch,
	    .dedup_key = s->dedup_key,
	    .seen_ms = w->config.seen_ms,
	    .agents = w->agents,
	    .places = w->places,
	    .dead_letters = w->dead_letters,
	};
	memcpy(config.dedup_secret, w->config.dedup_secret, sizeof(config.dedup_secret));
	return batch_new(&config, &w->batch) < 0 ? err_set(e, ERR_NOMEM, "out of memory for the stats worker")
	                                         : 0;
}

int stats_worker_start(const struct stats_worker_config *config, struct stats_worker **ret, struct err *e)
{
	struct stats_worker *w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(e, ERR_NOMEM, "out of memory for the stats worker");
	w->config = *config;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_cond_init(&w->caught, &attr);
	pthread_condattr_destroy(&attr);
	w->committed_ms = clock_mono_ms();
	w->totals_due_ms = w->committed_ms + (int64_t)config->settings->totals_ms;
	int r = parts_make(w, e);
	if (r == 0)
		r = positions_resume(w, e);
	if (r == 0)
		r = thread_start(&w->thread, "stats", worker_thread, w, e);
	w->started = r == 0;
	if (r < 0) {
		stats_worker_stop(w);
		return r;
	}
	*ret = w;
	return 0;
}

void stats_worker_stop(struct stats_worker *w)
{
	if (!w)
		return;
	if (w->started) {
		pthread_mutex_lock(&w->lock);
		w->stopping = true;
		pthread_cond_signal(&w->wake);
		pthread_cond_broadcast(&w->caught);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
		waiters_leave(w);
	}
	for (size_t i = 0; i < w->source_count; i++)
		source_close(&w->sources[i]);
	free(w->sources);
	free(w->positions);
	batch_free(w->batch);
	dead_letters_free(w->dead_letters);
	places_close(w->places);
	agents_free(w->agents);
	pthread_cond_destroy(&w->wake);
	pthread_cond_destroy(&w->caught);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
