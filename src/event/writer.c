#include "event/log_private.h"

#include "base/hash.h"
#include "obs/log.h"
#include "os/sys.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

enum {
	TALLY_EVERY_MS = 1000, /* while the spool is full, as tallies exceed its bound */
	VISIT_BYTES_MAX = EVENT_VISIT_BYTES + EVENT_KEY_BYTES_MAX + 3 * (8 + EVENT_STRING_BYTES_MAX),
	IMPRESSION_BYTES_MAX = EVENT_IMPRESSION_BYTES + 3 * EVENT_FIELD_BYTES_MAX,
};

int writer_init(struct event_writer *w, struct event_log *log, unsigned number)
{
	*w = (struct event_writer){.log = log, .number = number};
	/* Not touched before the first event, so an idle worker uses no memory for them. */
	w->buffer = malloc(EVENT_TURN_BYTES);
	w->strings = calloc(1, sizeof(*w->strings));
	if (!w->buffer || !w->strings)
		return ERR_NOMEM;
	randombytes_buf(&w->strings->seed, sizeof(w->strings->seed));
	return 0;
}

void writer_release(struct event_writer *w)
{
	free(w->buffer);
	free(w->strings);
}

int write_all_at(int fd, const void *data, size_t len, uint64_t at)
{
	struct iovec rest = {(void *)(uintptr_t)data, len};
	while (rest.iov_len > 0) {
		ssize_t n = os_sys.pwritev(fd, &rest, 1, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		rest.iov_base = (char *)rest.iov_base + n;
		rest.iov_len -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

/* The turn is lost. Its strings are not in the file, so they must not be referred to. */
static int turn_failed(struct event_writer *w, int64_t now_ms, const char *what, int error)
{
	w->failures += w->turn.clicks + w->turn.orphans + w->turn.impressions > 0;
	uint64_t dropped = w->turn.clicks - w->turn.limited;
	w->counts.dropped += dropped;
	w->counts.dropped_orphans += w->turn.orphans;
	w->unpublished.dropped += dropped + w->turn.dropped; /* a tally in the turn is written again */
	w->unpublished.rejected += w->turn.rejected;
	w->turn = (struct event_counts){0};
	w->turn_len = 0;
	w->turn_records = 0;
	w->retry_ms = now_ms + EVENT_RETRY_MS;
	w->tail_dirty = w->segment != NULL;
	strings_clear(w->strings);
	if (!atomic_load_explicit(&w->failing, memory_order_relaxed))
		log_error("event", "%s, clicks are dropped and /event answers 503 until it works: error=%s",
		          what, strerror(error));
	atomic_store_explicit(&w->failing, true, memory_order_relaxed);
	return ERR_UNAVAILABLE;
}

/* Writes the buffer after the segment's last record. */
static int turn_write(struct event_writer *w, int64_t now_ms)
{
	if (w->turn_len == 0)
		return 0;
	ASSERT(w->segment); /* records are encoded with its number, which the checksum covers */
	int r = 0;
	/* First removes the rest of a failed write: a record in it could come right after a shorter turn. */
	if (UNLIKELY(w->tail_dirty) && os_sys.ftruncate(w->segment->fd, (off_t)w->end) != 0)
		r = -errno;
	if (r == 0) {
		w->tail_dirty = false;
		r = write_all_at(w->segment->fd, w->buffer, w->turn_len, w->end);
	}
	if (r < 0)
		return turn_failed(w, now_ms, "cannot write the event log", -r);
	w->end += w->turn_len;
	w->records += w->turn_records;
	w->counts.clicks += w->turn.clicks;
	w->counts.limited += w->turn.limited;
	w->counts.orphans += w->turn.orphans;
	w->counts.impressions += w->turn.impressions;
	if (UNLIKELY(atomic_load_explicit(&w->failing, memory_order_relaxed))) {
		log_info("event", "the event log is written again");
		atomic_store_explicit(&w->failing, false, memory_order_relaxed);
	}
	atomic_fetch_add_explicit(&w->log->spool_used, w->turn_len, memory_order_relaxed);
	atomic_store_explicit(&w->segment->end, w->end, memory_order_release);
	atomic_store_explicit(&w->written,
	                      atomic_load_explicit(&w->written, memory_order_relaxed) + w->turn_len,
	                      memory_order_release);
	w->turn = (struct event_counts){0};
	w->turn_len = 0;
	w->turn_records = 0;
	return 0;
}

static uint64_t position(const struct event_writer *w)
{
	return w->end + w->turn_len;
}

/* Finishes the segment; the next record begins another one. */
static int segment_end(struct event_writer *w, int64_t now_ms)
{
	w->turn_len += event_encode_end(w->buffer + w->turn_len, w->segment->number, position(w),
	                                w->records + w->turn_records, 0);
	int r = turn_write(w, now_ms);
	if (r < 0)
		return r;
	w->segment->modified_ms = now_ms;
	atomic_store_explicit(&w->segment->finished, true, memory_order_release);
	w->segment = NULL;
	strings_clear(w->strings);
	event_writer_want_sync(w); /* so that its descriptor is closed */
	return 0;
}

static int segment_begin(struct event_writer *w, int64_t now_ms)
{
	if (w->sequence > 0xffffff)
		return turn_failed(w, now_ms, "no segment numbers are left, restart curt", EFBIG);
	uint64_t number = event_segment(w->log->boot, w->number, w->sequence);
	int r = log_segment_begin(w->log, number, now_ms, &w->segment);
	if (r < 0)
		return turn_failed(w, now_ms, "cannot create a segment of the event log", -r);
	w->sequence++;
	w->end = EVENT_HEADER_BYTES;
	w->records = 0;
	return 0;
}

/* Makes room for a record of `need` bytes in the segment and the buffer, together with an end record and a
 * tally. */
static int make_room(struct event_writer *w, size_t need, int64_t now_ms)
{
	int r = 0;
	need += EVENT_END_BYTES + EVENT_TALLY_BYTES;
	if (UNLIKELY(now_ms < w->retry_ms && w->retry_ms - now_ms <= EVENT_RETRY_MS))
		return ERR_UNAVAILABLE;
	if (UNLIKELY(w->segment && position(w) + need > w->log->settings->segment_bytes))
		r = segment_end(w, now_ms);
	if (UNLIKELY(r == 0 && w->turn_len + need > EVENT_TURN_BYTES))
		r = turn_write(w, now_ms);
	if (UNLIKELY(r == 0 && !w->segment))
		r = segment_begin(w, now_ms);
	return r;
}

static uint32_t string_position(struct event_writer *w, struct str text)
{
	if (text.len == 0)
		return 0;
	text.len = MIN(text.len, (size_t)EVENT_STRING_BYTES_MAX);
	uint64_t hash = hash_str(text, w->strings->seed);
	uint32_t at = strings_find(w->strings, text, hash);
	if (LIKELY(at != 0))
		return at;
	at = (uint32_t)position(w);
	w->turn_len += event_encode_string(w->buffer + w->turn_len, w->segment->number, at, text);
	w->turn_records++;
	strings_add(w->strings, text, hash, at);
	return at;
}

static bool visit_add(struct event_writer *w, struct event_visit *v, const struct event_visitor *from)
{
	if (UNLIKELY(event_log_is_full(w->log) || make_room(w, VISIT_BYTES_MAX, v->time_ms) < 0))
		return false;
	v->agent = string_position(w, from->agent);
	v->referrer = string_position(w, from->referrer);
	v->language = string_position(w, from->language);
	v->key.len = MIN(v->key.len, (size_t)EVENT_KEY_BYTES_MAX);
	w->turn_len += event_encode_visit(w->buffer + w->turn_len, w->segment->number, position(w), v);
	w->turn_records++;
	if (event_is_orphan(v->kind))
		w->turn.orphans++;
	else
		w->turn.clicks++;
	return true;
}

bool event_writer_visit(struct event_writer *w, struct event_visit *v, const struct event_visitor *from)
{
	if (LIKELY(visit_add(w, v, from)))
		return true;
	bool orphan = event_is_orphan(v->kind);
	w->counts.dropped_orphans += orphan;
	w->counts.dropped += !orphan;
	w->unpublished.dropped += !orphan;
	return false;
}

bool event_writer_limited(struct event_writer *w, struct event_visit *v, const struct event_visitor *from)
{
	bool added = visit_add(w, v, from);
	w->turn.limited += added;
	return added;
}

bool event_writer_impression(struct event_writer *w, const struct event_impression *i)
{
	if (event_log_is_full(w->log) || make_room(w, IMPRESSION_BYTES_MAX, i->received_ms) < 0)
		return false;
	w->turn_len += event_encode_impression(w->buffer + w->turn_len, w->segment->number, position(w), i);
	w->turn_records++;
	w->turn.impressions++;
	return true;
}

void event_writer_rejected(struct event_writer *w, uint64_t count)
{
	w->counts.rejected += count;
	w->unpublished.rejected += count;
}

/* Rejected and dropped events are written as a tally, so that reconciliation includes them after a crash. */
static void write_tally(struct event_writer *w, int64_t now_ms)
{
	if (LIKELY(w->unpublished.rejected == 0 && w->unpublished.dropped == 0))
		return;
	int64_t since_ms = now_ms - w->tally_ms;
	if (event_log_is_full(w->log) && since_ms >= 0 && since_ms < TALLY_EVERY_MS)
		return;
	if (make_room(w, EVENT_TALLY_BYTES, now_ms) < 0)
		return;
	const struct event_tally tally = {now_ms, w->unpublished.rejected, w->unpublished.dropped};
	w->turn_len += event_encode_tally(w->buffer + w->turn_len, w->segment->number, position(w), &tally);
	w->turn_records++;
	w->turn.rejected = w->unpublished.rejected;
	w->turn.dropped = w->unpublished.dropped;
	w->unpublished = (struct event_counts){0};
	w->tally_ms = now_ms;
}

int event_writer_flush(struct event_writer *w, int64_t now_ms)
{
	uint64_t failures = w->failures;
	write_tally(w, now_ms);
	turn_write(w, now_ms);
	return w->failures == failures ? 0 : ERR_UNAVAILABLE;
}

void writer_end(struct event_writer *w, int64_t now_ms)
{
	w->retry_ms = 0;
	w->tally_ms = 0;
	if (event_writer_flush(w, now_ms) == 0 && w->segment)
		segment_end(w, now_ms);
}

uint64_t event_writer_failures(const struct event_writer *w)
{
	return w->failures;
}

struct event_counts event_writer_counts(const struct event_writer *w)
{
	return w->counts;
}

uint64_t event_writer_written(const struct event_writer *w)
{
	return atomic_load_explicit(&w->written, memory_order_relaxed);
}

uint64_t event_writer_synced(const struct event_writer *w)
{
	return atomic_load_explicit(&w->synced, memory_order_acquire);
}

void event_writer_want_sync(struct event_writer *w)
{
	task_wake(&w->log->flusher);
}
