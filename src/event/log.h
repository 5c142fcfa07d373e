/*
 * The event log of a data folder (docs/internals/eventlog-format.md): its segments, one writer per worker, and the
 * flusher thread, which syncs segments to the disk.
 *
 * Threads: a writer belongs to its worker's thread. event_log_segments, _consumed and _remove are for the
 * reader, one thread. The log's lock guards the list of segments; a writer takes it only to begin a segment.
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
	uint64_t clicks;  /* visits except orphans */
	uint64_t limited; /* of those: written by event_writer_limited */
	uint64_t orphans;
	uint64_t impressions;
	uint64_t rejected;        /* events that the API refused */
	uint64_t dropped;         /* clicks not recorded because of overload */
	uint64_t dropped_orphans; /* likewise; not in tallies */
};

struct event_log_config {
	const char *path;
	const struct event_settings *settings; /* outlives the log */
	unsigned writers;
	/* The least boot number. It comes from the clock (event_log_boot), so that a folder restored from a
	 * copy does not use boot numbers again: they are part of events' ids. */
	uint32_t boot_min;
	/* The reader's positions in this node's log; NULL: none. */
	int (*resume)(void *resume_ctx, uint64_t node, struct arena *arena, struct position **ret,
	              size_t *ret_count);
	void *resume_ctx;
	/* On the flusher's thread: event_writer_synced has changed, or sync has failed for good. May be
	 * NULL. */
	void (*synced)(void *ctx, unsigned writer);
	void *ctx;
};

uint32_t event_log_boot(int64_t now_ms);

/* Creates the folder if needed, recovers earlier boots, and begins a new one. */
int event_log_open(const struct event_log_config *config, struct event_log **ret, struct err *e);

/* Closes every segment with an end record. Writers must not be in use. NULL is fine. */
void event_log_close(struct event_log *log);

struct event_writer *event_log_writer(struct event_log *log, unsigned number);
uint64_t event_log_node(const struct event_log *log);
const char *event_log_path(const struct event_log *log);

/* The unread events when the log was opened. */
struct event_counts event_log_backlog(const struct event_log *log);

/* Bytes that are not read because they were damaged when the log was opened. */
uint64_t event_log_damaged_bytes(const struct event_log *log);

/* events.spool_bytes is reached: further events are refused. Any thread. */
bool event_log_is_full(const struct event_log *log);
uint64_t event_log_spool_bytes(const struct event_log *log); /* written and unread; any thread */

/* A sync failed, and will not be retried. Any thread. */
bool event_log_sync_failed(const struct event_log *log);

/* 0, or why events may be lost: a message for /readyz. Any thread. */
int event_log_trouble(struct event_log *log, struct err *e);

struct event_segment_state {
	uint64_t segment;
	uint64_t end;  /* valid up to here */
	bool finished; /* it will not grow */
	int64_t modified_ms;
};

/* All segments, by number. */
int event_log_segments(struct event_log *log, struct arena *arena, struct event_segment_state **ret,
                       size_t *ret_count);

/* The reader has committed this many bytes. */
void event_log_consumed(struct event_log *log, uint64_t bytes);

/* ERR_BUSY while it is not synced yet; ERR_CORRUPT when it is damaged: it stays for inspection. */
int event_log_remove(struct event_log *log, uint64_t segment);

/* Writers */

/* The texts of a visit, of any length; they are truncated to their bounds. */
struct event_visitor {
	struct str agent;
	struct str referrer;
	struct str language;
};

/*
 * Adds a record to the turn's buffer. False: refused (the spool is full, or the disk fails), and counted as
 * dropped. Records are written when event_writer_flush has returned 0.
 */
bool event_writer_visit(struct event_writer *w, struct event_visit *v, const struct event_visitor *from);

/* Likewise, for a click that is answered only if it is written. If it is refused, or its turn is lost, it did
 * not happen, and is counted nowhere. */
bool event_writer_limited(struct event_writer *w, struct event_visit *v, const struct event_visitor *from);

/* False: refused, and counted nowhere: the client gets an error. Texts are within EVENT_FIELD_BYTES_MAX. */
bool event_writer_impression(struct event_writer *w, const struct event_impression *i);

/* The API refused events. */
void event_writer_rejected(struct event_writer *w, uint64_t count);

/*
 * Writes the turn's buffer. <0: everything added since the last successful flush is lost; its visits are
 * counted as dropped. A turn larger than the buffer is written in parts; event_writer_failures counts lost
 * ones.
 */
int event_writer_flush(struct event_writer *w, int64_t now_ms);
uint64_t event_writer_failures(const struct event_writer *w);

/* Since the log was opened: written events; `dropped` and `rejected` as they happened. */
struct event_counts event_writer_counts(const struct event_writer *w);

/* Bytes written in all, and how many of them are synced. event_writer_want_sync wakes the flusher. After a
 * failed sync, `synced` does not change any more: see event_log_trouble. */
uint64_t event_writer_written(const struct event_writer *w);
uint64_t event_writer_synced(const struct event_writer *w);
void event_writer_want_sync(struct event_writer *w);
