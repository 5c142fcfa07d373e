#include "stats/clicks.h"

#include "base/grow.h"
#include "obs/log.h"
#include "os/clock.h"
#include "stats/dirty_links.h"
#include "stats/link_set.h"

#include <stdlib.h>

enum {
	SLICE_MS = 200,      /* of telling the store, between two batches */
	FINISH_MS = 3000,    /* at the end */
	RETRY_MS = 10000,    /* after the store has failed */
	CREDIT_US = 1000000, /* of asking the sink; it grows by a tenth of the time that passes */
	LINKS_MAX = 1 << 20, /* that the store has not heard of: then it is told at once */
	STEP_MAX = STORE_COUNTS_MAX,
};
_Static_assert((int)STEP_MAX <= (int)SINK_CLICKS_MAX,
               "what the store takes at once, the sink can tell at once");

struct stream {
	uint64_t number;
	uint64_t reach;             /* how far in it the sink may be */
	uint64_t at;                /* where the last batch ended */
	struct link_set batch;      /* clicked in this batch, how often */
	struct link_set fresh;      /* clicked since the store was last told */
	struct link_set unreported; /* it is being told these, and was told: */
	size_t reported;
	bool is_searched; /* nobody else can have left links here that the store has not heard of */
	uint64_t cursor;  /* of the search */
};

struct clicks {
	struct clicks_config config;
	struct dirty_links *dirty_links; /* NULL: none */
	uint64_t source;
	struct stream *streams;
	size_t count, cap;
	size_t last; /* the stream that was looked for last */
	bool is_telling;
	int64_t due_ms; /* monotonic; when to tell the store, or to go on with it */
	int64_t credit_us, credited_us;
};

static struct stream *stream_of(struct clicks *c, uint64_t number);

/* Those that a process before this one has left. */
static int dirty_begin(struct clicks *c)
{
	if (c->config.counters || !c->config.store || !c->config.dirty_links)
		return 0;
	struct stream *s = stream_of(c, 0);
	if (!s || dirty_links_open(c->config.dirty_links, &c->dirty_links) < 0)
		return ERR_NOMEM;
	const struct link_set *left = dirty_links_get(c->dirty_links);
	for (size_t i = 0; i < left->count; i++)
		link_set_add(&s->fresh, left->all[i].link, 0);
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
	int r = dirty_begin(c);
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
		link_set_release(&c->streams[i].fresh);
		link_set_release(&c->streams[i].unreported);
	}
	free(c->streams);
	dirty_links_free(c->dirty_links);
	free(c);
}

/* Streams */

static struct stream *stream_find(struct clicks *c, uint64_t number)
{
	if (c->last < c->count && c->streams[c->last].number == number)
		return &c->streams[c->last];
	for (c->last = 0; c->last < c->count; c->last++) {
		if (c->streams[c->last].number == number)
			return &c->streams[c->last];
	}
	return NULL;
}

/* NULL when memory ran out: its clicks are a gap then. */
static struct stream *stream_of(struct clicks *c, uint64_t number)
{
	struct stream *s = stream_find(c, number);
	if (s)
		return s;
	if (!ARRAY_ROOM(c->streams, c->cap, c->count + 1))
		return NULL;
	s = &c->streams[c->count++];
	*s = (struct stream){.number = number, .is_searched = !c->config.counters};
	return s;
}

/* Asking the sink */

static bool may_ask(struct clicks *c)
{
	int64_t now_us = clock_mono_ns() / 1000;
	c->credit_us = MIN(c->credit_us + (now_us - c->credited_us) / 10, (int64_t)CREDIT_US);
	c->credited_us = now_us;
	return c->credit_us > 0;
}

/* Fills in the clicks of those that are missing among at most STEP_MAX links. */
static int ask_sink(struct clicks *c, struct counter *links, size_t count)
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
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (links[i].is_missing)
			links[i].clicks = totals[n++].clicks;
	}
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
		for (size_t i = 0; i < b->visit_count; i++) {
			if (is_click(b, &b->visits[i]))
				dirty_links_note(c->dirty_links, b->visits[i].link);
		}
		dirty_links_save(c->dirty_links);
	}
	if (!c->config.counters || c->config.sink->ops->resume || b->advance_count == 0)
		return;
	for (size_t i = 0; i < b->visit_count; i++)
		stream_of(c, b->visits[i].stream);
	struct advance *steps = calloc(b->advance_count, sizeof(*steps));
	if (!steps)
		return;
	/* The steps of streams that bring visits: all that were met until now. */
	size_t n = 0;
	for (size_t i = 0; i < b->advance_count; i++) {
		if (stream_find(c, b->advances[i].stream))
			steps[n++] = b->advances[i];
	}
	for (size_t i = 0; i < n; i++) {
		struct stream *s = stream_find(c, steps[i].stream);
		s->reach = MAX(s->reach, steps[i].to);
	}
	c->config.counters->ops->announce(c->config.counters, b->source, steps, n);
	free(steps);
}

/* Puts the totals in that are missing, while there is time for it. */
static void put_missing(struct clicks *c, const struct counters_step *step)
{
	struct counter missing[STEP_MAX];
	struct counters_step part = {.source = step->source, .at = step->at, .links = missing};
	for (size_t i = 0; i < step->count && may_ask(c);) {
		for (part.count = 0; i < step->count && part.count < STEP_MAX; i++) {
			if (step->links[i].is_missing)
				missing[part.count++] = step->links[i];
		}
		if (ask_sink(c, missing, part.count) < 0)
			return;
		c->config.counters->ops->put(c->config.counters, &part);
	}
}

static void count_step(struct clicks *c, struct stream *s, const struct advance *at)
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
		s->is_searched = false; /* perhaps somebody else was here */
	if (step.fate == COUNTERS_ADDED)
		metric_add(&c->config.metrics->counters_clicks, clicks);
	else if (step.fate == COUNTERS_ANEW)
		metric_add(&c->config.metrics->counters_rebuilds, 1);
	put_missing(c, &step);
}

static size_t fresh_count(const struct clicks *c)
{
	size_t n = 0;
	for (size_t i = 0; i < c->count; i++)
		n += c->streams[i].fresh.count;
	return n;
}

void clicks_count(struct clicks *c, const struct sink_batch *b)
{
	c->source = b->source;
	for (size_t i = 0; i < b->visit_count; i++) {
		const struct sink_visit *v = &b->visits[i];
		/* Without counters it does not matter where they come from. */
		struct stream *s = stream_of(c, c->config.counters ? v->stream : 0);
		if (s && is_click(b, v))
			link_set_add(&s->batch, v->link, 1);
	}
	for (size_t i = 0; c->config.counters && i < b->advance_count; i++) {
		struct stream *s = stream_find(c, b->advances[i].stream);
		if (s)
			count_step(c, s, &b->advances[i]);
	}
	for (size_t i = 0; i < c->count; i++) {
		/* The store has to hear of the batch's links. When it has not taken any for so long that they
		 * are too many, those that the counters know of are found again there. */
		struct stream *s = &c->streams[i];
		for (size_t k = 0; c->config.store && k < s->batch.count; k++)
			link_set_add(&s->fresh, s->batch.all[k].link, 0);
		link_set_reset(&s->batch);
		if (fresh_count(c) < LINKS_MAX)
			continue;
		if (!c->is_telling) {
			c->due_ms = clock_mono_ms();
			continue;
		}
		s->is_searched = !c->config.counters;
		link_set_release(&s->fresh);
	}
}

/* Telling the store */

static void owe(void *ctx, uint64_t link)
{
	struct stream *s = ctx;
	link_set_add(&s->unreported, link, 0);
}

/* Finds what others have left. Counters that are away can be searched the next time. */
static void search(struct clicks *c, struct stream *s, int64_t until_ms)
{
	struct counters *counters = c->config.counters;
	while (!s->is_searched && clock_mono_ms() < until_ms) {
		if (counters->ops->dirty_links(counters, c->source, s->number, &s->cursor, owe, s) < 0)
			return;
		s->is_searched = s->cursor == 0;
	}
}

/* The sink is asked as long as there is time for it, and puts the counters right: if the queue gives an event
 * twice and nobody notices, they have added it twice. False: there is no time, and they do not know. */
static bool fill_in(struct clicks *c, struct counters_step *step, bool is_last)
{
	bool is_known = true;
	for (size_t i = 0; i < step->count; i++)
		step->links[i].is_missing = true;
	if (is_last || may_ask(c))
		return true;
	if (c->config.counters)
		c->config.counters->ops->read(c->config.counters, step);
	for (size_t i = 0; i < step->count; i++)
		is_known &= !step->links[i].is_missing;
	return is_known;
}

/* Tells the next of what is owed. 1, or 0 when there is no time. */
static int tell_some(struct clicks *c, struct stream *s, bool is_last)
{
	struct store_count counts[STEP_MAX];
	size_t n = MIN(s->unreported.count - s->reported, (size_t)STEP_MAX);
	struct counters_step step = {.source = c->source,
	                             .at = {.stream = s->number, .to = s->at},
	                             .links = s->unreported.all + s->reported,
	                             .count = n};
	if (!fill_in(c, &step, is_last))
		return 0;
	int r = ask_sink(c, step.links, n);
	for (size_t i = 0; r == 0 && i < n; i++)
		counts[i] = (struct store_count){step.links[i].link, step.links[i].clicks};
	if (r == 0)
		r = store_set_clicks(c->config.store, c->config.node, counts, n);
	if (r < 0)
		return r;
	if (c->config.counters) {
		if (s->reach <= s->at) /* otherwise the sink's totals hold what is still to come */
			c->config.counters->ops->put(c->config.counters, &step);
		c->config.counters->ops->updated(c->config.counters, &step);
	}
	metric_add(&c->config.metrics->counters_updates, n);
	s->reported += n;
	return 1;
}

static void trim(struct clicks *c, const struct stream *s)
{
	if (c->config.counters)
		c->config.counters->ops->trim(c->config.counters, c->source, s->number);
}

/* 1: all is told; 0: there is more, but no time. */
static int tell_stream(struct clicks *c, struct stream *s, int64_t until_ms, bool is_last)
{
	search(c, s, until_ms);
	while (s->reported < s->unreported.count) {
		int r = clock_mono_ms() < until_ms ? tell_some(c, s, is_last) : 0;
		if (r <= 0)
			return r;
	}
	link_set_release(&s->unreported);
	s->reported = 0;
	if (s->is_searched)
		trim(c, s);
	return 1;
}

static void begin_telling(struct clicks *c)
{
	if (c->is_telling)
		return;
	for (size_t i = 0; i < c->count; i++) {
		struct stream *s = &c->streams[i];
		s->unreported = s->fresh;
		s->fresh = (struct link_set){0};
	}
	c->is_telling = true;
}

/* Goes on with it, and says when that, or the next time, is due. */
static int tell(struct clicks *c, int64_t until_ms, bool is_last)
{
	int r = 1;
	for (size_t i = 0; r > 0 && i < c->count; i++)
		r = tell_stream(c, &c->streams[i], until_ms, is_last);
	int64_t now_ms = clock_mono_ms();
	if (r < 0) {
		log_warn("stats",
		         "click totals could not be brought to the link store (%s); tried again later",
		         err_name(r));
		c->due_ms = now_ms + RETRY_MS;
	} else {
		c->is_telling = r == 0;
		if (r > 0 && c->dirty_links)
			dirty_links_keep(c->dirty_links, &stream_of(c, 0)->fresh);
		c->due_ms = r == 0 ? now_ms : now_ms + (int64_t)c->config.flush_ms;
	}
	return r;
}

void clicks_chores(struct clicks *c)
{
	int64_t now_ms = clock_mono_ms();
	if (now_ms < c->due_ms)
		return;
	begin_telling(c);
	tell(c, now_ms + SLICE_MS, false);
}

void clicks_finish(struct clicks *c)
{
	int64_t until_ms = clock_mono_ms() + FINISH_MS;
	for (int round = 0; round < 2; round++) { /* what is under way, and what came since */
		begin_telling(c);
		if (tell(c, until_ms, true) <= 0)
			return;
	}
}

void clicks_trim(struct clicks *c)
{
	for (size_t i = 0; i < c->count; i++)
		trim(c, &c->streams[i]);
}
