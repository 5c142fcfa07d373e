#include "stats/clicks.h"

#include "base/grow.h"
#include "obs/log.h"
#include "os/clock.h"
#include "stats/dirty_links.h"
#include "stats/link_set.h"

#include <stdlib.h>

enum {
	SLICE_MS = 200,      /* of a flush, between two batches */
	FINISH_MS = 3000,    /* of the last flush */
	RETRY_MS = 10000,    /* after a failed flush */
	CREDIT_US = 1000000, /* for queries to the sink; refilled at a tenth of real time */
	LINKS_MAX = 1 << 20, /* dirty links that start a flush at once */
	STEP_MAX = STORE_COUNTS_MAX,
};
_Static_assert((int)STEP_MAX <= (int)SINK_CLICKS_MAX, "one query to the sink covers one write to the store");

struct click_stream {
	uint64_t number;
	uint64_t reach;           /* how far the sink may have read it */
	uint64_t at;              /* where the last batch ended */
	struct link_set batch;    /* clicks of this batch */
	struct link_set dirty;    /* clicked since the last flush began */
	struct link_set flushing; /* of the flush under way */
	size_t flushed;           /* how many of those are done */
	bool is_complete;         /* no dirty links of another worker can be missing */
	uint64_t cursor;          /* of find_dirty */
};

struct clicks {
	struct clicks_config config;
	struct dirty_links *dirty_links; /* NULL: none */
	uint64_t source;
	struct click_stream *streams;
	size_t count, cap;
	size_t last; /* index of the stream found last */
	bool is_flushing;
	int64_t due_ms; /* monotonic: when to start or continue a flush */
	int64_t credit_us, credited_us;
};

static struct click_stream *stream_of(struct clicks *c, uint64_t number);

/* Takes over the dirty links of the previous process. */
static int dirty_load(struct clicks *c)
{
	if (c->config.counters || !c->config.store || !c->config.dirty_links)
		return 0;
	struct click_stream *s = stream_of(c, 0);
	if (!s || dirty_links_open(c->config.dirty_links, &c->dirty_links) < 0)
		return ERR_NOMEM;
	const struct link_set *left = dirty_links_get(c->dirty_links);
	for (size_t i = 0; i < left->count; i++)
		link_set_add(&s->dirty, left->all[i].link, 0);
	return 0;
}

int clicks_new(const struct clicks_config *config, struct clicks **ret)
{
	struct clicks *c = calloc(1, sizeof(*c));
	if (!c)
		return ERR_NOMEM;
	c->config = *config;
	c->due_ms = clock_mono_ms() + (int64_t)config->flush_ms;
	c->credit_us = CREDIT_US;
	c->credited_us = clock_mono_ns() / 1000;
	int r = dirty_load(c);
	if (r < 0)
		clicks_free(c);
	else
		*ret = c;
	return r;
}

void clicks_free(struct clicks *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->count; i++) {
		link_set_release(&c->streams[i].batch);
		link_set_release(&c->streams[i].dirty);
		link_set_release(&c->streams[i].flushing);
	}
	free(c->streams);
	dirty_links_free(c->dirty_links);
	free(c);
}

/* Streams */

static struct click_stream *stream_find(struct clicks *c, uint64_t number)
{
	if (c->last < c->count && c->streams[c->last].number == number)
		return &c->streams[c->last];
	for (c->last = 0; c->last < c->count; c->last++)
		if (c->streams[c->last].number == number)
			return &c->streams[c->last];
	return NULL;
}

/* NULL when memory ran out: its clicks are not published. */
static struct click_stream *stream_of(struct clicks *c, uint64_t number)
{
	struct click_stream *s = stream_find(c, number);
	if (s)
		return s;
	if (!ARRAY_ROOM(c->streams, c->cap, c->count + 1))
		return NULL;
	s = &c->streams[c->count++];
	*s = (struct click_stream){.number = number, .is_complete = !c->config.counters};
	return s;
}

/* Queries to the sink */

static bool may_query(struct clicks *c)
{
	int64_t now_us = clock_mono_ns() / 1000;
	c->credit_us = MIN(c->credit_us + (now_us - c->credited_us) / 10, (int64_t)CREDIT_US);
	c->credited_us = now_us;
	return c->credit_us > 0;
}

/* Sets the clicks of those of at most STEP_MAX links that are missing. */
static int query_sink(struct clicks *c, struct counter *links, size_t count)
{
	struct sink_total totals[STEP_MAX];
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		if (links[i].is_missing)
			totals[n++] = (struct sink_total){.link = links[i].link};
	}
	if (n == 0)
		return 0;
	int64_t start_us = clock_mono_ns() / 1000;
	int r = c->config.sink->ops->clicks(c->config.sink, totals, n);
	c->credit_us -= clock_mono_ns() / 1000 - start_us;
	n = 0;
	for (size_t i = 0; r == 0 && i < count; i++)
		if (links[i].is_missing)
			links[i].clicks = totals[n++].clicks;
	return r;
}

/* Counting */

static bool is_click(const struct sink_batch *b, const struct sink_visit *v)
{
	return b->sets[v->set].kind == VISIT_CLICK;
}

void clicks_announce(struct clicks *c, const struct sink_batch *b)
{
	if (c->dirty_links) {
		for (size_t i = 0; i < b->visit_count; i++)
			if (is_click(b, &b->visits[i]))
				dirty_links_note(c->dirty_links, b->visits[i].link);
		dirty_links_save(c->dirty_links);
	}
	if (!c->config.counters || c->config.sink->ops->resume || b->advance_count == 0)
		return;
	for (size_t i = 0; i < b->visit_count; i++)
		stream_of(c, b->visits[i].stream);
	struct advance *steps = calloc(b->advance_count, sizeof(*steps));
	if (!steps)
		return;
	/* Only streams with visits: all that were seen so far. */
	size_t n = 0;
	for (size_t i = 0; i < b->advance_count; i++)
		if (stream_find(c, b->advances[i].stream))
			steps[n++] = b->advances[i];
	for (size_t i = 0; i < n; i++) {
		struct click_stream *s = stream_find(c, steps[i].stream);
		s->reach = MAX(s->reach, steps[i].to);
	}
	c->config.counters->ops->announce(c->config.counters, b->source, steps, n);
	free(steps);
}

/* Gives the counters the totals that they miss, while there is time for it. */
static void put_missing(struct clicks *c, const struct counters_step *step)
{
	struct counter missing[STEP_MAX];
	struct counters_step part = {.source = step->source, .at = step->at, .links = missing};
	for (size_t i = 0; i < step->count && may_query(c);) {
		for (part.count = 0; i < step->count && part.count < STEP_MAX; i++)
			if (step->links[i].is_missing)
				missing[part.count++] = step->links[i];
		if (query_sink(c, missing, part.count) < 0)
			return;
		c->config.counters->ops->put(c->config.counters, &part);
	}
}

static void count_step(struct clicks *c, struct click_stream *s, const struct advance *at)
{
	struct counters_step step = {.source = c->source,
	                             .at = *at,
	                             .reach = s->reach,
	                             .links = s->batch.all,
	                             .count = s->batch.count};
	uint64_t clicks = 0;
	for (size_t i = 0; i < step.count; i++)
		clicks += step.links[i].clicks;
	c->config.counters->ops->add(c->config.counters, &step);
	s->at = at->to;
	if (step.fate != COUNTERS_ADDED)
		s->is_complete = false; /* another worker may have read the stream */
	if (step.fate == COUNTERS_ADDED)
		metric_add(&c->config.metrics->counters_clicks, clicks);
	else if (step.fate == COUNTERS_ANEW)
		metric_add(&c->config.metrics->counters_rebuilds, 1);
	put_missing(c, &step);
}

static size_t dirty_count(const struct clicks *c)
{
	size_t n = 0;
	for (size_t i = 0; i < c->count; i++)
		n += c->streams[i].dirty.count;
	return n;
}

void clicks_count(struct clicks *c, const struct sink_batch *b)
{
	c->source = b->source;
	for (size_t i = 0; i < b->visit_count; i++) {
		const struct sink_visit *v = &b->visits[i];
		/* Without counters, streams need not be kept apart. */
		struct click_stream *s = stream_of(c, c->config.counters ? v->stream : 0);
		if (s && is_click(b, v))
			link_set_add(&s->batch, v->link, 1);
	}
	for (size_t i = 0; c->config.counters && i < b->advance_count; i++) {
		struct click_stream *s = stream_find(c, b->advances[i].stream);
		if (s)
			count_step(c, s, &b->advances[i]);
	}
	for (size_t i = 0; i < c->count; i++) {
		/* If flushes fail for so long that the links are too many, the set is dropped: the counters
		 * still have their dirty links. Without counters nothing else has them, so the set grows. */
		struct click_stream *s = &c->streams[i];
		for (size_t k = 0; c->config.store && k < s->batch.count; k++)
			link_set_add(&s->dirty, s->batch.all[k].link, 0);
		link_set_reset(&s->batch);
		if (dirty_count(c) < LINKS_MAX)
			continue;
		if (!c->is_flushing) {
			c->due_ms = clock_mono_ms();
		} else if (c->config.counters) {
			s->is_complete = false;
			link_set_release(&s->dirty);
		}
	}
}

/* Flushing to the store */

static void add_flushing(void *ctx, uint64_t link)
{
	struct click_stream *s = ctx;
	link_set_add(&s->flushing, link, 0);
}

/* Finds the dirty links of other workers in the counters. If those fail, the next flush tries again. */
static void find_dirty(struct clicks *c, struct click_stream *s, int64_t until_ms)
{
	struct counters *counters = c->config.counters;
	while (!s->is_complete && clock_mono_ms() < until_ms) {
		if (counters->ops->dirty_links(counters, c->source, s->number, &s->cursor, add_flushing, s) <
		    0)
			return;
		s->is_complete = s->cursor == 0;
	}
}

/* While there is time, all totals come from the sink, which also corrects the counters: they may have added a
 * repeated event twice. Otherwise they come from the counters. False: the counters do not have them all. */
static bool totals_from_counters(struct clicks *c, struct counters_step *step, bool is_last)
{
	bool is_known = true;
	for (size_t i = 0; i < step->count; i++)
		step->links[i].is_missing = true;
	if (is_last || may_query(c))
		return true;
	if (c->config.counters)
		c->config.counters->ops->read(c->config.counters, step);
	for (size_t i = 0; i < step->count; i++)
		is_known &= !step->links[i].is_missing;
	return is_known;
}

/* Flushes the next links. 1; 0: there is no time. */
static int flush_some(struct clicks *c, struct click_stream *s, bool is_last)
{
	struct store_count counts[STEP_MAX];
	size_t n = MIN(s->flushing.count - s->flushed, (size_t)STEP_MAX);
	struct counters_step step = {.source = c->source,
	                             .at = {.stream = s->number, .to = s->at},
	                             .links = s->flushing.all + s->flushed,
	                             .count = n};
	if (!totals_from_counters(c, &step, is_last))
		return 0;
	int r = query_sink(c, step.links, n);
	for (size_t i = 0; r == 0 && i < n; i++)
		counts[i] = (struct store_count){step.links[i].link, step.links[i].clicks};
	if (r == 0)
		r = store_set_clicks(c->config.store, c->config.node, counts, n);
	if (r < 0)
		return r;
	if (c->config.counters) {
		if (s->reach <= s->at) /* otherwise the sink's totals include later batches */
			c->config.counters->ops->put(c->config.counters, &step);
		c->config.counters->ops->updated(c->config.counters, &step);
	}
	metric_add(&c->config.metrics->counters_updates, n);
	s->flushed += n;
	return 1;
}

static void trim(struct clicks *c, const struct click_stream *s)
{
	if (c->config.counters)
		c->config.counters->ops->trim(c->config.counters, c->source, s->number);
}

/* 1: the stream is flushed; 0: there is no time. */
static int flush_stream(struct clicks *c, struct click_stream *s, int64_t until_ms, bool is_last)
{
	find_dirty(c, s, until_ms);
	while (s->flushed < s->flushing.count) {
		int r = clock_mono_ms() < until_ms ? flush_some(c, s, is_last) : 0;
		if (r <= 0)
			return r;
	}
	link_set_release(&s->flushing);
	s->flushed = 0;
	if (s->is_complete)
		trim(c, s);
	return 1;
}

static void flush_begin(struct clicks *c)
{
	if (c->is_flushing)
		return;
	for (size_t i = 0; i < c->count; i++) {
		struct click_stream *s = &c->streams[i];
		s->flushing = s->dirty;
		s->dirty = (struct link_set){0};
	}
	c->is_flushing = true;
}

/* Continues the flush, and sets when it is due again. */
static int flush(struct clicks *c, int64_t until_ms, bool is_last)
{
	int r = 1;
	for (size_t i = 0; r > 0 && i < c->count; i++)
		r = flush_stream(c, &c->streams[i], until_ms, is_last);
	int64_t now_ms = clock_mono_ms();
	if (r < 0) {
		log_warn("stats", "cannot flush click totals to the link store, retrying later: error=%s",
		         err_name(r));
		c->due_ms = now_ms + RETRY_MS;
	} else {
		c->is_flushing = r == 0;
		if (r > 0 && c->dirty_links)
			dirty_links_keep(c->dirty_links, &stream_of(c, 0)->dirty);
		c->due_ms = r == 0 ? now_ms : now_ms + (int64_t)c->config.flush_ms;
	}
	return r;
}

void clicks_maintain(struct clicks *c)
{
	int64_t now_ms = clock_mono_ms();
	if (now_ms < c->due_ms)
		return;
	flush_begin(c);
	flush(c, now_ms + SLICE_MS, false);
}

void clicks_finish(struct clicks *c)
{
	int64_t until_ms = clock_mono_ms() + FINISH_MS;
	for (int round = 0; round < 2; round++) { /* the flush under way, and one of the rest */
		flush_begin(c);
		if (flush(c, until_ms, true) <= 0)
			return;
	}
}

void clicks_trim(struct clicks *c)
{
	for (size_t i = 0; i < c->count; i++)
		trim(c, &c->streams[i]);
}
