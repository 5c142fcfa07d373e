#include "queue/queue_log.h"

#include "base/grow.h"
#include "event/reader.h"
#include "obs/log.h"
#include "obs/metrics.h"
#include "os/clock.h"

#include <stdlib.h>

enum { REMOVE_EVERY_MS = 10000 };

struct segment_stream {
	struct queue_stream stream; /* its number is the segment's */
	uint64_t committed;         /* 0: nothing */
	uint64_t end;               /* as of the last refresh */
	uint64_t mark;              /* its end at the last mark_end */
	uint64_t doubt;             /* events before this may have been delivered before */
	bool finished;
	bool unreadable; /* until the next start */
	bool is_over;    /* for this round */
	bool is_open;
	int64_t modified_ms;
	struct event_reader reader;
};

struct queue_log {
	struct queue base;
	struct queue_log_config config;
	struct metrics *metrics;
	struct segment_stream *
	    *segments; /* by number: events point at their streams, so they stay where they are */
	size_t count, cap;
	struct advance *advances;   /* as many as sources */
	size_t first;               /* index of the segment to read first in this round */
	size_t turn;                /* the current one, relative to `first`; goes around twice */
	struct event event;         /* the last one delivered */
	uint64_t given_at;          /* its position */
	bool read_failed;           /* in this round, of some segment */
	struct event_counts counts; /* read since the last commit */
	struct position *kept;      /* for the checkpoint: as many as segments */
	bool checkpoint_failed;
	struct advance partition;
	uint32_t boot; /* the oldest that has unread events */
	bool in_doubt; /* the events of this round */
	int64_t remove_due_ms;
};

static struct queue_log *self(struct queue *base)
{
	return container_of(base, struct queue_log, base);
}

/* Segments */

/* Lower bound. */
static size_t segment_place(const struct queue_log *q, uint64_t segment)
{
	size_t low = 0, high = q->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (q->segments[middle]->stream.number < segment)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct segment_stream *segment_find(struct queue_log *q, uint64_t segment)
{
	size_t i = segment_place(q, segment);
	return i < q->count && q->segments[i]->stream.number == segment ? q->segments[i] : NULL;
}

/* The arrays grow together, so they share one capacity. */
static bool segments_grow(struct queue_log *q)
{
	size_t need = q->count + 1, cap = q->cap, of_advances = cap, of_kept = cap;
	if (!ARRAY_ROOM(q->segments, cap, need) || !ARRAY_ROOM(q->advances, of_advances, need) ||
	    !ARRAY_ROOM(q->kept, of_kept, need))
		return false;
	q->cap = cap;
	return true;
}

static struct segment_stream *segment_add(struct queue_log *q, uint64_t segment)
{
	struct segment_stream *s = segments_grow(q) ? calloc(1, sizeof(*s)) : NULL;
	if (!s)
		return NULL;
	s->stream.number = segment;
	s->reader.fd = -1;
	struct segment_stream **at = &q->segments[segment_place(q, segment)];
	memmove(at + 1, at, (size_t)(q->segments + q->count - at) * sizeof(struct segment_stream *));
	*at = s;
	q->count++;
	return s;
}

static void segment_close(struct segment_stream *s)
{
	event_reader_close(&s->reader);
	if (s->stream.reader_data)
		s->stream.reader_data_free(s->stream.reader_data);
	s->stream.reader_data = NULL;
	s->is_open = false;
}

static void segment_free(struct segment_stream *s)
{
	segment_close(s);
	free(s);
}

/* Bytes that will never be read no longer count as spooled. */
static void segment_lose(struct queue_log *q, uint64_t bytes)
{
	metric_add(&q->metrics->events_unreadable_bytes, bytes);
	event_log_consumed(q->config.log, bytes);
}

static uint64_t unread_from(const struct segment_stream *s)
{
	return MAX(s->committed, (uint64_t)EVENT_HEADER_BYTES);
}

static uint64_t read_to(const struct segment_stream *s)
{
	return s->is_open ? s->reader.position : unread_from(s);
}

/* Skips the rest of a segment: nothing after damage is trusted. The file stays. */
static void segment_give_up(struct queue_log *q, struct segment_stream *s, const char *why)
{
	log_error(
	    "events",
	    "cannot read the rest of a segment, run 'curt verify': segment=%016llx at=%llu lost_bytes=%llu"
	    " error=%s",
	    (unsigned long long)s->stream.number, (unsigned long long)unread_from(s),
	    (unsigned long long)(s->end - unread_from(s)), why);
	segment_lose(q, s->end - unread_from(s));
	s->unreadable = true;
	segment_close(s);
}

/* Events before the bad record are committed first; the next round fails here again with nothing read. */
static int segment_failed(struct queue_log *q, struct segment_stream *s, int r)
{
	s->is_over = true;
	if (s->is_open && s->reader.position > unread_from(s))
		return 0;
	if (r == ERR_NOT_FOUND)
		segment_give_up(q, s, "the file does not exist");
	else if (r == ERR_CORRUPT)
		segment_give_up(q, s,
		                s->is_open ? event_fault_text(s->reader.fault) : "its header is not valid");
	q->read_failed |= r == ERR_UNAVAILABLE; /* retried; other segments continue meanwhile */
	return r == ERR_NOMEM ? r : 0;
}

static bool is_read(const struct segment_stream *s)
{
	return s->unreadable || (s->finished && read_to(s) >= s->end);
}

/* A writer's segments are read one after the other, to limit the open descriptors. */
static bool is_its_turn(const struct queue_log *q, size_t i)
{
	if (q->config.boots_in_order && event_segment_boot(q->segments[i]->stream.number) > q->boot)
		return false;
	if (i == 0)
		return true;
	const struct segment_stream *s = q->segments[i], *before = q->segments[i - 1];
	if (before->stream.number >> 24 != s->stream.number >> 24)
		return true;
	return is_read(before);
}

/* Rounds */

static int log_refresh(struct queue *base)
{
	struct queue_log *q = self(base);
	struct arena CLEANUP(arena_release) arena = {0};
	struct event_segment_state *states;
	size_t count;
	int r = event_log_segments(q->config.log, &arena, &states, &count);
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct segment_stream *s = segment_find(q, states[i].segment);
		if (!s)
			s = segment_add(q, states[i].segment);
		if (!s)
			return ERR_NOMEM;
		if (s->unreadable)
			segment_lose(q, states[i].end - s->end);
		s->end = states[i].end;
		s->finished = states[i].finished;
		s->modified_ms = states[i].modified_ms;
		s->is_over = false;
	}
	q->read_failed = false;
	q->turn = 0;
	q->first++;
	q->boot = UINT32_MAX;
	/* Segments take turns, in another order after a restart. So all events are in doubt while any segment
	 * has events that may have been delivered before. */
	q->in_doubt = false;
	for (size_t i = q->count; i-- > 0;) {
		const struct segment_stream *s = q->segments[i];
		if (!is_read(s))
			q->boot = event_segment_boot(s->stream.number);
		q->in_doubt |= !s->unreadable && unread_from(s) < s->doubt;
	}
	return r;
}

/* 1: an event; 0: none in this round. */
static int segment_next(struct queue_log *q, struct segment_stream *s)
{
	if (s->unreadable || s->is_over || read_to(s) >= s->end)
		return 0;
	struct err e;
	int r = 0;
	if (!s->is_open)
		r = event_reader_open(&s->reader, event_log_path(q->config.log), s->stream.number,
		                      s->committed, &e);
	if (r < 0)
		return segment_failed(q, s, r);
	s->is_open = true;
	q->given_at = s->reader.position;
	r = event_reader_next(&s->reader, s->end, &q->event);
	return r < 0 ? segment_failed(q, s, r) : r;
}

static int log_next(struct queue *base, struct queue_event *ret)
{
	struct queue_log *q = self(base);
	for (; q->turn < 2 * q->count; q->turn++) {
		size_t i = (q->first + q->turn) % q->count;
		struct segment_stream *s = q->segments[i];
		/* The first time around: only events in doubt. */
		if ((q->turn < q->count && read_to(s) >= s->doubt) || !is_its_turn(q, i))
			continue;
		int r = segment_next(q, s);
		if (r == 0)
			continue;
		if (r > 0) {
			event_counts_count(&q->counts, &q->event, 1);
			*ret = (struct queue_event){
			    .id = {s->reader.node, s->stream.number, q->event.position},
			    .stream = &s->stream,
			    .event = &q->event,
			    .in_doubt = q->in_doubt,
			};
		}
		return r;
	}
	return 0;
}

static void log_put_back(struct queue *base)
{
	struct queue_log *q = self(base);
	struct segment_stream *s = q->segments[(q->first + q->turn) % q->count];
	s->reader.position = q->given_at;
	s->is_over = true;
	event_counts_count(&q->counts, &q->event, (uint64_t)-1);
}

static struct str log_text(struct queue *base, struct queue_stream *stream, uint32_t at,
                           char out[EVENT_STRING_BYTES_MAX])
{
	(void)base;
	return event_reader_string(&container_of(stream, struct segment_stream, stream)->reader, at, out);
}

static size_t log_advances(struct queue *base, const struct advance **ret)
{
	struct queue_log *q = self(base);
	size_t n = 0;
	for (size_t i = 0; i < q->count; i++) {
		const struct segment_stream *s = q->segments[i];
		if (s->is_open && s->reader.position > unread_from(s))
			q->advances[n++] = (struct advance){s->stream.number, s->committed,
			                                    s->reader.position};
	}
	*ret = q->advances;
	return n;
}

/* The whole log is one partition, counted in impressions. */
static size_t log_partition_advances(struct queue *base, const struct advance **ret)
{
	struct queue_log *q = self(base);
	uint64_t from = q->config.counts.impressions;
	q->partition = (struct advance){0, from, from + q->counts.impressions};
	*ret = &q->partition;
	return 1;
}

static int log_commit(struct queue *base)
{
	struct queue_log *q = self(base);
	uint64_t bytes = 0;
	for (size_t i = 0; i < q->count; i++) {
		struct segment_stream *s = q->segments[i];
		if (!s->is_open)
			continue;
		if (s->reader.position > unread_from(s)) {
			bytes += s->reader.position - unread_from(s);
			s->committed = s->reader.position;
		}
		if (s->finished && s->committed >= s->end)
			segment_close(s);
	}
	event_counts_add(&q->config.counts, &q->counts);
	q->counts = (struct event_counts){0};
	if (q->config.checkpoint && bytes > 0) {
		/* Without it, the events are read again after a crash: no reason to stop. */
		struct err e;
		struct checkpoint c = {.positions = q->kept, .counts = q->config.counts};
		for (size_t i = 0; i < q->count; i++) {
			if (q->segments[i]->committed > 0)
				q->kept[c.count++] = (struct position){q->segments[i]->stream.number,
				                                       q->segments[i]->committed};
		}
		int r = checkpoint_write(q->config.checkpoint, &c, &e);
		if (r < 0 && !q->checkpoint_failed)
			log_error("events",
			          "cannot write the checkpoint, a restart reads events twice: error=%s",
			          e.text);
		q->checkpoint_failed = r < 0;
	}
	event_log_consumed(q->config.log, bytes);
	return 0;
}

static void log_rewind(struct queue *base)
{
	struct queue_log *q = self(base);
	for (size_t i = 0; i < q->count; i++) {
		struct segment_stream *s = q->segments[i];
		s->doubt = MAX(s->doubt, read_to(s));
		segment_close(s);
	}
	q->counts = (struct event_counts){0};
}

static bool log_is_behind(const struct queue *base)
{
	const struct queue_log *q = container_of(base, const struct queue_log, base);
	for (size_t i = 0; i < q->count; i++)
		if (!q->segments[i]->unreadable && read_to(q->segments[i]) < q->segments[i]->end)
			return true;
	return false;
}

static void log_mark_end(struct queue *base)
{
	struct queue_log *q = self(base);
	for (size_t i = 0; i < q->count; i++)
		q->segments[i]->mark = q->segments[i]->end;
}

static bool log_end_is_reached(const struct queue *base)
{
	const struct queue_log *q = container_of(base, const struct queue_log, base);
	for (size_t i = 0; i < q->count; i++)
		if (!q->segments[i]->unreadable && unread_from(q->segments[i]) < q->segments[i]->mark)
			return false;
	return true;
}

static int log_trouble(struct queue *base, struct err *e)
{
	return self(base)->read_failed
	           ? err_set(e, ERR_UNAVAILABLE, "a segment of the event log cannot be read")
	           : 0;
}

static uint64_t log_source(const struct queue *base)
{
	return event_log_node(container_of(base, const struct queue_log, base)->config.log);
}

/* Retention */

/* Removes committed segments that have expired, or exceed keep_bytes. */
static void log_retention(struct queue *base)
{
	struct queue_log *q = self(base);
	const struct queue_log_config *c = &q->config;
	uint64_t kept_bytes = 0;
	bool settled = false;
	int64_t now_ms = clock_real_ms();
	if (clock_mono_ms() < q->remove_due_ms)
		return;
	q->remove_due_ms = clock_mono_ms() + REMOVE_EVERY_MS;
	for (size_t i = q->count; i-- > 0;) {
		struct segment_stream *s = q->segments[i];
		/* Unreadable segments stay for inspection. */
		if (!s->finished || s->is_open || s->unreadable || s->committed < s->end)
			continue;
		kept_bytes += s->end;
		bool old = now_ms - s->modified_ms >= (int64_t)c->settings->keep_ms;
		if (!old && kept_bytes <= c->settings->keep_bytes)
			continue;
		if (!settled &&
		    (q->checkpoint_failed || (q->config.sync && q->config.sync(q->config.ctx) != 0)))
			return;
		settled = true;
		if (event_log_remove(c->log, s->stream.number) < 0)
			continue;
		if (c->forget)
			c->forget(c->ctx, &s->stream.number, 1);
		metric_add(&q->metrics->events_segments_removed, 1);
		segment_free(s);
		memmove(&q->segments[i], &q->segments[i + 1],
		        (q->count - i - 1) * sizeof(struct segment_stream *));
		q->count--;
	}
}

static void log_free(struct queue *base)
{
	struct queue_log *q = self(base);
	for (size_t i = 0; i < q->count; i++)
		segment_free(q->segments[i]);
	free(q->segments);
	free(q->advances);
	free(q->kept);
	free(q);
}

static const struct queue_ops log_ops = {
    .free = log_free,
    .source = log_source,
    .refresh = log_refresh,
    .next = log_next,
    .put_back = log_put_back,
    .text = log_text,
    .advances = log_advances,
    .partition_advances = log_partition_advances,
    .commit = log_commit,
    .rewind = log_rewind,
    .is_behind = log_is_behind,
    .mark_end = log_mark_end,
    .end_is_reached = log_end_is_reached,
    .trouble = log_trouble,
    .retention = log_retention,
};

int queue_log_new(const struct queue_log_config *config, struct queue **ret, struct err *e)
{
	struct queue_log *q = calloc(1, sizeof(*q));
	if (!q || !(q->metrics = metrics_register())) {
		free(q);
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	q->base.ops = &log_ops;
	q->config = *config;
	metric_add(&q->metrics->events_unreadable_bytes, event_log_damaged_bytes(config->log));
	int r = log_refresh(&q->base);
	for (size_t i = 0; r == 0 && i < config->read_count; i++) {
		/* A missing segment may come back (a folder that was not mounted): its position stays. */
		struct segment_stream *s = segment_find(q, config->read[i].stream);
		if (s)
			s->committed = config->read[i].offset;
	}
	for (size_t i = 0; i < q->count; i++)
		q->segments[i]->doubt = q->segments[i]->end; /* the previous process may have been killed */
	if (r < 0) {
		log_free(&q->base);
		return err_set(e, r, "cannot list the segments of the event log (%s)", err_name(r));
	}
	*ret = &q->base;
	return 0;
}
