/* Shared by the files of the log: log.c (folder, flusher), recovery.c, writer.c. */
#pragma once

#include "base/list.h"
#include "event/log.h"
#include "event/strings.h"
#include "os/task.h"

#include <stdatomic.h>

enum { EVENT_WRITERS_MAX = 256, EVENT_TURN_BYTES = 256 * 1024, EVENT_RETRY_MS = 100 };

/* On the log's list until it is removed. */
struct log_segment {
	struct list link;
	uint64_t number;
	int fd;                /* -1: closed. Only the flusher and event_log_close close it. */
	_Atomic uint64_t end;  /* the writer releases it after the bytes are in the file; readers acquire */
	_Atomic bool finished; /* likewise */
	uint64_t synced;       /* owned by the flusher, as is the next */
	uint64_t round;        /* the last in which it was examined */
	int64_t modified_ms;   /* when it was finished */
	bool damaged;          /* found so when the log was opened */
};

struct event_writer {
	struct event_log *log;
	unsigned number;
	unsigned sequence;           /* of the next segment */
	struct log_segment *segment; /* NULL: none yet */
	uint64_t end;                /* of the segment */
	uint64_t records;            /* in the segment, written */
	size_t turn_len;
	uint64_t turn_records;
	struct event_counts turn;        /* in the buffer */
	struct event_counts unpublished; /* rejected and dropped events, for the next tally */
	struct event_counts counts;
	int64_t tally_ms; /* when one was last written */
	int64_t retry_ms; /* after a failure: no attempt before */
	uint64_t failures;
	bool tail_dirty;          /* a failed write may have left bytes after `end` */
	_Atomic bool failing;     /* the last write failed; read by event_log_trouble */
	_Atomic uint64_t written; /* pairs with the flusher's acquire */
	_Atomic uint64_t synced;  /* the flusher releases, the worker acquires */
	struct strings *strings;
	uint8_t *buffer; /* EVENT_TURN_BYTES */
};

struct event_log {
	char *path;
	int folder_fd; /* for syncing it */
	const struct event_settings *settings;
	uint64_t node;
	uint32_t boot;
	struct event_counts backlog;
	uint64_t damaged_bytes; /* found when it was opened */
	_Atomic uint64_t spool_used;
	_Atomic bool sync_failed;
	void (*synced)(void *ctx, unsigned writer);
	void *ctx;

	pthread_mutex_t lock; /* guards what follows */
	struct list segments;
	bool folder_dirty; /* a segment's name is not synced yet */

	struct task flusher;
	uint64_t round; /* owned by the flusher */
	unsigned writer_count;
	struct event_writer writers[];
};

enum { SEGMENT_PATH_BYTES = 4096, EVENT_LINE_BYTES_MAX = 96 };
void segment_path(const char *folder, uint64_t segment, char out[SEGMENT_PATH_BYTES]);

/* Creates the file with its header, and adds it to the list. Worker threads. */
int log_segment_begin(struct event_log *log, uint64_t number, int64_t now_ms, struct log_segment **ret);

/* What exists when a log is opened. */
struct log_inventory {
	uint64_t *segments;
	size_t segment_count;
	struct position *read; /* the reader's positions */
	size_t read_count;
};

/* Adds a segment to the list. NULL: out of memory. */
struct log_segment *log_segment_add(struct event_log *log, uint64_t number, int fd, uint64_t end,
                                    bool finished, int64_t modified_ms);

/* recovery.c: sets the log's node and boot, and the reader's positions; recovers segments[which]. */
int log_boot_begin(struct event_log *log, const struct event_log_config *config, struct arena *arena,
                   struct log_inventory *inventory, struct err *e);
int log_segment_recover(struct event_log *log, const struct log_inventory *inventory, size_t which,
                        struct err *e);

/* The content of the file `boot`; false: it is damaged. */
bool event_boot_parse(struct str text, uint64_t *ret_node, uint32_t *ret_boot);

int writer_init(struct event_writer *w, struct event_log *log, unsigned number);
void writer_end(struct event_writer *w, int64_t now_ms); /* flushes, and writes the end record */
void writer_release(struct event_writer *w);

/* pwritev until all is written. 0 or -errno. */
int write_all_at(int fd, const void *data, size_t len, uint64_t at);
