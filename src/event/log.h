/*
 * The event log of one data folder (docs/internals/eventlog-format.md): its segments, one writer per worker,
 * the thread that flushes to the disk, and what is known about each segment.
 *
 * Threads. A writer belongs to its worker's thread. The flusher is the log's own. event_log_segments,
 * _consumed and _remove are the reader's, which is one thread. The lock of the log guards the list of
 * segments; a writer takes it only when it begins a segment.
 */
#pragma once

#include "base/arena.h"
#include "base/position.h"
#include "config/config.h"
#include "event/format.h"

struct event_log;
struct event_writer;

enum event_durability { DURABILITY_FLUSH, DURABILITY_SYNC };
enum event_address { ADDRESS_TRUNCATED, ADDRESS_NONE };

struct event_settings {
	bool visits;
	int durability; /* enum event_durability */
	uint64_t flush_ms;
	uint64_t spool_bytes;
	uint64_t segment_bytes;
	uint64_t keep_ms;
	uint64_t keep_bytes;
	int address; /* enum event_address */
	char *country_header;
};
extern const struct conf_row event_rows[];
extern const size_t event_row_count;

struct event_counts {
	uint64_t clicks;  /* visits that are no orphans */
	uint64_t limited; /* of those: what was to be on record or not to happen (event_writer_limited) */
	uint64_t orphans;
	uint64_t impressions;
	uint64_t rejected;        /* events refused at the door */
	uint64_t dropped;         /* clicks not recorded because of overload */
	uint64_t dropped_orphans; /* likewise; in no tally */
};

struct event_log_config {
	const char *path;
	const struct event_settings *settings; /* outlives the log */
	unsigned writers;
	/* This boot's number at least. By the clock (event_log_boot), so that a folder that was put back from
	 * a copy does not use the numbers again that were given out meanwhile: they are in events' ids. */
	uint32_t boot_min;
	/* How far the reader has come in each segment of this node's log; NULL: nowhere. */
	int (*resume)(void *resume_ctx, uint64_t node, struct arena *arena, struct position **ret,
	              size_t *ret_count);
	void *resume_ctx;
	void (*synced)(void *ctx, unsigned writer); /* on the flusher's thread: event_writer_synced has moved,
	                                               or there will be no more of it; NULL: nobody asks */
	void *ctx;
};

uint32_t event_log_boot(int64_t now_ms);

/* Makes the folder, recovers what earlier boots left, and begins a new boot. */
int event_log_open(const struct event_log_config *config, struct event_log **ret, struct err *e);

/* Closes every segment in order. No writer is in use any more. NULL is fine. */
void event_log_close(struct event_log *log);

struct event_writer *event_log_writer(struct event_log *log, unsigned number);
uint64_t event_log_node(const struct event_log *log);
const char *event_log_path(const struct event_log *log);

/* What was on record and unread when the log was opened. */
struct event_counts event_log_backlog(const struct event_log *log);

/* Bytes of segments that were damaged when the log was opened, and are not read. */
uint64_t event_log_damaged_bytes(const struct event_log *log);

/* The bound of the spool is reached: what is offered now is not taken. Any thread. */
bool event_log_is_full(const struct event_log *log);
uint64_t event_log_spool_bytes(const struct event_log *log); /* written and unread; any thread */

/* A flush to the disk failed, and will not be tried again. Any thread. */
bool event_log_sync_failed(const struct event_log *log);

/* 0, or why what is written may not be kept: a sentence for /readyz. Any thread. */
int event_log_trouble(struct event_log *log, struct err *e);

struct event_segment_state {
	uint64_t segment;
	uint64_t end;  /* valid up to here */
	bool finished; /* it will not grow */
	int64_t modified_ms;
};

/* All segments that are there, by number. */
int event_log_segments(struct event_log *log, struct arena *arena, struct event_segment_state **ret,
                       size_t *ret_count);

/* So many bytes of the log have been read for good. */
void event_log_consumed(struct event_log *log, uint64_t bytes);

/* ERR_BUSY while it is still being written to the disk; ERR_CORRUPT when it was found damaged: it stays for
 * people to look at. */
int event_log_remove(struct event_log *log, uint64_t segment);

/* Writers */

/* What a visit brings along; strings of any length, cut to their bounds. */
struct event_visitor {
	struct str agent;
	struct str referrer;
	struct str language;
};

/*
 * Takes a record into the turn. False: it was not taken (the spool is full, or the disk fails) and is counted
 * as dropped. Records are on record when event_writer_flush has said 0.
 */
bool event_writer_visit(struct event_writer *w, struct event_visit *v, const struct event_visitor *from);

/* The same for a click that is answered only if it is on record. One that is not taken, or whose turn is
 * lost, did not happen, and is counted nowhere. */
bool event_writer_limited(struct event_writer *w, struct event_visit *v, const struct event_visitor *from);

/* False: not taken, and counted nowhere: the client is told. Texts are within EVENT_FIELD_BYTES_MAX. */
bool event_writer_impression(struct event_writer *w, const struct event_impression *i);

/* An event was refused at the door. */
void event_writer_rejected(struct event_writer *w, uint64_t count);

/*
 * Writes the turn. <0: everything taken since the last flush that said 0 is lost (its visits are counted as
 * dropped). A turn that outgrows the buffer is written in parts; event_writer_failures tells whether one of
 * them was lost.
 */
int event_writer_flush(struct event_writer *w, int64_t now_ms);
uint64_t event_writer_failures(const struct event_writer *w);

/* Since the log was opened; written, and for `dropped` and `rejected` as they happened. */
struct event_counts event_writer_counts(const struct event_writer *w);

/* Bytes written in all, and how many of them the disk has. event_writer_want_sync asks the flusher to hurry.
 * Sync stays behind for good after it failed: see event_log_trouble. */
uint64_t event_writer_written(const struct event_writer *w);
uint64_t event_writer_synced(const struct event_writer *w);
void event_writer_want_sync(struct event_writer *w);
